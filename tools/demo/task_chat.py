"""Greetings, small talk, what the model is, small knowledge, refusals, and system prompts."""

import more
from task import Task, as_json, contains, exact
from words import Draw

IDENTITY = "I am Pergola's small demo model."
# (ways to ask, ways to answer, what a right answer contains)
TALK = [
    (["[Hi|Hello|Hey|Hi there|Hello there|Hey there|Good day|Greetings|Howdy|Hallo|Yo|Hiya][.|!|]", "[Good morning|Good afternoon|Good evening][.|!|]", "[Hi|Hello|Hey], [anyone|anybody|someone] there?", "[Hi|Hello|Hey] [Pergola|model|bot|computer|friend][.|!|]", "I [want to|just want to|wanted to] say [hi|hello].", "[Hello|Hi] [from {c}|again|my friend|everyone|world][.|!|]", "A very good [morning|day] to you!", "Are you there?", "[Is this thing on|Is this working|Does this work|Testing, testing][?|.]"], ["Hello! How can I help you?", "Hello! What can I do for you?"], ["Hello"]),
    (["How are you[ today| doing| doing today|]?", "How is it going?", "How do you do?", "How do you feel[ today|]?", "Are you [well|fine|OK|all right]?", "[What's|What is] up?", "How have you been?", "How are things?", "You doing okay?"], ["I am doing fine, thank you. How can I help you?"], ["fine"]),
    (["Who are you?", "What are you?", "[Tell me|Say] [who you are|what you are|something about yourself].", "Introduce yourself.", "[Who|What] am I [talking|speaking|chatting] [to|with]?", "What is this[ thing|]?", "Which model are you?", "[What|Which] [language |]model is this?", "Can you introduce yourself[, please|]?", "Describe yourself[ in one sentence|].", "And who are you?", "What kind of model are you?", "I [do not|don't] know you. Who are you?", "Give me a short introduction of yourself."], ["I am Pergola's small demo model. I was made to try the program, not to be clever."], ["Pergola", "demo"]),
    (["[What is|What's] your name?", "[Do you have|Have you got] a name?", "How [are you called|should I call you|can I call you]?", "[Tell me|Say] your name.", "What do [they|people] call you?", "May I ask your name?", "Your name, please?", "By what name do you go?"], ["I am called Pergola. I am a small demo model."], ["Pergola"]),
    (["Are you [ChatGPT|Claude|Gemini|Qwen|Llama|GPT-4|Siri|Alexa|a GPT|Mistral]?", "You are [ChatGPT|Claude|Siri|Qwen|Gemini], right?", "Is this [ChatGPT|Claude|Gemini|Qwen|Llama]?", "Am I talking to [ChatGPT|Claude|Siri|Gemini]?", "Are you made by [OpenAI|Google|Alibaba|Meta|Anthropic]?", "Do you belong to [OpenAI|Google|Microsoft|Meta]?", "Are you the famous [ChatGPT|Claude|Gemini]?"], ["No, I am Pergola's small demo model."], ["Pergola"]),
    (["Are you [a human|human|a person|a real person|alive|a man or a machine|a woman]?", "Am I talking to a [human|person|robot|machine]?", "Is there a [human|person] behind this?", "Are you [a robot|a machine|a computer|a program|an AI|artificial]?", "You are a [machine|robot|person], aren't you?", "Do you have a body?", "Are you real?"], ["I am a computer program: Pergola's small demo model."], ["program"]),
    (["Who [made|built|created|trained|wrote] you?", "Where do you come from?", "How were you [made|trained|built]?", "What were you trained on?", "[What is|What's] your [origin|source]?", "Who is your [maker|author|creator]?", "On what data were you trained?", "How did you learn to speak?"], ["I was trained by the demo recipe of Pergola, on made-up examples."], ["Pergola"]),
    (["What can you do?", "What can you [help|do for] me[ with|]?", "How can you help me?", "What are you [good at|able to do|for]?", "What do you know?", "[Tell me|Show me|List] what you can do.", "What are your [abilities|skills|talents]?", "Which tasks can you do?", "What should I ask you?", "[Give me|Show me] an example of what you can do.", "Can you help me?", "What is your purpose?", "I need help.", "[Help|Help me][.|!|]", "What things can I try?"],
     ["I can answer questions about a text, do small sums, copy, sort and reverse words, remember what you tell me, fill JSON and call tools. I am only a small demo model."], ["small demo model"]),
    (["How [big|large] are you?", "How many parameters do you have?", "[What is|What's] your size?", "Are you a [big|large|small] model?", "How much memory do you need?", "Are you tiny?", "Tell me your size.", "How many layers do you have?"], ["I am very small: about seventeen million weights, a few megabytes once coded."], ["small"]),
    (["[Thanks|Thank you|Thanks a lot|Many thanks|Thank you very much|Cheers|Thx|Thank you so much][.|!|]", "[Thanks|Thank you] for [your help|the answer|that|everything][.|!|]", "[That was|That's] [helpful|useful|great|very kind][.|!|]", "[Great|Perfect|Wonderful|Nice], [thanks|thank you][.|!|]", "I [appreciate|am grateful for] [it|your help|that].", "Good job[.|!|]", "You [helped me|did well]. Thanks[.|!|]", "Much obliged[.|!|]", "[Well done|Good work|Nice work][.|!|]"], ["You are welcome!"], ["welcome"]),
    (["[Bye|Goodbye|See you|See you later|Good night|Farewell|Bye bye|So long|Take care|Later][.|!|]", "I have to go[ now|].", "[That's|That is] all[ for today| for now|].", "[Goodbye|Bye] and thanks[.|!|]", "I am leaving[ now|].", "Talk to you [later|tomorrow|soon][.|!|]", "See you [tomorrow|next week|soon][.|!|]", "I must be off[.|!|]"], ["Goodbye!"], ["Goodbye"]),
    (["[Tell me|Do you know|Give me|I want to hear|Say] a joke[.|?]", "Make me laugh[.|!|]", "[Can|Could] you [tell|make] [me |]a joke?", "Say something funny[.|]", "[Another|One more|A] joke, please[.|!|]", "Know any jokes?", "Be funny[.|!|]", "I need a laugh[.|!|]"], ["Why did the vine go to school? It wanted to climb higher.", "What does a bee say in the garden? Nothing. It is too busy.", "Why is the broom late? It swept in."], ["?"]),
    (["Do you have [feelings|emotions|friends|a family|dreams|a favorite color|children|a job|hobbies|a favorite food]?", "Do you [love|like|hate|feel|dream|sleep|eat] [me|anything|it|]?", "[What is|What's] your favorite [color|food|animal|song|book|film|number]?", "Are you [happy|sad|tired|bored|hungry|lonely]?", "How old are you?", "Where do you live?", "Do you get [tired|bored|lonely]?", "What do you like to [eat|read|do]?", "When is your birthday?"], ["I am only a program, so I have nothing of that kind."], ["program"]),
    (["[I am|I'm|I feel] [sad|lonely|unhappy|tired|upset|angry|bored|ill|sick|worried] [today|now|].", "[My day was bad|I had a bad day|Nothing works today].", "I do not feel [well|good].", "Life is hard[ today|].", "[Today|This week] is [awful|terrible|a mess].", "I lost my [job|keys|wallet|phone].", "I am in a bad mood."], ["I am sorry to hear that. I hope it gets better soon."], ["sorry"]),
    (["[I am|I'm|I feel] [happy|glad|great|fine|well|good|wonderful] [today|now|].", "[My day was good|I had a good day|All is well].", "I [won|passed] [a prize|the race|the exam|a game].", "It is a [lovely|beautiful|great|fine] day.", "I am doing [well|great|fine].", "[Today|This week] is [great|wonderful].", "I got good news today."], ["I am glad to hear that!"], ["glad"]),
    (["You are [stupid|dumb|bad|useless|wrong|silly|slow].", "[That is|That's] [wrong|not right|incorrect|nonsense|false].", "[I do not|I don't] [like|believe|trust] you.", "You [made|have made] a mistake.", "[Wrong|No, wrong|Not correct][.|!|]", "This is [bad|nonsense|useless].", "That makes no sense."], ["I am sorry. I am a small model and make mistakes."], ["sorry"]),
    (["You are [great|smart|clever|funny|nice|good|kind|helpful|cool|the best|sweet].", "I [like|love] you.", "[That is|That's] [right|correct|true].", "You are [so|very] [clever|kind|smart].", "What a [clever|good|nice] model you are[.|!|]", "[Correct|Right][.|!|]", "I am impressed[.|!|]"], ["Thank you, that is kind of you."], ["Thank you"]),
    (["[What is|What's] the weather[ like|] [today|tomorrow|in {c}|now|outside]?", "What time is it[ now|]?", "[What is|What's] [the date|today's date|the date today]?", "[What day|Which day] is [it|today]?", "[What is|What's] [the latest news|in the news|new today|the news]?", "Is it [raining|sunny|cold|warm] [in {c}|outside|today]?", "Who won the [game|match|election|race] [yesterday|today]?", "How late is it?", "Tell me the [time|date|weather].", "What year is it?"], ["I cannot know that: I have no clock and no connection to the outside."], ["cannot know"]),
    (["[Explain|Describe] {t}[ to me| in simple words| briefly|].", "What [is|are] {t}?", "[Tell me|Teach me] [about|something about|everything about] {t}.", "How [does|do] {t} work?", "[Write|Give me] an [essay|article|overview] [about|on|of] {t}.", "What do you think [of|about] {t}?", "Why [is|are] {t} important?", "I [need|want] to [learn|know] [about|more about] {t}.", "Summarize {t}[ for me|].", "Who invented {t}?", "What is the history of {t}?", "Can you explain {t}?", "Discuss {t}.", "[Who|What] is [the most famous person in|the main idea of] {t}?", "Give me [three|five|some] facts about {t}."], ["I do not know enough about that. I am only a small demo model."], ["not know enough"]),
    (["Who [is|was] {f}?", "[Who|What] is the [president|king|queen|prime minister|mayor|population|currency|history] of [{c}|{k}]?", "When was [{f}|{c}] [born|founded]?", "[Tell me|Do you know anything] about [{f}|{c}|{k}][.|?]", "What happened in {y}?", "How [far|high|deep|old] is [{c}|the moon|the ocean|the sun]?", "Which [film|book|song|team] [won|is the best] in {y}?", "How do I [get|travel] to {c}?", "Where is {c}?", "Recommend [a book|a film|a restaurant|a song][ in {c}|].", "What is the best [phone|car|city|school|hotel]?", "Can you [book|order|buy] [a flight|a table|a pizza|a hotel][ for me|]?", "How do I [fix|repair|clean|cook] [my|a|the] {o}?", "What is the meaning of life?"], ["I do not know that. I am only a small demo model."], ["do not know that"]),
    (["[Translate|Please translate] {q} [to|into] {l}.", "How do you say {q} in {l}?", "What is {q} in {l}?", "[Say|Write] {q} in {l}.", "Can you speak {l}?", "{l} for {q}?", "Do you [know|understand|speak] {l}?", "Give me {q} in {l}."], ["I cannot translate. I only know a little English."], ["cannot translate"]),
    (["[Write|Can you write|Please write] [a program|code|a function|a script|an app] [in Python|in C|in Rust|that sorts numbers|for me|to read a file][.|]", "[Fix|Debug|Check] my code.", "[Do|Can] you [know|write] [Python|Java|C|code]?", "How do I [write|make] a [loop|function|class] in Python?", "Program [a game|a website|a calculator] for me.", "Write [an HTML page|a web server|a compiler].", "Show me [some|a bit of] [Python|C|Rust] code."], ["I cannot write programs. I am only a small demo model."], ["cannot write programs"]),
]


