"""Tool use in the Qwen XML form: choosing among tools, typed arguments, results, parallel calls, no call."""

import json

from toolbox import neat, text_of
from words import Draw


def P(kind, draw, text="", **more):
    return {"kind": kind, "draw": draw, "text": text, **more}


CITY = P("string", lambda d: d.city(), "[Name of the|The] city")
PATH = P("string", lambda d: d.path(), "[Path of the file|The file|File name]")
NAME = P("string", lambda d: d.name(), "[Name of the person|Who|The person]")
TEXT = P("string", text_of, "[The text|Text to use|Content]")
QUERY = P("string", lambda d: d.pick([lambda: d.word("topic"), lambda: f"{d.word('adjective')} {d.word('noun')}s", lambda: f"{d.any_word()} {d.any_word()}", lambda: d.full_name()])(), "[What to look for|Search terms|The query]")
TERM = P("string", lambda d: d.any_word(), "[A word|The word]")
DATE = P("string", lambda d: d.iso_date(), "Date as YYYY-MM-DD")
TIME = P("string", lambda d: f"{d.range(0, 23):02d}:{d.pick(['00', '15', '30', '45'])}", "[Time as HH:MM|Clock time]")
COUNT = P("integer", lambda d: d.number(1, 60), "[How many|Number]")
CODE = P("string", lambda d: d.code(), "[Identifier|The id|Number of the record]")
ID = P("integer", lambda d: d.number(1, 99999), "[Identifier|The id|Number of the record]")
EMAIL = P("string", lambda d: d.email(), "[E-mail address|Address of the receiver]")
URL = P("string", lambda d: d.url(), "[Address of the page|The URL]")
FLOAT = P("number", lambda d: neat(d.pick([d.number(1, 99), d.number(1, 999) / 10, d.number(1, 9999) / 100])), "[The value|Amount]")
PERSONS = P("array", lambda d: d.names(d.range(1, 4)), "[Names|People]", items="string")
WORDS = P("array", lambda d: [d.any_word() for _ in range(d.range(2, 4))], "[Items|List of words]", items="string")
NUMBERS = P("array", lambda d: [d.number(0, 99) for _ in range(d.range(2, 5))], "[Numbers|The values]", items="integer")


def E(*values):
    return P("string", lambda d: d.pick(values), "[One of the choices|Kind|Which one]", enum=list(values))


def V(low, high):
    return P("integer", lambda d: d.number(low, high), "[A whole number|The value]")


