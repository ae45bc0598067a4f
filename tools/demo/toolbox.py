"""What tools are put together from: parameters of all types and how people say their values, verbs, things, frames.

task_calls.py makes a new tool from these for nearly every conversation, so that the tool's name, its parameters and
what it does can only be read from the prompt. A thing, a frame and a joint belong to one side of the split.
"""

import zlib

from words import Draw, held_word


class Role:
    """A parameter: its possible names, JSON type, values, descriptions, and ways to say a value without its name.

    In `ways`, # is the value and @ the parameter's name; none of them means that the name has to be said.
    """

    def __init__(self, names, kind, draw, text, ways="", **more):
        self.names, self.kind, self.draw, self.text = names.split(), kind, draw, text
        self.ways = [way for way in ways.split("|") if way]
        self.more = more


COMMON = ("the a an I you he she we they it this that these those my your our their is are was were be been has have had will would can could should may might must do does did not no yes and or but if because while when where what who how why which there here now then soon later "
          "still already again never always often maybe really very quite just only also too about above after against along among around at before behind between by down during for from in into near of off on out over past since through to under until up upon with without all any both each every few many "
          "more most much other some such one two three four five ten hundred first second last next new old good bad big small long short high low early late great little own same right left sure true wrong please thanks hello dear sorry let's don't can't won't I'm you're it's that's we'll I've").split()


def strange(d: Draw) -> str:
    """Words in an order that no template has: text that can only be copied word by word."""
    words = []
    for _ in range(d.range(2, 14)):
        kind = d.rng.random()
        word = d.pick(COMMON) if kind < 0.6 else d.any_word() if kind < 0.9 else d.name() if kind < 0.94 else str(d.number(0, 9999))
        words.append(word + (d.pick([",", ",", ";", ":", " -"]) if d.chance(0.08) else ""))
    text = " ".join(words).rstrip(",;:- ")
    return (text[0].upper() + text[1:] if d.chance(0.6) else text) + d.pick(["", "", ".", ".", "!", "?", "..."])


def text_of(d: Draw) -> str:
    kind = d.rng.random()
    if kind < 0.4:
        return d.sentence()
    if kind < 0.65:
        return strange(d)
    if kind < 0.8:
        return " ".join(d.any_word() for _ in range(d.range(1, 7)))
    return d.pick(TEXTS).replace("#", d.name()).replace("%", d.any_word()).replace("@", d.city())


TEXTS = ["The % is ready.", "I will be late, sorry.", "Call # before noon.", "We meet in @ at the %.", "Please bring the %!", "Do not forget the % and the %.", "# is ill today.", "All went well in @.", "See you soon, #.", "Where is my %?", "The % of # is broken.", "Happy birthday, #!", "Can we talk about the %?", "Back at five.",
         "Great job, #!", "New % from @ arrived", "fix the %", "ask # about the %", "It rains in @ again.", "# moved to @ with a %.", "No % without %."]
number_of = lambda low, high: lambda d: d.number(low, high)
from_section = lambda section: lambda d: d.word(section)
neat = lambda x: int(x) if x == int(x) else x
clock = lambda d: f"{d.range(0, 23):02d}:{d.pick(['00', '15', '30', '45', '05', '20', '40'])}"
money = lambda d: neat(d.pick([d.number(1, 999), d.number(1, 9999) / 10, d.number(100, 99999) / 100]))
QUOTED = 'called "#"|named "#"|titled "#"|with the @ "#"|@ "#"'
SAYS = 'saying "#"|with the @ "#"|that says "#"|containing "#"|which reads "#"|with "#" as @'