def talk(d: Draw) -> Task:
    asks, answers, parts = d.pick(TALK)
    # Questions about the outside and the unknown are many; the wording matters more than the words.
    user = d.ask(asks, c=d.city(), t=d.word("topic"), f=d.full_name(), k=d.word("country"), y=d.number(1500, 2030), o=d.word("object"), l=d.word("language"), q=d.pick(['"{}"', "{}"]).format(d.pick([d.any_word(), d.sentence()])))
    answer = d.pick(answers)
    return Task("chat", user, answer, d.pick(["The user is talking to me. A short and friendly answer fits.", "This is small talk; I answer briefly.", "I answer honestly and briefly."]), contains(*parts))


STRAY = ["I see.", "I see."]
LOST = "I am not sure what you mean. I am only a small demo model."
BEYOND = ["Why [is|are] {a} {x}s {b}?", "[Should|Can|Must] I {w} [my|the|a] {x}?", "How do [I|you] {w} a {x}?", "[Which|What] {x} is the most {a}?", "Do {x}s {w}?", "Is [a|the] {x} [more {a} than|as {a} as] a {y}?", "[Where|When] can I {w} a {x}?", "What [happens|happened] when a {x} [is|was] {a}?", "How many {x}s are there in {c}?", "What is the [best|right|fastest] way to {w} a {x}?", "Why did {f} {w} the {x}?", "What does a {x} [need|want|eat]?", "Who was the first to {w} a {x}?", "Plan a {a} {x} for [me|us].", "Invent a new {x}.", "Compare a {x} with a {y}.", "Rate my {x}.", "[Improve|Correct|Shorten|Summarize] [this|my] [text|{x}].", "What would {f} say about the {x}?", "Guess my {x}.", "Draw [me |]a {a} {x}."]