ROOM = P("string", lambda d: d.pick(["kitchen", "bedroom", "living room", "bathroom", "hall", "office", "garage", "attic", "cellar", "garden"]), "[The room|Where]")
ANSWER_DONE = ["Done.", "Done."]
# (names, description, {parameter: (names, spec)}, wordings, result, answer). `{x}` in a wording is the value of
# parameter x; the optional ones are those in `?`-wordings only. A result maps keys to draws; an answer may use both.
TOOLS = [
    ("get_weather|weather|current_weather|fetch_weather|weather_lookup", "[Get|Returns|Look up|Fetch] the [current |]weather [of|in|for] a [city|place]", {"c": ("city|location|place|town", CITY)}, ["[What is|What's|How is] the weather [like |][in|at] {c}[ today| now| right now|]?", "[Tell me|Check|Look up|Get|Give me] the weather [in|for|of] {c}[ please|].", "[Weather|The weather] [in|for] {c}[, please|]?", "Is it [raining|sunny|cold|warm|windy|snowing] in {c}[ today| now|]?", "How [cold|warm|hot] is it in {c}?", "Do I need [an umbrella|a coat|sunglasses] in {c}[ today|]?", "I am [travelling|going] to {c}. What is the weather [like|there]?", "Can you [tell me|check] the weather in {c}?", "[What is|What's] the temperature in {c}?"], {"temperature": lambda d: d.number(-10, 36), "condition": lambda d: d.pick(["sunny", "cloudy", "rainy", "windy", "snowy", "foggy", "clear"])}, "In {c} it is {condition} and {temperature} degrees.", True),
    ("get_weather|weather|get_current_weather|forecast", "[Get|Returns] the weather [of|in] a city", {"c": ("city|location|place", CITY), "u": ("unit|units", E("celsius", "fahrenheit"))}, ["[What is|What's] the weather in {c} in {u}?", "[Tell me|Get|Check] the weather in {c}, in {u}.", "How warm is it in {c}? Use {u}.", "Weather in {c}, {u} please.", "[Give me|Show me] the temperature in {c} in degrees {u}.", "I want to know the weather of {c} in {u}.", "How many degrees {u} are there in {c}?"], {"temperature": lambda d: d.number(-10, 99), "unit": "u"}, "It is {temperature} degrees {u} in {c}.", True),
    ("get_forecast|forecast|weather_forecast", "Weather forecast for [some|the next] days", {"c": ("city|location|place", CITY), "n": ("days|num_days|count", V(1, 14))}, ["[What will the weather be|How will the weather be] in {c} [for|over] the next {n} days?", "[Give me|Show me|Get] a {n}-day forecast for {c}.", "Forecast for {c}, {n} days[ please|].", "Will it rain in {c} in the next {n} days?", "I need the weather of {c} for {n} days.", "Look {n} days ahead: weather in {c}?", "What does the forecast say for {c} over {n} days?"], {"summary": lambda d: d.pick(["mostly sunny", "some rain", "cold and windy", "warm", "snow at the end"])}, "The forecast for {c}: {summary}."),
    ("get_time|current_time|time_in|clock", "[Get|Tell] the [current |]time in a city", {"c": ("city|place|location|timezone", CITY)}, ["What time is it in {c}[ now|]?", "[Tell me|Get] the time in {c}.", "[Current|Local] time in {c}?", "How late is it in {c}?", "What is the [time|local time|clock] in {c}?", "I have to call {c}. What time is it there?", "Is it [day|night|morning|evening] in {c}?"], {"time": lambda d: d.time()}, "It is {time} in {c}.", True),
    ("calculate|calculator|compute|evaluate|math", "[Calculate|Evaluate] an [arithmetic |]expression", {"e": ("expression|expr|formula|input", P("string", lambda d: f"{d.number(1, 9999)} {d.pick('+-*/')} {d.number(1, 999)}", "[The expression|What to calculate]"))}, ["[Calculate|Compute|Work out|Evaluate] {e}[ with the tool| for me| please|].", "[What is|What's|How much is] {e}?", "Use the calculator[ for|:] {e}.", "I need the [result|value] of {e}.", "Please do {e}.", "Can you [calculate|compute] {e}?", "{e} = ?"], {"result": lambda d: d.number(1, 99999)}, "The result is {result}.", True),
    ("add|add_numbers|sum_two", "Add two numbers", {"a": ("a|x|first|left", FLOAT), "b": ("b|y|second|right", FLOAT)}, ["[Add|Sum] {a} and {b}.", "[What is|What's] {a} plus {b}?", "[Compute|Use the tool to add] {a} and {b}.", "How much is {a} + {b}?", "Please add {a} to {b}.", "I need the sum of {a} and {b}.", "Put {a} and {b} together."], {"result": lambda d: d.number(2, 2000)}, "The sum is {result}."),
    ("search|web_search|search_web|google|find", "[Search|Look up something on] the [web|internet]", {"q": ("query|q|search_term|text|keywords", QUERY)}, ["[Search|Search the web|Look|Google] for {q}.", "[Find|Look up] [information|something|pages] [about|on] {q}[ online|].", "Search: {q}", "[Can|Could] you [search|look up] {q}[ for me| on the web|]?", "What does the web say about {q}?", "I want to read about {q}. Search for it.", "Do a search for {q}."], {"title": lambda d: d.title(), "url": lambda d: d.url()}, "I found \"{title}\" at {url}.", True),
    ("search|web_search|search_documents|find_documents", "Search [documents|the web] and return the best [results|hits]", {"q": ("query|q|keywords", QUERY), "n": ("limit|max_results|top_k|count", V(1, 20))}, ["[Search|Look] for {q} and [show|give] me {n} results.", "Find {n} [pages|documents|results] about {q}.", "[Give me|Show] the top {n} results for {q}.", "Search {q}, at most {n} results.", "I want {n} hits for {q}.", "Look up {q} and return {n} results.", "Up to {n} results on {q}, please."], {"hits": lambda d: d.number(1, 500)}, "There are {hits} results for {q}."),
    ("read_file|read|open_file|cat|load_file|view_file", "[Read|Return|Show] the [content|contents|text] of a file", {"p": ("path|file|filename|file_path|name", PATH)}, ["[Read|Open|Show me|Print|Load] [the file |]{p}[ please|].", "[What is|What's|What stands] in [the file |]{p}?", "[Can|Could] you [read|open] {p}[ for me|]?", "Show [me |]the contents of {p}.", "I need [to see |]the [text|content] of {p}.", "Let me see {p}.", "Have a look at {p}.", "Read me {p}."], {"content": lambda d: d.sentence()}, "The file {p} says: {content}", True),
    ("write_file|write|save_file|create_file|save", "[Write|Save] [text|content] to a file", {"p": ("path|file|filename|file_path", PATH), "t": ("content|text|data|body", TEXT)}, ["[Write|Save|Put] {t:q} [to|into|in] [the file |]{p}.", "[Create|Make] [a|the] file {p} [with the content|with the text|containing|that says] {t:q}.", "Call NAME with {p:k} {p} and {t:k}: {t:c}", "Save this [text|line] [in|to|as] {p}: {t:c}", "[Please |]store {t:q} in {p}.", "I want {p} to contain {t:q}.", "Into {p} goes {t:q}.", "Make a file named {p} that holds: {t:c}"], {"ok": lambda d: True}, "I saved the text in {p}."),
    ("delete_file|remove_file|rm|delete", "Delete a file", {"p": ("path|file|filename", PATH)}, ["[Delete|Remove|Erase|Get rid of] [the file |]{p}[ please|].", "I do not need {p} any more. [Delete|Remove] it.", "[Can|Could] you [delete|remove] {p}?", "Throw {p} away.", "{p} has to go.", "Please remove the file called {p}.", "Wipe {p} from the disk."], {"ok": lambda d: True}, "I deleted {p}.", True),
    ("list_files|ls|list_directory|dir", "List the files [of|in] a [folder|directory]", {"p": ("path|directory|folder|dir", P("string", lambda d: d.pick(["/tmp", "src", "docs", "/home/" + d.made_up(), d.any_word().replace(" ", "_"), "./" + d.made_up(), "/var/log", "."]), "[The folder|Directory]"))}, ["[List|Show|Show me] the files [in|of] {p}.", "[What is|What's|Which files are] in [the folder |the directory |]{p}?", "[Can|Could] you list {p}?", "ls {p}", "What files does {p} have?", "Look into the folder {p}.", "Give me a listing of {p}."], {"files": lambda d: [d.path().split("/")[-1] for _ in range(d.range(1, 3))]}, "The files are: {files}.", True),
    ("send_email|email|mail|send_mail|compose_email", "Send an e-mail", {"a": ("to|recipient|address|receiver", EMAIL), "s": ("subject|title|topic", P("string", lambda d: d.pick([d.title, lambda: d.word("noun"), lambda: f"{d.word('noun')} on {d.word('day')}"])(), "[Subject line|The subject]")), "t": ("body|text|message|content", TEXT)}, ["[Send|Write] an [email|e-mail|mail] to {a} with the subject {s:q} and the text {t:q}.", "[Email|Mail] {a}: subject {s:q}, body {t:q}.", "Send {t:q} to {a}, subject {s:q}.", "[Please |]mail {a} under the subject {s:q}: {t:c}", "I want to write to {a}. Subject: {s}. Text: {t:c}", "Write to {a}. The subject is {s:q} and the message is {t:q}.", "To {a}, subject {s:q}: {t:c}"], {"status": lambda d: "sent"}, "The mail to {a} was sent."),
    ("send_message|message|text|sms|notify", "Send a [text |]message to [a person|someone]", {"n": ("to|recipient|name|contact|person", NAME), "t": ("text|message|content|body", TEXT)}, ["[Tell|Text|Message|Write] {n}[:| this:] {t:q}", "[Send|Write] [a message to|the message] {n} [that says|saying|with the text] {t:q}.".replace("[a message to|the message] {n}", "a message to {n}"), "Send {n} the [message|text] {t:q}.", "Let {n} know: {t:c}", "Please [text|message] {n} {t:q}.", "A message for {n}: {t:c}", "I want to tell {n} {t:q}.", "Send {t:q} to {n}."], {"status": lambda d: "delivered"}, "The message to {n} was sent.", True),
    ("set_timer|timer|start_timer", "[Set|Start] a timer", {"n": ("minutes|duration|duration_minutes|length", V(1, 120))}, ["[Set|Start] a timer [for|of] {n} minutes.", "[Timer|A timer] for {n} minutes[, please|].", "Wake me in {n} minutes.", "[Can|Could] you set a {n}-minute timer?", "Count down {n} minutes.", "Let me know when {n} minutes are over.", "Ring in {n} minutes.", "I need a timer of {n} minutes."], {"status": lambda d: "running"}, "The timer is set for {n} minutes."),
    ("set_alarm|alarm|create_alarm", "Set an alarm", {"t": ("time|at|clock", TIME)}, ["[Set|Make] an alarm [for|at] {t}.", "Wake me [up |]at {t}.", "[An alarm|Alarm] at {t}[, please|].", "I have to get up at {t}.", "[Can|Could] you wake me at {t}?", "Let the alarm ring at {t}.", "Ring me at {t}."], {"status": lambda d: "set"}, "The alarm is set for {t}.", True),
    ("add_reminder|create_reminder|remind|reminder", "Create a reminder", {"w": ("text|title|what|note", P("string", lambda d: f"{d.word('verb')} the {d.word('object')}", "[What to do|The note]")), "t": ("time|when|at", TIME)}, ["Remind me to {w} at {t}.", "[Set|Create|Add] a reminder at {t}: {w}[.|]", "At {t} I have to {w}. Remind me.", "[Please |]remind me at {t} to {w}.", "Don't let me forget to {w} at {t}.", "Reminder for {t}: {w}", "[Can|Could] you remind me to {w} at {t}?"], {"id": lambda d: d.number(1, 999)}, "I will remind you at {t}: {w}."),
    ("create_event|add_event|schedule|calendar_add", "Add an event to the calendar", {"s": ("title|name|summary", P("string", lambda d: d.pick([lambda: f"{d.word('noun')} {d.pick(['meeting', 'party', 'talk', 'lunch'])}", lambda: f"{d.pick(['lunch', 'dinner', 'call', 'meeting'])} with {d.name()}"])(), "[Name of the event|Title]")), "d": ("date|day|on", DATE), "t": ("time|start|start_time|at", TIME)}, ["[Schedule|Plan|Add|Create|Book] {s:q} on {d} at {t}.", "Put {s:q} [in|into] my calendar for {d}, {t}.", "On {d} at {t} there is {s:q}. [Add it|Note it] to the calendar.", "New event: {s}, {d}, {t}.", "[Can|Could] you add {s:q} on {d} at {t}?", "I have {s:q} on {d} at {t}; put it in the calendar.", "Calendar entry: {s:q}, {d} {t}."], {"id": lambda d: d.number(1, 999)}, "I added {s} on {d} at {t}."),
    ("translate|translate_text|translator", "Translate [a text|text] [to|into] another language", {"t": ("text|source|content|phrase", TEXT), "l": ("target_language|language|to|target", P("string", lambda d: d.word("language"), "[Language to translate to|Target language]"))}, ["[Translate|Please translate] {t:q} [to|into] {l}.", "[What is|How do you say] {t:q} in {l}?", "Say {t:q} in {l}.", "Into {l}, please: {t:c}", "I need {t:q} in {l}.", "[Can|Could] you translate {t:q} to {l}?", "Give me the {l} for {t:q}."], {"translation": lambda d: " ".join(d.made_up() for _ in range(d.range(1, 4)))}, "In {l}: {translation}"),
    ("convert_currency|currency|exchange|convert_money", "Convert money from one currency to another", {"a": ("amount|value|sum", P("number", lambda d: neat(d.pick([d.number(1, 999), d.number(1, 9999) / 10])), "[How much|Amount]")), "f": ("from|from_currency|source", P("string", lambda d: d.pick(["USD", "EUR", "GBP", "JPY", "CHF", "SEK", "NOK", "CAD", "AUD", "INR"]), "Currency code")), "t": ("to|to_currency|target", P("string", lambda d: d.pick(["DKK", "PLN", "CZK", "CNY", "KRW", "BRL", "MXN", "TRY", "ZAR", "NZD"]), "Currency code"))}, ["[Convert|Change|Exchange] {a} {f} [to|into] {t}.", "How much is {a} {f} in {t}?", "[What are|What is] {a} {f} in {t}?", "I have {a} {f}. How much is that in {t}?", "{a} {f} in {t}[, please|]?", "Turn {a} {f} into {t}.", "What do I get in {t} for {a} {f}?"], {"result": lambda d: d.number(1, 9999) / 10}, "{a} {f} are {result} {t}."),
    ("convert_units|unit_converter|convert", "Convert between units", {"v": ("value|amount|number", FLOAT), "f": ("from_unit|from|source_unit", P("string", lambda d: d.pick(["km", "kg", "meters", "liters", "celsius", "hours", "inches"]), "Unit")), "t": ("to_unit|to|target_unit", P("string", lambda d: d.pick(["miles", "pounds", "feet", "gallons", "fahrenheit", "minutes", "cm"]), "Unit"))}, ["[Convert|Change] {v} {f} [to|into] {t}.", "How [many|much] {t} are {v} {f}?", "What is {v} {f} in {t}?", "{v} {f} in {t}, please.", "I need {v} {f} in {t}.", "Express {v} {f} in {t}.", "{v} {f} make how many {t}?"], {"result": lambda d: d.number(1, 9999) / 10}, "{v} {f} are {result} {t}."),
    ("get_stock_price|stock_price|stock|quote", "[Get|Returns] the [current |]price of a stock", {"s": ("symbol|ticker|stock", P("string", lambda d: "".join(d.pick("ABCDEFGHIJKLMNOPQRSTUVWXYZ") for _ in range(d.range(3, 4))), "[Ticker symbol|Symbol]"))}, ["[What is|What's] the [stock |]price of {s}?", "[How much|What] is {s} [worth|trading at]?", "[Get|Give me|Check] the stock price [of|for] {s}.", "How is {s} doing on the market?", "Quote for {s}[, please|]?", "Price of the stock {s}?", "Look up the share {s}."], {"price": lambda d: d.number(1, 9999) / 10}, "{s} is at {price}.", True),
    ("play_music|play|play_song|start_music", "Play [music|a song]", {"s": ("song|title|track|name", P("string", lambda d: d.title(), "[Title of the song|The song]")), "a": ("artist|by|singer", P("string", lambda d: d.full_name(), "The artist"))}, ["Play {s:q} by {a}.", "[I want|I'd like] to hear {s:q} by {a}.", "[Put on|Start] {s:q} [by|from] {a}.", "[Can|Could] you play {s:q} by {a}?", "Music: {s:q} by {a}, please.", "Let me listen to {a} with {s:q}.", "By {a}, play {s:q}."], {"status": lambda d: "playing"}, "Now playing {s} by {a}."),
    ("set_light|control_light|light|switch_light", "[Switch|Turn] a light on or off", {"r": ("room|location|where", ROOM), "s": ("state|status|mode", E("on", "off"))}, ["[Turn|Switch] {s} the light[s|] in the {r}.", "[Turn|Switch] the {r} light {s}.", "[Please |]put the light in the {r} {s}.", "The light in the {r} should be {s}.", "Lights {s} in the {r}.", "[Can|Could] you turn the {r} lights {s}?", "I want the lights in the {r} {s}."], {"ok": lambda d: True}, "The light in the {r} is {s}.", True),
    ("set_brightness|dim_light|brightness", "Set the brightness of a lamp in percent", {"r": ("room|lamp|location", ROOM), "v": ("percent|level|brightness|value", V(0, 100))}, ["[Set|Dim] the [light|lamp] in the {r} to {v} percent.", "[Make|Set] the {r} light {v}% bright.", "Brightness of the {r} to {v}[ percent|].", "{r}: {v} percent light[, please|].", "Put the {r} lamp at {v} percent.", "I want {v} percent light in the {r}.", "Change the brightness in the {r} to {v}."], {"ok": lambda d: True}, "The light in the {r} is at {v} percent."),
    ("set_thermostat|set_temperature|thermostat|heating", "Set the temperature of a room", {"r": ("room|zone|place", ROOM), "v": ("temperature|degrees|celsius|target", P("number", lambda d: neat(d.pick([d.range(15, 28), d.range(30, 56) / 2])), "Degrees"))}, ["[Set|Put] the [temperature|heating|thermostat] in the {r} to {v}[ degrees|].", "Make the {r} {v} degrees warm.", "[Heat|Cool] the {r} to {v} degrees.", "I want {v} degrees in the {r}.", "{r} to {v} degrees, please.", "The {r} should be at {v} degrees.", "Thermostat {r}: {v}."], {"ok": lambda d: True}, "The {r} is set to {v} degrees."),
    ("add_to_cart|cart_add|order_item|buy", "Put [a product|an item] into the shopping cart", {"x": ("product|item|name|article", P("string", lambda d: d.word("object"), "[The product|Item]")), "n": ("quantity|count|amount|qty", V(1, 50))}, ["[Add|Put] {n} {x}s [to|into|in] [my|the] cart.", "[Order|Buy] {n} {x}s.", "I [want|need|would like] [to buy |]{n} {x}s.", "[Can|Could] you order {n} {x}s[ for me|]?", "{n} times {x} in the cart, please.", "Put {x} in the cart, quantity {n}.", "My cart needs {n} {x}s."], {"total": lambda d: d.number(5, 999)}, "I put {n} {x}s in the cart; the total is {total}."),
    ("add_items|append_to_list|shopping_list_add|list_add", "Add items to a list", {"x": ("items|entries|things", WORDS)}, ["[Add|Put] {x:l} [to|on] [my|the] [shopping |]list.", "I need {x:l}[; put it on the list| on my list].", "[Note|Write down] {x:l} for the list.", "[Can|Could] you add {x:l} to the list?", "The list should also have {x:l}.", "On the list: {x:l}", "List: add {x:l}."], {"size": lambda d: d.number(3, 40)}, "I added them; the list has {size} items now."),
    ("invite|invite_people|send_invitations", "Invite people to an event", {"p": ("people|guests|names|attendees", PERSONS), "e": ("event|to|occasion", P("string", lambda d: f"{d.word('noun')} {d.pick(['party', 'meeting', 'dinner', 'show'])}", "The event"))}, ["Invite {p:l} to the {e}.", "[Send|Write] invitations for the {e} to {p:l}.", "I want {p:l} at the {e}. Invite them.", "[Can|Could] you invite {p:l} to the {e}?", "The {e}: invite {p:l}.", "Ask {p:l} to come to the {e}.", "{p:l} should be invited to the {e}."], {"sent": lambda d: d.number(1, 9)}, "The invitations to the {e} are sent."),
    ("average|mean|sum_list|statistics|max_of", "[Compute|Calculate] [a figure|something] from a list of numbers", {"v": ("numbers|values|data|list", NUMBERS)}, ["[Use the tool|Run it] on the numbers {v:l}.", "[Compute|Calculate|Work] it out for {v:l}.", "[What is|What's] the result for {v:l}?", "I have the values {v:l}. [Process|Evaluate] them.", "Take {v:l} as numbers.", "NAME of {v:l}, please.", "Give me the NAME of {v:l}."], {"result": lambda d: d.number(1, 999)}, "The result is {result}."),
    ("get_user|find_user|lookup_user|user_info|get_customer", "Get [information|the record] of a [user|customer]", {"i": ("user_id|id|customer_id|uid", ID)}, ["[Get|Show|Look up|Find|Fetch] [the |][user|customer|person] [with id |number |]{i}.", "[Who is|What do we know about] [user|customer] [number |]{i}?", "[Give me|I need] the [data|record|details] of user {i}.", "[Can|Could] you look up the customer {i}?", "User {i}, please.", "Load the record of id {i}.", "Which person has the id {i}?"], {"name": lambda d: d.full_name(), "city": lambda d: d.city()}, "That is {name} from {city}.", True),
    ("track_order|order_status|get_order|track_package", "[Get|Check] the status of an order", {"i": ("order_id|order|number|id|tracking_number", CODE)}, ["[Where is|What is the status of|Track|Check] [my |the |]order {i}[?|.]", "[Has|Did] order {i} [arrived|come] yet?", "[Can|Could] you check order {i}?", "I am waiting for {i}. Where is it?", "Order {i}, what is the status?", "When will {i} come?", "Look up the order with number {i}."], {"status": lambda d: d.pick(["shipped", "on the way", "delivered", "waiting", "cancelled"])}, "Order {i} is {status}.", True),
    ("book_flight|find_flights|search_flights|flights", "[Find|Book|Search] flights between two cities", {"a": ("from|origin|departure|from_city", CITY), "b": ("to|destination|arrival|to_city", CITY), "d": ("date|day|on", DATE)}, ["[Find|Book|Search|Show me] [a flight|flights] from {a} to {b} on {d}.", "I [want|need|have] to fly from {a} to {b} on {d}.", "Flights {a} to {b}, {d}[, please|].", "[Can|Could] you find a flight from {a} to {b} on {d}?", "On {d} I travel from {a} to {b}. Find a flight.", "Get me from {a} to {b} on {d} by plane.", "Which planes go from {a} to {b} on {d}?"], {"flight": lambda d: d.pick("ABKLS") + d.pick("ABCDEF") + d.digits(3), "price": lambda d: d.number(40, 999)}, "Flight {flight} costs {price}."),
    ("get_directions|directions|route|navigate", "[Get|Find] the [way|route] from one place to another", {"a": ("from|start|origin", CITY), "b": ("to|end|destination", CITY), "m": ("mode|by|vehicle", E("car", "train", "bike", "bus", "foot"))}, ["[How do I get|What is the way|Show me the way] from {a} to {b} by {m}?", "[Give me|Get|Find] directions from {a} to {b} by {m}.", "Route from {a} to {b}, by {m}.", "I want to go from {a} to {b} by {m}. Which way?", "By {m} from {a} to {b}: how?", "Plan a trip by {m} from {a} to {b}.", "Navigate from {a} to {b} by {m}."], {"distance_km": lambda d: d.number(5, 2000), "hours": lambda d: d.range(1, 30)}, "It is {distance_km} km from {a} to {b} and takes {hours} hours."),
    ("run_command|shell|execute|bash|run", "Run a shell command", {"c": ("command|cmd|line", P("string", lambda d: d.say(["ls -l {p}", "echo {w}", "mkdir {w}", "cat {p}", "grep {w} {p}", "rm {p}", "git {v} {w}", "make {w}", "wc -l {p}", "python {p}"], p=d.path(), w=d.made_up(), v=d.pick(["checkout", "add", "commit"])), "[The command|Command line]"))}, ["[Run|Execute] [the command |]{c:q}[ please|].", "[Run|Execute]: {c:c}", "In the shell, run {c:q}.", "[Can|Could] you [run|execute] {c:q}?", "Please type {c:q} in the shell.", "I want you to run {c:q}.", "Shell: {c:c}"], {"output": lambda d: d.sentence()}, "The output is: {output}"),
    ("query_database|sql|run_query|execute_sql", "Run an SQL query", {"q": ("query|sql|statement", P("string", lambda d: d.say(["SELECT * FROM {t}", "SELECT {a} FROM {t}", "SELECT COUNT(*) FROM {t}", "SELECT {a}, {b} FROM {t} WHERE {a} = {n}", "DELETE FROM {t} WHERE id = {n}"], t=d.any_word().replace(" ", "_") + "s", a=d.made_up(), b=d.made_up(), n=d.number(1, 999)), "The SQL statement"))}, ["[Run|Execute] [the query |the SQL |]{q:q}.", "[Run|Execute] this query: {q:c}", "Ask the database: {q:c}", "[Can|Could] you run the SQL {q:q}?", "SQL please: {q:c}", "What does {q:q} give?", "Database query: {q:c}"], {"rows": lambda d: d.number(0, 999)}, "The query gave {rows} rows."),
    ("define|dictionary|lookup_word|get_definition", "Look up the meaning of a word", {"w": ("word|term|entry", TERM)}, ["[What does|What is the meaning of] [the word |]{w:q}[ mean|]?".replace("[What does|What is the meaning of] [the word |]{w:q}[ mean|]?", "What does {w:q} mean?"), "[Define|Look up] [the word |]{w:q}.", "What is the meaning of {w:q}?", "[Give me|Find] the definition of {w:q}.", "I do not know the word {w:q}. What is it?", "Meaning of {w:q}?", "Look in the dictionary for {w:q}."], {"definition": lambda d: f"a kind of {d.word('noun')}"}, "The word {w} means: {definition}.", True),
    ("create_task|add_todo|todo_add|new_task", "Create a task", {"t": ("title|task|name|text", P("string", lambda d: f"{d.word('verb')} the {d.word('adjective')} {d.word('object')}", "[Title of the task|What to do]")), "p": ("priority|urgency|level", E("low", "medium", "high"))}, ["[Create|Add|Make] a [task|to-do] {t:q} with {p} priority.", "[New|Add a] {p} priority task: {t}[.|]", "I have to {t}, priority {p}. [Note it|Add it].", "Task: {t}. Priority: {p}.", "[Can|Could] you add the task {t:q}, {p} priority?", "Put {t:q} on my to-do list as {p}.", "To do, {p}: {t}"], {"id": lambda d: d.number(1, 999)}, "The task has the number {id}."),
    ("roll_dice|dice|roll", "Roll dice", {"n": ("count|number|dice", V(1, 10)), "s": ("sides|faces|max", P("integer", lambda d: d.pick([4, 6, 8, 10, 12, 20, 100]), "[Sides of a die|Faces]"))}, ["Roll {n} [dice|die] with {s} sides.", "[Throw|Roll] {n} {s}-sided dice.", "[Can|Could] you roll {n} dice of {s} sides?", "Dice: {n}, sides: {s}.", "Give me {n} rolls of a {s}-sided die.", "I roll {n} dice, each has {s} faces.", "{n}d{s}, please."], {"total": lambda d: d.number(1, 99)}, "The dice show {total}."),
    ("random_number|random|rand|pick_number", "[Draw|Get] a random number", {"a": ("min|low|from|minimum", V(0, 50)), "b": ("max|high|to|maximum", V(60, 1000))}, ["[Give me|Draw|Pick|Get] a random number [between|from] {a} [and|to] {b}.", "A random number from {a} to {b}[, please|].", "[Choose|Pick] any number between {a} and {b}.", "I need a random number, at least {a} and at most {b}.", "Random: {a} to {b}.", "Roll something from {a} to {b}.", "Let chance pick a number from {a} to {b}."], {"number": lambda d: d.number(0, 999)}, "The number is {number}."),
    ("now|get_date|current_date|today|get_current_time", "[Get|Returns] the current date and time", {}, ["What time is it[ now|]?", "[What is|What's] the date[ today|]?", "[Tell me|Get|Give me] the [current |][time|date].", "What day is it[ today|]?", "Which date do we have[ today|]?", "How late is it?", "Call NAME."], {"now": lambda d: d.iso_date() + " " + d.time()}, "It is {now}."),
    ("get_status|status|health_check|ping", "[Get|Check] the status of the [system|server|machine]", {}, ["[What is|What's|Check|Get|Show] the [status|state] of the [system|server|machine].", "Is the [system|server|machine] [up|running|fine]?", "How is the [system|server] doing?", "Status[ report|], please.", "Do a health check.", "Is everything running?", "Ping the server."], {"status": lambda d: d.pick(["ok", "running", "down", "slow"])}, "The status is: {status}."),
    ("set_flag|set_option|configure|toggle|update_setting", "Switch [a setting|an option] on or off", {"n": ("name|option|setting|key|flag", P("string", lambda d: d.any_word().replace(" ", "_") + d.pick(["", "_mode", "_check", "_log"]), "[Name of the setting|The option]")), "v": ("enabled|value|on|active", P("boolean", lambda d: d.chance(0.5), "[On or off|Whether it is on]"))}, ["{v:Enable/Disable} [the option |the setting |]{n}.", "[Turn|Switch] {v:on/off} [the option |the setting |]{n}.", "Set {n} to {v:true/false}.", "[Can|Could] you {v:enable/disable} {n}?", "I want {n} {v:on/off}.", "{n} should be {v:on/off}.", "Please {v:activate/deactivate} {n}."], {"ok": lambda d: True}, "{n} is {v:on/off} now."),
    ("rate|submit_rating|review|rate_product", "[Rate|Submit a rating for] [a product|something]", {"x": ("product|item|name|title", P("string", lambda d: d.pick([d.word("object"), d.title()]), "What is rated")), "v": ("rating|stars|score", V(1, 5)), "t": ("comment|text|review", TEXT)}, ["[Rate|Give] {x:q} {v} stars with the comment {t:q}.", "I give {x:q} {v} of 5. Comment: {t:c}", "Rating for {x:q}: {v}, {t:q}.", "{v} stars for {x:q}, and say {t:q}.", "[Please |]submit a rating of {v} for {x:q}: {t:c}", "My review of {x:q} is {t:q}, {v} stars.", "Review {x:q}: {v} stars, {t:q}."], {"ok": lambda d: True}, "Your rating of {v} stars is in."),
    ("fetch_url|open_page|get_page|browse|http_get", "[Fetch|Open|Load] a web page", {"u": ("url|address|link|page", URL)}, ["[Open|Fetch|Load|Get|Visit] {u}[ please|].", "[What is|What's] on {u}?", "[Can|Could] you open {u}?", "Show me [the page |]{u}.", "Go to {u}.", "I want to read {u}.", "Download {u}."], {"title": lambda d: d.title()}, "The page has the title \"{title}\".", True),
    ("find_recipe|recipe|get_recipe|search_recipes", "[Find|Search] a recipe", {"x": ("ingredient|dish|food|with", P("string", lambda d: d.word("food"), "[The dish|Ingredient]"))}, ["[Find|Give me|Search|Show me] a recipe [for|with] {x}.", "What can I cook with {x}?", "How do I [make|cook] {x}?", "I have {x}. [Find|Look for] a recipe.", "A {x} recipe, please.", "I want to eat {x}. How is it made?", "Recipe with {x}?"], {"recipe": lambda d: d.title()}, "Try this one: {recipe}.", True),
    ("get_capital|country_info|country|lookup_country", "[Get|Returns] facts about a country", {"c": ("country|name|nation", P("string", lambda d: d.word("country"), "[Name of the country|The country]"))}, ["[Tell me|Look up|Find|Get] [facts|something|information] about [the country |]{c}.", "What do you know about {c}? Use the tool.", "[Look up|Get] the country {c}.", "[How many people live|What is the population] in {c}?", "Country data for {c}[, please|].", "I need information on {c}.", "What about the country {c}?"], {"population": lambda d: d.number(100000, 99999999), "capital": lambda d: d.city()}, "{c} has {population} people; the capital is {capital}.", True),
    ("move_robot|move|robot_move|drive", "Move the robot", {"r": ("direction|dir|heading", E("forward", "back", "left", "right", "up", "down")), "n": ("steps|distance|count|meters", V(1, 100))}, ["[Move|Drive|Go|Walk] {n} [steps|meters] {r}.", "[Move|Drive] the robot {r} by {n}.", "{n} steps {r}, please.", "Robot, {r} {n}!", "Let the robot go {r} for {n} steps.", "Send the robot {n} steps {r}.", "Direction {r}, steps {n}."], {"x": lambda d: d.number(0, 99), "y": lambda d: d.number(0, 99)}, "The robot is at {x}, {y} now."),
    ("book_table|reserve_table|reservation|book_restaurant", "Book a table in a restaurant", {"r": ("restaurant|name|place", P("string", lambda d: d.pick([d.title(), d.word("product")]), "[The restaurant|Name]")), "n": ("people|guests|persons|party_size", V(1, 12)), "t": ("time|at", TIME)}, ["[Book|Reserve] a table for {n} at {r:q} at {t}.", "[Can|Could] you [book|reserve] {r:q} for {n} people at {t}?", "A table for {n} in {r:q}, {t}[, please|].", "We are {n} and want to eat at {r:q} at {t}.", "Dinner at {r:q} for {n} at {t}: book it.", "At {t} we need a table for {n} at {r:q}.", "Reserve for {n} at {t} in {r:q}."], {"confirmed": lambda d: d.code()}, "The table is booked; the number is {confirmed}."),
    ("create_contact|add_contact|save_contact|new_contact", "Save a contact", {"n": ("name|full_name|person", P("string", lambda d: d.full_name(), "[Name of the person|The name]")), "e": ("email|mail|address", EMAIL), "a": ("age|years", V(5, 99))}, ["[Save|Add|Create] [the contact|a contact for] {n}, {e}, {a} years old.", "New contact: {n}, aged {a}, mail {e}.", "{n} is {a} years old and has the address {e}. [Save|Add] the contact.", "Add {n} (age {a}, {e}) to my contacts.", "[Can|Could] you save {n}, {a}, with {e}?", "Contact {n}: {e}, {a} years.", "Put {n} in my contacts: {a} years, {e}."], {"id": lambda d: d.number(1, 999)}, "The contact {n} is saved."),
    ("update_address|set_address|change_address", "Change the address of a person", {"n": ("name|person|customer", NAME), "a": ("address|location|new_address", P("object", lambda d: {"street": f"{d.word('last')} Street {d.number(1, 99)}", "city": d.city(), "zip": d.digits(5)}, "The address", fields={"street": "string", "city": "string", "zip": "string"}))}, ["[Change|Set|Update] the address of {n} to {a:o}.", "{n} [moved|has moved] to {a:o}. [Update|Change] the address.", "New address for {n}: {a:o}.", "{n} lives at {a:o} now; update it.", "[Can|Could] you set {n}'s address to {a:o}?", "Address of {n}: {a:o}. Save it.", "Please note that {n} now lives at {a:o}."], {"ok": lambda d: True}, "The address of {n} is changed."),
    ("call_person|phone_call|dial|make_call", "[Call|Phone] a person", {"n": ("name|person|contact|who", NAME)}, ["[Call|Phone|Ring] {n}[ please|].", "[Can|Could] you [call|phone] {n}[ for me|]?", "I [want|need|have] to [call|speak to|talk to] {n}.", "Get {n} on the phone.", "[Connect|Put] me [with|through to] {n}.", "Dial {n}[ now|].", "Give {n} a ring.", "A call to {n}, please."], {"status": lambda d: d.pick(["ringing", "busy", "connected", "no answer"])}, "The line is {status}.", True),
    ("leave_voicemail|voicemail|record_voicemail", "Leave a voicemail", {"n": ("name|person|to|contact", NAME), "t": ("text|content|speech|words", TEXT)}, ["[Leave|Record] a voicemail for {n}: {t:q}", "Voicemail for {n} [with the words|saying|that says] {t:q}.", "Speak {t:q} on the voicemail of {n}.", "On {n}'s voicemail, say {t:q}.", "[Can|Could] you leave {t:q} on the voicemail of {n}?", "{n} is not there. Leave this: {t:c}", "Put {t:q} on the machine of {n}."], {"seconds": lambda d: d.number(3, 90)}, "I left a voicemail of {seconds} seconds for {n}.", True),
    ("post_comment|comment|post|publish_post", "Post a [comment|text] in a channel", {"c": ("channel|room|group|where", P("string", lambda d: d.any_word().replace(" ", "-"), "[The channel|Where to post]")), "t": ("text|comment|body|post", TEXT)}, ["[Post|Publish|Put] {t:q} in [the channel |#|]{c}.", "[Comment|Add the comment] {t:q} in {c}.", "In [the channel |]{c}, post {t:q}.", "New post in {c}: {t:c}", "[Can|Could] you post {t:q} to [the channel |]{c}?", "The channel {c} should read {t:q}.", "Share {t:q} with [everybody in |the group |]{c}."], {"id": lambda d: d.number(1, 9999)}, "The post in {c} has the number {id}.", True),
    ("add_note|take_note|note|write_note|save_note", "[Save|Write down] a note", {"t": ("text|note|content|body", TEXT)}, ["[Note|Write down|Note down]: {t:c}", "[Take|Make|Save] a note: {t:c}", "[Make|Take] a note [that says|with the text|saying] {t:q}.", "Keep {t:q} in my notes.", "My notes should have {t:q}.", "[Can|Could] you note {t:q}?", "Remember this for me: {t:c}", "Into my notes: {t:c}"], {"id": lambda d: d.number(1, 999)}, "The note has the number {id}."),
    ("book_hotel|reserve_room|hotel|find_hotel", "Book a hotel room", {"c": ("city|place|location|where", CITY), "n": ("nights|days|num_nights|stay", V(1, 21)), "g": ("guests|adults|visitors", V(1, 8))}, ["[Book|Find|Reserve] a hotel in {c} for {n} nights and {g} guests.", "A room in {c}, {n} nights, {g} guests.", "We are {g} and stay {n} nights in {c}. [Book|Find] a hotel.", "I need a room for {g} in {c} for {n} nights.", "Hotel, {c}, {n} nights for {g}.", "[Can|Could] you get a hotel room for {g} guests in {c}, {n} nights?", "{g} guests want to sleep {n} nights in {c}."], {"hotel": lambda d: d.title(), "price": lambda d: d.number(40, 999)}, "{hotel} costs {price}.", True),
    ("order_taxi|book_taxi|taxi|call_cab|get_ride", "Order a taxi", {"a": ("address|from|pickup|start", P("string", lambda d: f"{d.word('last')} Street {d.number(1, 99)}", "[Where it starts|The address]")), "t": ("time|at|when", TIME)}, ["[Order|Book|Call|Get] a [taxi|cab] to {a} at {t}.", "I need a [taxi|cab|ride] at {t} from {a}.", "At {t} a taxi should be at {a}.", "Taxi, {a}, {t}[, please|].", "Pick me up at {a} at {t}.", "[Can|Could] you send a cab to {a} at {t}?", "A cab for {t}, {a}."], {"car": lambda d: d.code(), "minutes": lambda d: d.number(2, 50)}, "Car {car} comes in {minutes} minutes."),
    ("buy_tickets|book_tickets|tickets|get_tickets|reserve_seats", "Buy tickets for a [show|film|concert]", {"s": ("show|film|title|event", P("string", lambda d: d.title(), "[The show|Title]")), "n": ("count|tickets|seats|quantity", V(1, 12)), "d": ("date|day|on", DATE)}, ["[Buy|Get|Book] {n} tickets for {s:q} on {d}.", "{n} seats for {s:q}, {d}[, please|].", "On {d} we want to see {s:q}, {n} tickets.", "We are {n} and go to {s:q} on {d}.", "[Can|Could] you [get|reserve] {n} seats for {s:q} on {d}?", "Tickets: {s:q}, {n}, {d}.", "I would like to see {s:q} on {d}; we need {n} tickets."], {"code": lambda d: d.code()}, "The tickets have the code {code}."),
    ("rent_car|car_rental|hire_car|rent_bike", "Rent a [vehicle|car|bike]", {"c": ("city|place|pickup|location", CITY), "n": ("days|duration|num_days|length", V(1, 30))}, ["[Rent|Hire] [a car|something to drive|wheels] in {c} for {n} days.", "I need [a car|wheels] for {n} days in {c}.", "For {n} days I want to drive around {c}.", "Rental in {c}, {n} days.", "[Can|Could] you [rent|hire] it in {c} for {n} days?", "Rent for {n} days, pickup in {c}.", "In {c} we want a car, {n} days long."], {"price": lambda d: d.number(20, 999), "plate": lambda d: d.code()}, "It costs {price}; the plate is {plate}.", True),
    ("pay_invoice|transfer_money|send_money|pay|make_payment", "[Pay|Transfer] money to [a person|somebody]", {"a": ("amount|sum|euros|value", FLOAT), "n": ("to|receiver|payee|name", NAME)}, ["[Pay|Transfer|Give] {n} {a} euros.", "[Transfer|Send|Wire] {a} euros to {n}.", "{n} gets {a} euros from me.", "I owe {n} {a} euros. Pay it.", "Money for {n}: {a} euros.", "[Can|Could] you transfer {a} euros to {n}?", "Let {n} have {a} euros."], {"balance": lambda d: d.number(1, 99999)}, "Paid. The balance is {balance}."),
    ("translate_word|get_synonyms|synonyms|thesaurus", "[Find|Get] words of the same meaning", {"w": ("word|term|input", TERM)}, ["[Find|Give me|Get|Show me] [synonyms|other words] for {w:q}.", "Which words mean the same as {w:q}?", "What is another word for {w:q}?", "How else can I say {w:q}?", "Synonyms of {w:q}?", "I need a different word for {w:q}.", "Thesaurus: {w}"], {"synonyms": lambda d: [d.any_word() for _ in range(d.range(1, 3))]}, "Other words are: {synonyms}.", True),
    ("convert_timezone|time_difference|timezone", "Time difference between two cities", {"a": ("from|first|city_a|home", CITY), "b": ("to|second|city_b|other", CITY)}, ["[What is|Tell me|Get] the time difference between {a} and {b}.", "How many hours is {a} ahead of {b}?", "{a} and {b}: how far apart are the clocks?", "Time zones of {a} and {b}?", "Hours between {a} and {b}, please.", "When I fly from {a} to {b}, how far do I set my watch?", "Compare the clocks in {a} and {b}."], {"hours": lambda d: d.range(1, 12)}, "The difference is {hours} hours."),
    ("measure_distance|distance|get_distance|how_far", "Distance between two places", {"a": ("from|start|place_a|origin", CITY), "b": ("to|end|place_b|target", CITY)}, ["How far is it from {a} to {b}?", "[What is|Give me|Measure] the distance [from|between] {a} [to|and] {b}.", "Distance {a} - {b}?", "How many kilometers are between {a} and {b}?", "Is {b} far from {a}?", "I wonder how far {a} is from {b}.", "Length of the line from {a} to {b}?"], {"km": lambda d: d.number(10, 9000)}, "It is {km} km."),
    ("scale_image|resize_image|resize|crop_image", "[Resize|Scale] an image", {"p": ("path|file|image|picture", PATH), "w": ("width|w|pixels_x", V(10, 4000)), "h": ("height|h|pixels_y", V(10, 4000))}, ["[Resize|Scale] {p} to {w} by {h}[ pixels|].", "Make {p} {w} wide and {h} high.", "{p}: {w} x {h}, please.", "I need {p} in {w}x{h}.", "[Can|Could] you bring {p} to {w} times {h}?", "Change the size of {p} to {w} by {h}.", "Width {w}, height {h} for {p}."], {"bytes": lambda d: d.number(1000, 999999)}, "The picture has {bytes} bytes now."),
    ("water_plants|irrigate|watering|sprinkler", "Water a part of the garden", {"z": ("zone|bed|area|where", P("string", lambda d: d.word("food"), "[The bed|What to water]")), "n": ("minutes|duration|length", V(1, 90))}, ["[Water|Sprinkle] the {z} [for|during] {n} minutes.", "The {z} needs {n} minutes of water.", "Give the {z} water for {n} minutes.", "{n} minutes of water on the {z}[, please|].", "Sprinkler on the {z}, {n} minutes.", "[Can|Could] you water the {z} for {n} minutes?", "The {z} is dry: {n} minutes."], {"liters": lambda d: d.number(1, 300)}, "The {z} gets {liters} liters.", True),
    ("feed_pet|feed|feeder|give_food", "Feed an animal", {"x": ("animal|pet|who", P("string", lambda d: d.word("animal"), "[The animal|Which pet]")), "g": ("grams|amount|portion", V(5, 900))}, ["[Feed|Give] the {x} {g} grams.", "{g} grams for the {x}[, please|].", "The {x} is hungry: {g} grams.", "Let the {x} eat {g} grams.", "[Can|Could] you feed the {x} with {g} grams?", "Food for the {x}, {g} grams.", "The {x} should get {g} grams of food."], {"left": lambda d: d.number(1, 5000)}, "Done; {left} grams are left.", True),
    ("log_weight|track_run|log_workout|save_workout", "Save a workout", {"k": ("kind|sport|activity|type", P("string", lambda d: d.word("hobby"), "[The sport|Activity]")), "n": ("minutes|duration|length", V(5, 240))}, ["[Log|Save|Track] {n} minutes of {k}.", "I did {k} for {n} minutes. [Save|Log] it.", "{n} minutes of {k} today.", "Workout: {k}, {n} minutes.", "[Can|Could] you log {k}, {n} minutes?", "Write down that I did {n} minutes of {k}.", "My training was {k}, {n} minutes."], {"calories": lambda d: d.number(20, 2000)}, "Saved: {calories} calories."),
]
HELD_TOOLS = {13, 20, 48}  # sending a message, converting units, booking a table: for the held-out set only
FAULTS = ["not found", "no such entry", "permission denied", "timeout", "service not available", "invalid input", "no connection", "limit reached"]