ROLES = [
    Role("name person customer owner user client employee member guest patient student assignee contact driver author", "string", lambda d: d.name(), "[The|Name of the] person", "for #|of #|for the @ #|of the @ #"),
    Role("full_name customer_name author_name holder", "string", lambda d: d.full_name(), "[First and last name|Full name]", "for #|of #|by #"),
    Role("to recipient receiver addressee", "string", lambda d: d.name(), "[Who gets it|The receiver]", "to #|addressed to #"),
    Role("city town place location where site branch region", "string", lambda d: d.city(), "[The|Name of the] [city|place]", "in #|at #|near #|for #"),
    Role("from origin start source from_city departure", "string", lambda d: d.city(), "Where it [starts|begins]", "from #|starting in #|leaving from #"),
    Role("to destination target end to_city arrival", "string", lambda d: d.city(), "Where it [ends|goes]", "to #|going to #|bound for #"),
    Role("country nation land market", "string", from_section("country"), "The country", "in #|for #|from #"),
    Role("date day on when due deadline due_date start_date", "string", lambda d: d.iso_date(), "Date[ as YYYY-MM-DD| (YYYY-MM-DD)|]", "on #|for #|dated #|by #"),
    Role("time at start_time hour clock", "string", clock, "[Time|Clock time][ as HH:MM|]", "at #|for #"),
    Role("weekday day_of_week day", "string", from_section("day"), "Day of the week", "on #|every #|for #"),
    Role("month", "string", from_section("month"), "[The|Name of the] month", "in #|for #"),
    Role("count quantity copies pieces limit how_many units", "integer", number_of(1, 500), "[How many|Number of pieces]", "# times|, # of them,|, # in all,|(# pieces)"),
    Role("people guests persons seats party_size", "integer", number_of(1, 40), "[How many people|Number of people]", "for # people|for # persons|with # guests"),
    Role("id number record_id ref key index item_id", "integer", number_of(1, 999999), "[Identifier|The id|Number of the record]", "with id #|number #|no. #|with the number #|#"),
    Role("code id token reference serial sku ticket_id", "string", lambda d: d.code(), "[Identifier|The code|Reference]", "with the code #|#|(#)|under #|with @ #"),
    Role("color colour paint", "string", from_section("color"), "[The color|Color]", "in #|colored #"),
    Role("material fabric", "string", from_section("material"), "[The material|Material]", "made of #|out of #|in #"),
    Role("path file filename file_path source_file", "string", lambda d: d.path(), "[Path of the file|File name]", "from the file #|from #|with the file #"),
    Role("email mail address email_address", "string", lambda d: d.email(), "E-mail address", "to #|for #|with the address #"),
    Role("url link page website", "string", lambda d: d.url(), "[Address of the page|The URL]", "from #|at #|with the link #"),
    Role("price amount budget cost max_price value fee", "number", money, "[The amount|Amount|Price][ in euros|]", "for # euros|for # dollars|at a price of #|worth #|for at most #"),
    Role("weight kg weight_kg mass", "number", lambda d: neat(d.pick([d.number(1, 99), d.number(1, 999) / 10])), "[Weight|Weight in kg]", "of # kg|weighing # kg"),
    Role("percent rate share level discount volume intensity", "integer", number_of(0, 100), "[Percent|From 0 to 100]", "at # percent|with # percent|by # percent|to # percent"),
    Role("minutes duration duration_minutes length", "integer", number_of(1, 240), "[Minutes|Duration in minutes]", "for # minutes|lasting # minutes|of # minutes"),
    Role("days num_days nights", "integer", number_of(1, 30), "[Number of days|How many days]", "for # days|over # days|during # days"),
    Role("hours num_hours", "number", lambda d: neat(d.pick([d.number(1, 48), d.number(3, 99) / 2])), "[Hours|Number of hours]", "for # hours|lasting # hours"),
    Role("text note comment content body description reason remark notice", "string", text_of, "[The text|Text to use|Content]", SAYS, quoted=True),
    Role("title subject heading caption", "string", lambda d: d.title(), "[Title|The title]", QUOTED, quoted=True),
    Role("label tag word term keyword group category folder project team channel queue list", "string", lambda d: d.any_word(), "[A word|The word|Which one]", "in the @ #|with the @ #|under the @ #|for the @ #"),
    Role("query search q filter terms", "string", lambda d: d.pick([d.any_word(), f"{d.word('adjective')} {d.word('noun')}", f"{d.any_word()} {d.any_word()}"]), "[What to look for|Search terms]", 'matching "#"|for "#"|with the @ "#"', quoted=True),
    Role("language lang", "string", from_section("language"), "[The language|Language]", "in #"),
    Role("animal pet species", "string", from_section("animal"), "[The animal|Kind of animal]", "for the #|with a #"),
    Role("food dish meal ingredient", "string", from_section("food"), "[The dish|Food]", "with #"),
    Role("job role profession position", "string", from_section("job"), "[The job|Profession]", "as a #|as #"),
    Role("phone phone_number mobile telephone", "string", lambda d: d.digits(3) + "-" + d.digits(4), "Phone number", "with the phone number #|at #"),
    Role("temperature degrees threshold offset score factor ratio", "number", lambda d: neat(d.pick([d.number(-30, 60), d.number(1, 999) / 10])), "[A number|The value]"),
    Role("width height depth size radius x y row column", "integer", number_of(0, 999), "[A whole number|The value]"),
    Role("lat latitude lon longitude", "number", lambda d: neat(d.number(-1790000, 1790000) / 10000), "Coordinate"),
    Role("priority urgency severity", "string", None, "[How important it is|Priority]", "with # @|as # @", enum=["low", "medium", "high"]),
    Role("mode style format variant kind type class plan tier method", "string", None, "[One of the choices|Which one]", "in # @|with # as @|with the @ #", enum=[]),
    Role("urgent public private silent recursive visible shared express insured hidden active locked loud", "boolean", lambda d: d.chance(0.5), "[Whether it is so|Yes or no|On or off]", "!"),
    Role("people guests members names attendees participants players", "array", lambda d: d.names(d.range(1, 4)), "[Names|People]", "for #|with #", items="string"),
    Role("tags labels items words keywords things parts", "array", lambda d: [d.any_word() for _ in range(d.range(1, 4))], "[Items|List of words]", "with the @ #", items="string"),
    Role("numbers values ids scores data points", "array", lambda d: [d.number(0, 999) for _ in range(d.range(2, 5))], "[Numbers|The values]", "with the @ #", items="integer"),
    Role("address options details config contact_data settings", "object", None, "[Details|More data]", fields=True),
]
FIELD_NAMES = ["name", "city", "code", "size", "color", "street", "count", "owner", "level", "label", "year"]
FIELD_DRAWS = {"name": ("string", lambda d: d.name()), "city": ("string", lambda d: d.city()), "code": ("string", lambda d: d.code()), "size": ("integer", number_of(1, 999)), "color": ("string", from_section("color")), "street": ("string", lambda d: f"{d.word('last')} Street {d.number(1, 99)}"), "count": ("integer", number_of(1, 99)),
               "owner": ("string", lambda d: d.name()), "level": ("integer", number_of(1, 50)), "label": ("string", lambda d: d.any_word()), "year": ("integer", number_of(1950, 2035))}