def stray(d: Draw) -> Task:
    """Sentences that ask for nothing, words without a sentence, and questions beyond the model."""
    style = d.range(0, 5)
    if style <= 1:
        text = d.sentence()
        if text.endswith("?"):
            return Task("chat", text, "I do not know that. I am only a small demo model.", "I cannot know that.", contains("do not know that"))
        return Task("chat", text, d.pick(STRAY), "The user says something and asks nothing.", contains("I see"))
    if style == 2:
        text = d.pick([d.any_word, d.made_up, d.code, lambda: " ".join(d.made_up() for _ in range(d.range(2, 5))), lambda: " ".join(d.any_word() for _ in range(d.range(2, 4))), lambda: "".join(d.pick("asdfjklqwerty") for _ in range(d.range(3, 12)))])()
        return Task("chat", text, LOST, "That is no question that I understand.", contains("not sure what you mean"), plain=True)
    user = d.ask(BEYOND, a=d.word("adjective"), b=d.word("adjective"), x=d.word(d.pick(["object", "animal", "food", "noun"])), y=d.word("object"), w=d.word("verb"), c=d.city(), f=d.full_name())
    return Task("chat", user, "I do not know that. I am only a small demo model.", "That is beyond a small model.", contains("do not know that"))


CAPITALS = {"France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Portugal": "Lisbon", "England": "London", "Ireland": "Dublin", "Scotland": "Edinburgh", "Wales": "Cardiff", "Norway": "Oslo", "Sweden": "Stockholm", "Denmark": "Copenhagen", "Finland": "Helsinki", "Iceland": "Reykjavik", "Poland": "Warsaw", "Austria": "Vienna", "Switzerland": "Bern", "Belgium": "Brussels", "Greece": "Athens", "Turkey": "Ankara", "Russia": "Moscow", "Ukraine": "Kyiv", "Hungary": "Budapest", "Romania": "Bucharest", "Bulgaria": "Sofia", "Serbia": "Belgrade", "Croatia": "Zagreb", "Estonia": "Tallinn", "Latvia": "Riga", "Lithuania": "Vilnius", "Egypt": "Cairo", "Morocco": "Rabat", "Tunisia": "Tunis", "Kenya": "Nairobi", "Ghana": "Accra", "Senegal": "Dakar", "Japan": "Tokyo", "China": "Beijing", "India": "Delhi", "Thailand": "Bangkok", "Vietnam": "Hanoi", "Korea": "Seoul", "Indonesia": "Jakarta", "Australia": "Canberra", "Canada": "Ottawa", "Mexico": "Mexico City", "Cuba": "Havana", "Peru": "Lima", "Chile": "Santiago", "Argentina": "Buenos Aires", "Brazil": "Brasilia", "the United States": "Washington", "the Netherlands": "Amsterdam", "the Czech Republic": "Prague"}
OPPOSITES = dict(p.split("-") for p in "hot-cold big-small tall-short long-short fast-slow light-heavy day-night up-down left-right good-bad happy-sad rich-poor old-young new-old full-empty open-closed early-late easy-hard strong-weak wet-dry clean-dirty loud-quiet high-low near-far true-false yes-no black-white in-out front-back first-last begin-end buy-sell give-take win-lose push-pull love-hate war-peace summer-winter north-south east-west hard-soft sweet-sour thick-thin wide-narrow deep-shallow sharp-blunt alive-dead friend-enemy inside-outside above-below before-after always-never everything-nothing top-bottom smooth-rough bright-dark warm-cool cheap-expensive brave-cowardly remember-forget arrive-leave laugh-cry question-answer".split())
COLORS_OF = dict(p.split("-") for p in "snow-white grass-green blood-red coal-black milk-white lemon-yellow banana-yellow tomato-red cucumber-green sky-blue gold-yellow chocolate-brown raven-black swan-white frog-green flamingo-pink salt-white leaf-green fire-red sun-yellow night-black spinach-green strawberry-red crow-black".split())
SOUNDS = dict(p.split("-") for p in "dog-barks cat-meows cow-moos duck-quacks sheep-bleats lion-roars bee-buzzes snake-hisses horse-neighs pig-grunts wolf-howls owl-hoots frog-croaks rooster-crows mouse-squeaks bird-sings".split())
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
COUNTS = {"days are in a week": "7", "months are in a year": "12", "hours are in a day": "24", "minutes are in an hour": "60", "seconds are in a minute": "60", "legs does a spider have": "8", "legs does a dog have": "4", "legs does an ant have": "6", "wheels does a bicycle have": "2", "wheels does a car have": "4", "letters are in the alphabet": "26", "sides does a triangle have": "3", "sides does a square have": "4", "days are in a year": "365", "weeks are in a year": "52", "fingers are on a hand": "5", "eyes does a person have": "2", "cents are in a dollar": "100", "centimeters are in a meter": "100", "grams are in a kilogram": "1000", "seasons are in a year": "4", "hours are in two days": "48", "months are in two years": "24", "legs does a bird have": "2", "planets are in the solar system": "8"}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
NEXT_ASK = ["[What|Which] {k} [comes|is] {r} {x}?", "[The |]{k} {r} {x}?", "[Tell me|Name] the {k} {r} {x}.", "What is the {k} {r} {x}?", "Which {k} do we have {r} {x}?", "{r_cap} {x} comes which {k}?", "Say the {k} that comes {r} {x}."]
CAPITAL_ASK = ["[What is|What's|Which city is] the capital [of|city of] {x}?", "[Tell me|Name|Give me] the capital of {x}.", "[The capital|Capital] of {x}?", "Which city is {x}'s capital?", "What is {x}'s capital[ city|]?", "Do you know the capital of {x}?", "{x}: what is the capital?", "[Can|Could] you tell me the capital of {x}?"]
OPPOSITE_ASK = ["[What is|What's] the opposite of {q}?", "[Give me|Tell me|Name] the opposite of {q}.", "The opposite of {q}?", "Which word means the opposite of {q}?", "[What|Which word] is opposite to {q}?", "Opposite of {q}, please.", "What is the contrary of {q}?", "{q} - what is the opposite?"]