def spoken(key: str, spec: dict, name: str, value, how: str) -> str:
    """A value as it stands in the user's sentence: `q` quoted, `c` to the end of the text, `l` a list, `o` an address, `k` the parameter's name."""
    if how == "q":
        return f'"{value}"' if '"' not in str(value) else f"'{value}'"
    if how == "k":
        return name
    if how == "l":
        items = [str(v) for v in value]
        return ", ".join(items[:-1]) + " and " + items[-1] if len(items) > 1 else items[0]
    if how == "o":
        return f"{value['street']}, {value['zip']} {value['city']}"
    if "/" in how:
        return how.split("/")[0 if value else 1]
    return str(value)


def fill(template: str, tool: dict, values: dict) -> str:
    out = template.replace("NAME", tool["name"])
    for key, (name, spec) in tool["params"].items():
        if key not in values:
            continue
        start = out.find("{" + key + ":")
        while start >= 0:
            end = out.index("}", start)
            out = out[:start] + spoken(key, spec, name, values[key], out[start + len(key) + 2 : end]) + out[end + 1 :]
            start = out.find("{" + key + ":")
        value = values[key]
        out = out.replace("{" + key + "}", spoken(key, spec, name, value, "l") if isinstance(value, list) else str(value))
    return out


def schema_of(d: Draw, spec: dict, described: bool) -> dict:
    out = {"type": spec["kind"]}
    if spec.get("enum"):
        out["enum"] = spec["enum"]
    if spec.get("items"):
        out["items"] = {"type": spec["items"]}
    if spec.get("fields"):
        out["properties"] = {k: {"type": t} for k, t in spec["fields"].items()}
        if d.chance(0.5):
            out["required"] = list(spec["fields"])
    if described and spec["text"]:
        out["description"] = d.fill(spec["text"])
    if d.chance(0.1):
        out.update(d.pick(LIMITS.get(spec["kind"], [{}])))
    if d.chance(0.12):
        out = {key: out[key] for key in reversed(out)}
    return out