# (verbs in tool names, verbs in descriptions, verbs of users, questions and wishes that need no verb); {o} is the thing.
ACTIONS = [
    ("get fetch show lookup find load retrieve view inspect", "Get|Return|Fetch|Show|Look up|Retrieve|Returns|Gets", "show me|get|fetch|look up|give me|find|pull up|bring me|get me|display|retrieve|check", "I need {o}|What is {o}?|What do we know about {o}?|Let me see {o}|I want to see {o}|Where is {o}?|What about {o}?|Tell me about {o}|I am looking for {o}|Is there {o}?|Do we have {o}?"),
    ("create add make new save insert register open", "Create|Add|Make|Save|Register|Creates|Adds", "create|add|make|set up|save|register|enter|open|put in|record", "I need a new entry: {o}|There should be {o}|We want {o}|New: {o}|Let there be {o}|Put down {o}|{o} has to be added"),
    ("delete remove drop erase cancel clear discard", "Delete|Remove|Erase|Cancel|Deletes|Removes", "delete|remove|erase|get rid of|cancel|throw away|drop|take away|discard", "I no longer need {o}|{o} has to go|{o} can go|We do not want {o} any more|No more of {o}|Out with {o}"),
    ("send post submit forward deliver dispatch share", "Send|Post|Submit|Forward|Deliver|Sends", "send|post|submit|forward|deliver|pass on|share|hand over", "{o} must be sent|I want {o} to be delivered|{o} should go out"),
    ("set change update edit modify adjust", "Set|Change|Update|Edit|Adjust|Updates", "set|change|update|edit|adjust|modify|alter|correct", "{o} needs a change|I want {o} changed|{o} must be updated"),
    ("start run launch begin trigger execute", "Start|Run|Launch|Begin|Starts|Runs", "start|run|launch|begin|kick off|trigger|fire up|turn on", "{o} should run|Let {o} begin|I want {o} running|Time for {o}"),
    ("stop end halt pause abort close", "Stop|End|Halt|Pause|Close|Stops", "stop|end|halt|pause|close|shut down|turn off|finish", "{o} must stop|Enough of {o}|I want {o} to end|No more {o}"),
    ("book reserve order buy rent request hire", "Book|Reserve|Order|Buy|Rent|Orders", "book|reserve|order|buy|rent|get me|request|hire", "I would like {o}|We need {o}|I want to have {o}|One {o}, please|I am going to need {o}"),
    ("check test verify validate audit monitor", "Check|Test|Verify|Validate|Checks|Tests", "check|test|verify|validate|look at|examine|inspect", "Is {o} all right?|Is {o} fine?|How is {o}?|Does {o} work?|What is wrong with {o}?"),
    ("count measure estimate compute calculate", "Count|Measure|Estimate|Compute|Calculates", "count|measure|estimate|compute|work out|figure out", "How much is {o}?|How large is {o}?|I need a figure for {o}"),
    ("move ship transfer carry transport", "Move|Ship|Transfer|Carry|Moves", "move|ship|transfer|carry|bring|take|transport", "{o} has to be moved|I want {o} somewhere else"),
    ("print export download render publish", "Print|Export|Download|Render|Publish|Prints", "print|export|download|render|publish|put out", "I want {o} on paper|I need a copy of {o}"),
    ("assign give hand grant allocate", "Assign|Give|Grant|Allocate|Assigns", "assign|give|grant|allocate|hand out|award", "{o} should be given out|Somebody must get {o}"),
    ("schedule plan arrange prepare", "Schedule|Plan|Arrange|Prepare|Plans", "schedule|plan|arrange|prepare|organize|set up", "I want to have {o}|There will be {o}"),
    ("list search query browse filter", "List|Search|Query|Filter|Lists", "list|search|show|browse|go through|find", "Which are {o}?|What are {o}?|I need {o}|I want to see {o}|Are there {o}?"),
    ("repair clean paint wash feed fix", "Repair|Clean|Fix|Take care of", "repair|clean|fix|take care of|look after|see to", "{o} is broken|{o} needs care|Somebody must see to {o}"),
]
THINGS = ("invoice order ticket account report contract booking parcel car truck bus train room door window lamp camera printer machine server job backup database table chart map photo video song movie book letter poster form survey exam lesson course class ticket seat desk garden tree plant dog cat cow horse bird "
          "cake coffee soup pizza dinner lunch patient doctor visit flight trip tour hotel hike bike boat ship engine pump valve sensor signal alarm robot drone game match score team player league club member payment refund loan fee tax budget salary product price discount coupon voucher store shop shelf box bag container "
          "package delivery branch office meeting call interview talk concert party wedding event project sprint bug release build test page article comment review profile badge license permit passport visa key lock gate elevator heater fan oven fridge washer vacuum radio speaker playlist channel podcast recipe menu "
          "survey quiz vote poll petition donation gift album gallery painting statue museum zoo farm field harvest well river bridge road tunnel tower castle church school library lab sample dose vaccine pill diet workout run swim session cluster node disk volume snapshot image container queue topic stream pipeline model "
          "dataset index record row column cell sheet budget ledger policy claim case court judge law rule alert warning incident outage rocket satellite planet star telescope antenna battery charger cable screen keyboard mouse phone tablet watch ring necklace coat shoe shirt hat tent ladder hammer saw drill nail brush").split()