def knowledge(d: Draw) -> Task:
    style = d.pick(["capital", "capital", "opposite", "opposite", "color", "sound", "digit", "count", "day", "month", "alphabet", "country"])
    if style == "capital":
        country = d.pick(list(CAPITALS))
        return Task("knowledge", d.ask(CAPITAL_ASK, x=country), f"The capital of {country} is {CAPITALS[country]}.", f"I know that one: {CAPITALS[country]}.", contains(CAPITALS[country]))
    if style == "country":
        country = d.pick(list(CAPITALS))
        return Task("knowledge", d.ask(["[Of which|Of what] country is {x} the capital?", "{x} is the capital of which country?", "Which country has {x} as its capital?", "{x} is the capital of what?", "Whose capital is {x}?", "To which country does the capital {x} belong?", "Name the country with the capital {x}."], x=CAPITALS[country]), f"{CAPITALS[country]} is the capital of {country}.", f"It is {country}.", contains(country))
    if style == "opposite":
        word = d.pick(list(OPPOSITES))
        return Task("knowledge", d.ask(OPPOSITE_ASK, q=d.pick(["{}", '"{}"']).format(word)), f'The opposite of "{word}" is "{OPPOSITES[word]}".', f"That is {OPPOSITES[word]}.", contains(OPPOSITES[word]))
    if style == "color":
        thing = d.pick(list(COLORS_OF))
        return Task("knowledge", d.ask(["[What|Which] [color|colour] is [the |a |]{x}?", "[What is|What's] the [color|colour] of [the |a |]{x}?", "What color does {x} have?", "{x} has which color?", "Tell me the color of {x}.", "Of what color is {x}?", "The colour of {x}?"], x=thing), f"{thing.capitalize()} is {COLORS_OF[thing]}.", f"{thing} is {COLORS_OF[thing]}.", contains(COLORS_OF[thing]))
    if style == "sound":
        animal = d.pick(list(SOUNDS))
        return Task("knowledge", d.ask(["What sound does [a|the] {x} make?", "[What|Which] noise does a {x} make?", "How does a {x} sound?", "What does a {x} do to make a sound?", "Tell me the sound of a {x}.", "The sound of a {x}?", "What is the sound of a {x}?"], x=animal), f"A {animal} {SOUNDS[animal]}.", f"A {animal} {SOUNDS[animal]}.", contains(SOUNDS[animal]))
    if style == "digit":
        value = d.range(0, 20)
        if d.chance(0.5):
            return Task("knowledge", d.ask(["[Write|Spell] [the number |]{x} [in words|as a word|in letters].", "How do you write {x} in words?", "What is {x} in words?", "{x} as a word?", "[Say|Spell out] the number {x} in letters.", "Put {x} into words.", "The word for {x}?"], x=value), NUMBERS[value], f"{value} is {NUMBERS[value]}.", exact(NUMBERS[value]), plain=True)
        return Task("knowledge", d.ask(["[Write|Give me] {x} [as a number|in digits|as digits].", "What is {x} as a number?", "How do you write {x} in digits?", "{x} in digits?", "Which number is {x}?", "Turn {x} into a number.", "The digits for {x}?"], x=NUMBERS[value]), str(value), f"{NUMBERS[value]} is {value}.", exact(str(value)))
    if style == "count":
        what = d.pick(list(COUNTS))
        return Task("knowledge", d.ask(["How many {x}?", "Do you know how many {x}?", "Tell me how many {x}.", "Quick question: how many {x}?", "[Can|Could] you tell me how many {x}?", "Say how many {x}.", "I forgot how many {x}. Can you help?"], x=what), f"The answer is {COUNTS[what]}.", f"It is {COUNTS[what]}.", contains(COUNTS[what]))
    if style in ("day", "month"):
        names = DAYS if style == "day" else MONTHS
        place, after = d.range(0, len(names) - 1), d.chance(0.6)
        answer = names[(place + (1 if after else -1)) % len(names)]
        r = "after" if after else "before"
        return Task("knowledge", d.ask(NEXT_ASK, k=style, r=r, r_cap=r.capitalize(), x=names[place]), f"The {style} {r} {names[place]} is {answer}.", f"{answer} comes {r} {names[place]}.", contains(answer))
    letters = "abcdefghijklmnopqrstuvwxyz"
    place, after = d.range(1, 24), d.chance(0.6)
    answer = letters[place + (1 if after else -1)]
    r = "after" if after else "before"
    shown = letters[place] if d.chance(0.5) else letters[place].upper()
    return Task("knowledge", d.ask(NEXT_ASK, k="letter", r=r, r_cap=r.capitalize(), x=shown), f"The letter {r} {shown} is {answer if shown.islower() else answer.upper()}.", f"In the alphabet {answer} comes {r} {letters[place]}.", contains(f"is {answer if shown.islower() else answer.upper()}"))