# What schemas of the world say beyond the type; true of every value that is drawn.
LIMITS = {"string": [{"minLength": 1}, {"maxLength": 500}, {"nullable": False}, {"title": "Text"}], "integer": [{"minimum": 0}, {"maximum": 10000000}, {"format": "int32"}], "number": [{"format": "double"}, {"maximum": 10000000}], "boolean": [{"title": "Switch"}], "array": [{"minItems": 1}, {"maxItems": 20}], "object": [{"additionalProperties": False}]}


# Optional parameters that no wording speaks of: the model has to leave them out.
OPTIONAL = [("unit", {"type": "string", "enum": ["celsius", "fahrenheit"]}), ("units", {"type": "string", "enum": ["metric", "imperial"]}), ("verbose", {"type": "boolean"}), ("timeout", {"type": "integer", "description": "Seconds to wait"}), ("lang", {"type": "string", "description": "Language of the answer"}), ("format", {"type": "string", "enum": ["text", "json"]}), ("encoding", {"type": "string", "default": "utf-8"}), ("dry_run", {"type": "boolean", "default": False}), ("comment", {"type": "string"}), ("tag", {"type": "string"}), ("retries", {"type": "integer", "default": 3}), ("offset", {"type": "integer"}), ("page", {"type": "integer", "description": "Page of the results"}), ("sort", {"type": "string", "enum": ["asc", "desc"]}), ("cache", {"type": "boolean"})]