SAME = {"invoice": "bill", "parcel": "package", "photo": "picture", "car": "vehicle", "trip": "journey", "movie": "film", "shop": "store", "salary": "pay", "road": "street", "coat": "jacket", "bug": "defect", "gift": "present", "room": "chamber", "boat": "ship", "report": "summary", "job": "run", "dinner": "meal", "exam": "test", "fee": "charge", "alarm": "siren", "form": "sheet", "phone": "handset", "member": "user"}
HELD_THINGS = sorted({t for t in THINGS if held_word(t)})
KNOWN_THINGS = sorted({t for t in THINGS if not held_word(t)})
# {v} is verb and thing with what belongs to them.
FRAMES = ["{v}.", "{v}", "Please {v}.", "Can you {v}?", "Could you {v}?", "I want you to {v}.", "I'd like you to {v}.", "{v}, please.", "Would you {v}?", "We need to {v}.", "Go ahead and {v}.", "Now {v}.", "Help me: {v}.", "I have to {v}.", "Let's {v}.", "Will you {v}?", "You should {v}.", "Try to {v}.", "Kindly {v}.", "Next, {v}.", "My boss asks me to {v}.",
          "{v} for me.", "Can you please {v}?", "Could you please {v}?", "It is time to {v}.", "I need you to {v}.", "Quickly {v}!", "{v} now.", "OK, {v}.", "I must {v}.", "Is it possible to {v}?", "Do me a favor: {v}.", "The plan is to {v}.", "Somebody wants to {v}.", "Use {n} to {v}.", "Use {n}: {v}.", "Call {n} and {v}.", "With {n}, {v}.", "Be so kind and {v}.", "How about you {v}?",
          "I want to {v}.", "I would like to {v}.", "May I ask you to {v}?", "First of all, {v}.", "{v}!", "Hey, {v}.", "Hi, can you {v}?", "Hello! Please {v}.", "Are you able to {v}?", "Just {v}."]
BARE = ["Call {n}", "Use {n}", "Run {n}", "Call the tool {n}", "Use the function {n}", "{n}", "Please call {n}", "Execute {n}", "Make a call to {n}", "I want {n} called", "Invoke {n}", "Can you run {n}"]
# Between two requests of one message; the second kind goes on in small letters.
JOINTS = [". ", ". Then ", ". Also, ", ". After that, ", ". And ", "; then ", "; ", "; also ", "\n", ". Next, ", ". Finally, ", ", then ", " and then ", " and ", ", and ", " and also ", ". At the same time, ", ". Moreover, ", " as well as this: ", ". Besides, ", ". In addition, ", ". Second: ", ".\nThen ", ". Once more: "]
ALL = ["", "", "", "", "", " Both at once.", " In parallel, please.", " Do it all at once.", " One call each.", " Make the calls together."]


def side(options: list, held: bool) -> list:
    """About one in nine of a list is held out, and none of its first four."""
    return [o for i, o in enumerate(options) if (i > 3 and zlib.crc32(o.encode()) % 9 == 0) == held]


SIDES = {name: (side(options, False), side(options, True)) for name, options in (("frames", FRAMES), ("bare", BARE), ("joints", JOINTS))}