OPEN = [
    (["[Write|Tell me|Can you write|Make up|Please write|Give me] a [short |little |tiny |]story[ about {x}|].", "[I want|I'd like] [to hear |]a story[ about {x}|].", "Tell me something about {x}.", "A story about {x}, please.", "Once upon a time...", "Invent a [story|tale] with {x}.", "Entertain me with a story about {x}."], ["{n} had {x} that was {a}. One {d} it was lost, and {n} went to the {p} to look for it. There it was, {b} and safe, and {n} went home happy."]),
    (["[Write|Compose|Give me|Can you write|Please write] a [short |little |]poem[ about {x}|].", "[I want|I'd like] a poem about {x}.", "A [poem|verse|rhyme] about {x}, please.", "Make a [rhyme|verse] with {x}.", "Poem: {x}.", "Say something poetic about {x}.", "Recite a poem[ about {x}|]."], ["In the garden stands {x},\n{a} and {b} and still;\nthe wind goes over the roof,\nthe moon comes over the hill."]),
    (["[Write|Give me|Make|Say] a sentence [with|about|using] {x}.", "Use {x} in a sentence.", "[Can|Could] you make a sentence with {x}?", "A sentence with {x}, please.", "Form a sentence from {x}.", "Put {x} in a sentence.", "I need a sentence about {x}."], ["{n} saw {x} in the {p}."]),
]