def make(d: Draw, entry) -> dict:
    """One concrete tool: a name, parameter names and a schema, drawn from an entry of TOOLS."""
    names, description, params = entry[:3]
    name = d.pick(names.split("|"))
    if d.chance(0.06):
        name = "".join(p.capitalize() if i else p for i, p in enumerate(name.split("_")))
    elif d.chance(0.2):
        name = d.pick([f"{name}_{d.pick(['tool', 'v2', 'api', 'now', 'fn'])}", f"{d.pick(['my', 'do', 'the', 'home', 'call'])}_{name}", f"{d.made_up()}_{name}", f"{name}_{d.made_up()}"])
    described = d.chance(0.6)
    drawn, taken = {}, set()
    for key, (options, spec) in params.items():
        option = d.pick([o for o in options.split("|") if o not in taken])
        if d.chance(0.1):
            option = d.pick([f"{option}_{d.pick(['value', 'name', 'arg', 'in'])}", f"the_{option}", f"{option}_{d.made_up()}"])
        elif described and len(params) == 1 and d.chance(0.1):
            option = d.made_up(2)
        taken.add(option)
        drawn[key] = (option, spec)
    parameters = {"type": "object", "properties": {n: schema_of(d, s, described) for n, s in drawn.values()}}
    for extra, schema in d.rng.sample(OPTIONAL, d.pick([0, 0, 0, 1, 1, 2])):
        if extra not in taken:
            parameters["properties"][extra] = dict(schema)
    if drawn or d.chance(0.5):
        parameters["required"] = [n for n, _ in drawn.values()]
    if d.chance(0.15):
        parameters["additionalProperties"] = False
    function = {"name": name}
    if d.chance(0.92):
        function["description"] = d.fill(description) + d.pick(["", "", "."])
    if drawn or d.chance(0.7):
        function["parameters"] = parameters
    if d.chance(0.05):
        function["strict"] = True
    if d.chance(0.08):
        function = {k: function[k] for k in d.rng.sample(list(function), len(function))}
    return {"name": name, "params": drawn, "entry": entry, "schema": {"type": "function", "function": function}}