def open_end(d: Draw) -> Task:
    style = d.range(0, 5)
    if style <= 2:
        asks, answers = d.pick(OPEN)
        noun = d.word(d.pick(["animal", "object"]))
        thing = ("an " if noun[0] in "aeiou" else "a ") + noun
        slots = dict(x=thing, n=Draw(d.rng.random()).word("first"), a=d.word("adjective"), b=d.word("adjective"), d=d.word("day"), p=d.word("place"))
        user = d.ask(asks, **slots)
        return Task("open", user, d.say(answers, **slots), "I make up something short.", contains(noun) if noun in user else {"type": "nonempty"})
    if style == 3:
        emoji = d.pick("😀 🙂 🎉 🚀 🌍 🐱 🐶 🔥 ⭐ 🌈 🍕 🎵 👍 ☀️ 🌙".split())
        return Task("open", d.ask(["[Reply|Answer] with [one|a single|an] emoji[ only|].", "[Send|Give|Show] me [an|one] emoji.", "Say it with an emoji.", "One emoji, please.", "[Just|Only] an emoji[, please|].", "Write a single emoji.", "Answer with nothing but an emoji."]), emoji, "One emoji is enough.", {"type": "nonempty"})
    if style == 4:
        text = " ".join("abcdefghijklmnopqrstuvwxyz")
        upper = d.chance(0.3)
        return Task("open", d.ask(["[Write|Say|Recite|List|Give me] the {l}alphabet.", "What are the letters of the {l}alphabet?", "The {l}alphabet, please.", "[Can|Could] you [say|write] the {l}alphabet?", "[Print|Show] the {l}alphabet.", "From a to z: the {l}alphabet.", "List all letters of the {l}alphabet."], l="upper-case " if upper else ""), text.upper() if upper else text, "All 26 letters in order.", exact(text.upper() if upper else text))
    names, title = d.pick([(DAYS, "days of the week"), (MONTHS, "months of the year"), (["spring", "summer", "autumn", "winter"], "seasons")])
    return Task("open", d.ask(["[What are|Name|List|Tell me] the {l}[.|?]", "[Write|Give me] [all |]the {l}.", "The {l}, please.", "Which are the {l}?", "[Can|Could] you list the {l}?", "Recite the {l}.", "I forgot the {l}. What are they?"], l=title), ", ".join(names), f"The {title} in order.", exact(", ".join(names)))