def escaped(entry) -> tuple:
    """Wordings with their slots hidden from Draw.fill: slots are filled later, with the tool's own names."""
    return tuple(w.replace("{", "<<").replace("}", ">>") for w in entry[3])


ESCAPED = {id(entry): escaped(entry) for entry in TOOLS}


def asked(d: Draw, tool: dict, values: dict, closed: bool = False) -> str:
    """A wording of this side of the split, filled. `closed`: no value may run to the end of the text."""
    wordings = ESCAPED[id(tool["entry"])]
    if closed:
        wordings = tuple(w for w in wordings if ":c>>" not in w) or wordings
    return fill(d.ask(wordings).replace("<<", "{").replace(">>", "}"), tool, values)


def entries(d: Draw) -> list:
    return [t for i, t in enumerate(TOOLS) if (i in HELD_TOOLS) == d.held]


FAMILIES = [("weather", "forecast"), ("search", "find", "google"), ("calculat", "add", "sum", "average", "mean", "math", "compute", "evaluate"), ("time", "now", "date", "clock", "today"), ("file", "read", "open", "cat", "write", "save"), ("random", "dice", "roll"), ("mail", "message", "text", "sms", "notify"), ("remind", "task", "todo", "event", "calendar", "schedule"), ("light", "bright"), ("country", "capital"), ("define", "dictionary", "word", "translat"), ("convert", "currency", "unit"), ("list", "cart", "items"), ("distance", "route", "direction", "navigate"), ("voicemail", "phone", "dial", "note", "comment", "post"), ("taxi", "cab", "rent", "ride")]


def family(tool: dict):
    return next((i for i, names in enumerate(FAMILIES) if any(n in (tool["name"] + tool["entry"][1]).lower() for n in names)), None)


def overlapping(tool: dict, tools: list) -> bool:
    mine = family(tool)
    return mine is not None and any(family(t) == mine for t in tools)


def arguments(tool: dict, values: dict) -> dict:
    return {name: values[key] for key, (name, _) in tool["params"].items() if key in values}


def answer_of(d: Draw, tool: dict, values: dict, result: dict) -> str:
    text = fill(tool["entry"][5], tool, values)
    for key, value in result.items():
        text = text.replace("{" + key + "}", ", ".join(map(str, value)) if isinstance(value, list) else str(value))
    return text


def calls_check(calls: list) -> dict:
    return {"type": "calls", "value": calls}


SYSTEMS = ["", "", "", "", "You are a helpful assistant.", "You are a helpful assistant with tools.", "Use the tools when they help.", "You can call tools.", "Be brief.", "You are an assistant that calls functions.", "Help the user. Call a tool where one fits."]