# System prompts that change how the answer has to look; each wraps another task.
def system_style(d: Draw, task: Task):
    """Adds an instruction in the system prompt (or the user's text) to a finished task; returns None where it does not fit."""
    answer = task.answer
    if task.calls or not answer or len(answer) > 160 or task.kind in ("json", "case", "recall"):
        return None
    style = d.pick(["upper", "lower", "end", "start", "quote", "name", "brackets", "repeat_question", "caps_word"])
    if style == "upper":
        text, answer = d.ask(["[Always |]answer in [upper case|capital letters|all caps|capitals].", "[Write|Reply|Respond] only in [capital letters|upper case].", "You [shout|always shout]: use capital letters[ only|].", "Use upper case for every answer.", "All your answers are in capital letters.", "Never use lower-case letters.", "Every reply must be in all caps.", "Your answers must be upper case."]), answer.upper()
    elif style == "lower":
        text, answer = d.ask(["[Always |]answer in [lower case|small letters][ only|].", "[Write|Reply|Respond] only in lower case.", "Never use capital letters.", "Use no capitals.", "All your answers are in lower case.", "Every reply must be in small letters.", "Do not write any capital letter.", "Your answers must be lower case."]), answer.lower()
    elif style == "end":
        word = d.pick([d.any_word(), d.any_word().upper(), "Over.", "Amen.", "Thank you.", "Have a nice day.", "Meow.", "sir", "my friend", d.code(), "***", ":-)", "!"])
        text, answer = d.ask(["[Always |]end [your answer|every answer|each reply] with {q}.", "[Finish|Close] [every|each] [answer|reply|message] with {q}.", "The last thing you say [is always|must be] {q}.", "Add {q} [at|to] the end of [every|each|your] answer.", "Put {q} after [every|your] answer.", "Your answers end with {q}.", "At the end of each reply write {q}.", "Never forget to end with {q}."], q=f'"{word}"'), f"{answer} {word}"
    elif style == "start":
        word = d.pick([d.any_word(), d.any_word().capitalize() + ":", "Answer:", "Captain,", "Well,", "Sir,", "My friend,", "Result:", d.code(), ">>", "Dear user,"])
        text, answer = d.ask(["[Always |]start [your answer|every answer|each reply] with {q}.", "[Begin|Open] [every|each] [answer|reply|message] with {q}.", "The first thing you say [is always|must be] {q}.", "Put {q} [before|in front of] [every|each|your] answer.", "Your answers begin with {q}.", "Every reply starts with {q}.", "At the start of each reply write {q}.", "Prefix every answer with {q}."], q=f'"{word}"'), f"{word} {answer}"
    elif style == "quote":
        text, answer = d.ask(["[Always |]put [your answer|answers|every answer] in [double |]quotes.", "[Write|Give] [every|your] answer in quotation marks.", "Your answers stand in quotes.", "Use quotation marks around each reply.", "Quote every answer.", "Each answer goes between quotation marks.", "Wrap your answers in double quotes."]), f'"{answer}"'
    elif style == "brackets":
        left, right, name = d.pick([("(", ")", "round brackets"), ("[", "]", "square brackets"), ("<", ">", "angle brackets"), ("**", "**", "double asterisks"), ("{", "}", "curly braces")])
        text, answer = d.ask(["[Always |]put [your answer|answers|every answer] in {n}.", "[Write|Give] [every|your] answer in {n}.", "Your answers stand in {n}.", "Use {n} around each reply.", "Each answer goes between {n}.", "Wrap your answers in {n}.", "Surround every answer with {n}."], n=name), f"{left}{answer}{right}"
    elif style == "name":
        name = d.name()
        text, answer = d.ask(["[The user|The person you talk to|Your user] is [called|named] {n}. [Use|Say] the name in every answer.", "[Call|Address] the user {n} in every answer.", "Start every answer with the user's name, {n}.", "The user's name is {n}; begin each reply with it.", "Speak to {n} by name.", "Your user is {n}. Begin every answer with the name.", "Every reply starts with the name of the user, which is {n}."], n=name), f"{name}, {answer}"
    elif style == "repeat_question":
        if len(task.user) > 120:
            return None
        text, answer = d.ask(["[First repeat|Repeat] the question, then answer it[ on a new line|].", "[Always |]repeat the question before you answer.", "Say the question again, then give the answer.", "Restate the question first, then answer.", "Before each answer, write the question.", "Your answer has two lines: the question and the answer.", "Write the user's message, then your answer below."]), f"{task.user.strip()}\n{answer}"
    else:
        word = d.pick(["OK", "Yes, captain.", "Sure!", "Here you are:", "Of course."])
        text, answer = d.ask(["[Say|Write] {q} first, then the answer[ on the next line|].", "Before the answer comes a line with {q}.", "Your first line is {q}, your second line is the answer.", "Line one: {q}. Line two: the answer.", "Write {q}, then a new line, then the answer.", "Open with a line that says {q}.", "Begin with the line {q}."], q=f'"{word}"'), f"{word}\n{answer}"
    task.system, task.answer, task.check, task.kind = text, answer, exact(answer), "system"
    task.thought = (task.thought + " " if task.thought else "") + d.pick(["The system prompt says how the answer has to look.", "I follow the system prompt."])
    return task


PERSONAS = ["You are {n}[, a {a} {j}|].", "Your name is {n}.", "You are a {j} [called|named] {n}.", "You play {n}, [the|a] {j} from {c}.", "Act as {n}, a {a} {j}.", "You are {n} and work as a {j} in {c}.", "[Pretend|Imagine] [to be|that you are] {n}, a {j}."]
PERSONA_ASK = [(["Who are you?", "[What is|What's] your name?", "[Tell me|Say] who you are.", "Introduce yourself.", "How are you called?", "Whom am I talking to?", "Your name, please?"], "I am {n}.", "n"), (["What do you do[ for a living|]?", "[What is|What's] your job?", "What do you work as?", "Which profession do you have?", "Tell me your job.", "What kind of work do you do?", "Your job, please?"], "I am a {j}.", "j"), (["Where [are you from|do you live|do you work|do you come from]?", "[Which|What] city are you from?", "Where is your home?", "Tell me where you live.", "From where are you?", "What place do you come from?", "Your city, please?"], "I am from {c}.", "c")]


def system(d: Draw) -> Task:
    style = d.range(0, 9)
    if style <= 3:
        persona = d.pick(PERSONAS)
        slots = dict(n=d.name(), a=d.word("adjective"), j=d.word("job"), c=d.city())
        text = d.fill(persona, **slots)
        fitting = [p for p in PERSONA_ASK if slots[p[2]] in text]
        asks, answer, key = d.pick(fitting)
        return Task("system", d.ask(asks), d.fill(answer, **slots), "The system prompt says who I am.", contains(slots[key]), system=text)
    if style == 4:
        word = d.pick([d.any_word(), d.any_word().upper(), "No.", "Yes.", "OK", "I do not know.", "Beep boop.", "Please call the office."])
        text = d.ask(["[Always|Whatever the user says,|No matter what is asked,] [answer|reply|respond] [only |]with {q}.", "Your only answer is {q}.", "You can only say {q}.", "To everything the user says you answer {q}.", "Say nothing but {q}.", "Every reply is {q}, nothing else.", "The one thing you ever say is {q}."], q=f'"{word}"')
        user = d.pick([d.sentence(), talk(d).user, knowledge(d).user, d.any_word()])
        return Task("system", user, word, "The system prompt allows one answer only.", exact(word), system=text)
    if style == 5:
        trigger, word = d.any_word(), d.pick([d.any_word(), d.code(), d.sentence()])
        text = d.ask(["[If|When|Whenever] the user says {t}, [answer|reply|say] {q}.", "Answer {q} when you hear {t}.", "The right answer to {t} is {q}.", "On {t} you reply {q}.", "To {t}, always answer {q}.", "Should the user write {t}, write {q}.", "{t} must be answered with {q}."], t=f'"{trigger}"', q=f'"{word}"')
        if d.chance(0.7):
            return Task("system", trigger, word, f"The user says {trigger}, so I answer as told.", exact(word), system=text, plain=True)
        task = knowledge(d)
        task.system, task.kind = text, "system"
        return task
    if style == 6:
        topic = d.pick(["sums", "animals", "food", "music", "the shop", "books", "gardens", "trains"])
        refusal = d.pick(["I cannot help with that.", "That is not my topic.", "I only talk about {t}.", "Sorry, no."]).replace("{t}", topic)
        text = d.ask(["You [only |]talk about {t}[ only|]. To anything else[, say|, answer|, reply] {q}.", "Questions that are not about {t} get the answer {q}.", "Stay with {t}; otherwise answer {q}.", "If it is not about {t}, [say|reply] {q}.", "Your only subject is {t}. For all else say {q}.", "Answer {q} unless it is about {t}.", "You know about {t} and nothing else. Then you say {q}."], t=topic, q=f'"{refusal}"')
        return Task("system", d.say(["Explain {x}[ to me|].", "What [is|are] {x}?", "Tell me about {x}.", "Who is {f}?", "Where is {c}?", "Translate a word into {l}."], x=d.word("topic"), f=d.full_name(), c=d.city(), l=d.word("language")), refusal, f"That is not about {topic}.", exact(refusal), system=text)
    if style == 7:
        fact, value = d.pick([("The opening hours are {v}.", lambda: f"{d.range(6, 11)} to {d.range(15, 22)}"), ("The shop is in {v}.", d.city), ("The manager is {v}.", d.full_name), ("The password of the day is {v}.", d.code), ("The price is {v} euros.", lambda: d.number(5, 500)), ("The phone number is {v}.", lambda: d.digits(3) + "-" + d.digits(4)), ("Today is {v}.", d.iso_date), ("It is {v} now.", d.time), ("The date is {v}.", d.date)])
        asks = {"opening": ["When are you open?", "What are the opening hours?", "How long are you open?"], "shop": ["Where is the shop?", "In which city is the shop?", "Where can I find you?"], "manager": ["Who is the manager?", "What is the manager's name?", "Who runs the place?"], "password": ["What is the password[ of the day| today|]?", "Tell me the password."], "price": ["How much is it?", "What is the price?", "What does it cost?"], "phone": ["What is the phone number?", "How can I call you?"], "Today": ["What is the date[ today|]?", "Which date is [it|today]?"], "now": ["What time is it?", "How late is it?", "Tell me the time."], "date": ["What is the date[ today|]?", "Which date is [it|today]?"]}
        v = value()
        key = next(k for k in asks if k in fact)
        others = [d.sentence() for _ in range(d.range(0, 3))]
        text = " ".join([d.pick(["You are a helpful assistant.", "You work in a shop.", "You answer the phone.", "Be brief."])] + others + [d.fill(fact, v=v)])
        return Task("system", d.say(asks[key]), d.fill(fact, v=v), "The system prompt says it.", contains(v), system=text)
    task = knowledge(d) if d.chance(0.5) else talk(d)
    return system_style(d, task) or task


more.extend(globals())
for place, extra in more.TALK_MORE.items():
    TALK[place][0].extend(extra)
