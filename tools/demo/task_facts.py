"""Questions about facts given in the prompt, memory over turns, and recall at a distance."""

import more
from task import Task, contains, exact
from words import Draw

# name: (statements, questions, answer, inverse question or "", how to draw the value)
PERSON = {
    "city": (["{n} lives in {v}.", "{n}'s home is in {v}.", "{v} is where {n} lives.", "The home of {n} is in {v}.", "{n} [moved|has moved] to {v}."], ["Where does {n} live?", "[In which|Which|What] city does {n} live[ in|]?", "Where is {n}'s home?", "What is the home city of {n}?", "Tell me where {n} lives.", "Do you know where {n} lives?", "{n} lives in which city?"], "{n} lives in {v}.", "Who lives in {v}?", lambda d: d.city()),
    "job": (["{n} works as [a|the] {v}.", "{n} is a {v}[ by trade|].", "{n} earns a living as a {v}.", "By profession, {n} is a {v}."], ["What is {n}'s [job|profession]?", "What does {n} do[ for a living|]?", "[Which|What] job does {n} have?", "What is the [job|profession] of {n}?", "Tell me {n}'s job.", "How does {n} earn money?", "What kind of work does {n} do?"], "{n} is a {v}.", "Who is [the|a] {v}?", lambda d: d.word("job")),
    "pet": (["{n} has a [pet |]{v}.", "{n} keeps a {v}[ as a pet|].", "{n}'s pet is a {v}.", "A {v} lives with {n}."], ["[What|Which] pet does {n} have?", "What is {n}'s pet?", "What animal does {n} [have|keep]?", "Which animal lives with {n}?", "What kind of pet does {n} own?", "Tell me which pet {n} has.", "What sort of animal is {n}'s pet?"], "{n} has a {v}.", "Who has a {v}?", lambda d: d.word("animal")),
    "color": (["{n}'s favorite [color|colour] is {v}.", "{n} [likes|loves] the [color|colour] {v} [best|most].", "The favorite color of {n} is {v}.", "{n} prefers {v} to any other color."], ["[What is|What's] {n}'s favorite [color|colour]?", "Which [color|colour] does {n} like [best|most]?", "What is the favorite color of {n}?", "Which color does {n} prefer?", "What color does {n} love?", "Tell me {n}'s favourite colour.", "The color that {n} likes most is which?"], "{n}'s favorite color is {v}.", "Whose favorite color is {v}?", lambda d: d.word("color")),
    "age": (["{n} is {v} years old.", "{n} is {v}.", "{n} turned {v} [this year|last month|in {month}].", "At {v}, {n} [is still learning|likes to travel]."], ["How old is {n}?", "What is {n}'s age?", "What age is {n}?", "Tell me how old {n} is.", "{n}'s age?", "Can you say how old {n} is?", "How many years old is {n}?"], "{n} is {v} years old.", "", lambda d: d.number(5, 99)),
    "food": (["{n} [likes|loves] to eat {v}.", "{n}'s favorite food is {v}.", "{n} eats {v} every {day}.", "For lunch {n} [had|wants] {v}."], ["What does {n} [like to eat|eat]?", "[What is|What's] {n}'s favorite food?", "Which food does {n} [like|love|eat]?", "What food is named for {n}?", "What did {n} have to eat?", "Tell me what {n} eats.", "What is it that {n} eats?"], "{n} eats {v}.", "Who eats {v}?", lambda d: d.word("food")),
    "hobby": (["{n}'s hobby is {v}.", "{n} enjoys {v}.", "{n} likes {v} very much.", "{n} spends every weekend on {v}."], ["[What is|What's] {n}'s hobby?", "Which hobby does {n} have?", "What does {n} enjoy?", "What does {n} do [in|with] [free time|the evening]?", "What is the hobby of {n}?", "Tell me {n}'s hobby.", "How does {n} spend free time?"], "{n}'s hobby is {v}.", "Whose hobby is {v}?", lambda d: d.word("hobby")),
    "instrument": (["{n} plays the {v}.", "{n} [learned|is learning] [to play |]the {v}.", "{n} practices the {v} [daily|every day]."], ["[Which|What] instrument does {n} play?", "What does {n} play?", "What is {n}'s instrument?", "Which instrument is {n} learning?", "Tell me what instrument {n} plays.", "On what does {n} make music?", "What instrument is it that {n} plays?"], "{n} plays the {v}.", "Who plays the {v}?", lambda d: d.word("instrument")),
    "language": (["{n} speaks {v}.", "{n} [learned|studied|teaches] {v}[ at school|].", "At home {n} speaks {v}."], ["[Which|What] language does {n} speak?", "What does {n} speak?", "What is the language of {n}?", "In what language can I talk to {n}?", "Tell me which language {n} speaks.", "Which language does {n} know?", "What tongue does {n} speak?"], "{n} speaks {v}.", "Who speaks {v}?", lambda d: d.word("language")),
    "car": (["{n} drives a {v} car.", "{n} [owns|bought] a {v} car.", "{n}'s car is {v}."], ["What [color|colour] is {n}'s car?", "What color is the car of {n}?", "Which color does {n}'s car have?", "What kind of car does {n} drive?", "Tell me the color of {n}'s car.", "How does {n}'s car look?", "In what color is {n}'s car painted?"], "{n}'s car is {v}.", "Who drives a {v} car?", lambda d: d.word("color")),
    "bought": (["{n} bought a {v} [on {day}|yesterday|at the market].", "{n} [paid for|purchased|ordered] a {v}."], ["What did {n} [buy|purchase|order]?", "Which thing did {n} buy?", "What has {n} bought?", "Tell me what {n} bought.", "What item did {n} get?", "{n} bought what?", "What did {n} pay for?"], "{n} bought a {v}.", "Who bought a {v}?", lambda d: d.word("object")),
    "room": (["{n} is in room {v}.", "{n}'s room [number |]is {v}.", "{n} [sleeps|works|sits] in room {v}."], ["[Which|What] room is {n} in?", "What is {n}'s room[ number|]?", "In which room is {n}?", "Where can I find {n}?", "Tell me {n}'s room number.", "Which is the room of {n}?", "What number is {n}'s room?"], "{n} is in room {v}.", "Who is in room {v}?", lambda d: d.number(10, 999)),
    "phone": (["{n}'s [phone |]number is {v}.", "You can [call|reach] {n} at {v}.", "Call {n} [under|on] {v}."], ["What is {n}'s [phone |]number?", "How can I [call|reach] {n}?", "Which number do I call for {n}?", "What is the phone number of {n}?", "Give me {n}'s number.", "At what number is {n} reached?", "Tell me {n}'s phone number."], "{n}'s number is {v}.", "Whose number is {v}?", lambda d: d.digits(3) + "-" + d.digits(4)),
    "birthday": (["{n}'s birthday is on {v}.", "{n} was born on {v}.", "{n} celebrates on {v}."], ["When is {n}'s birthday?", "When was {n} born?", "On which day was {n} born?", "What is {n}'s [birthday|date of birth]?", "What day does {n} celebrate?", "Tell me {n}'s birthday.", "On what date was {n} born?"], "{n}'s birthday is {v}.", "Whose birthday is {v}?", lambda d: f"{d.word('month')} {d.range(1, 28)}"),
    "friend": (["{n}'s best friend is {v}.", "The best friend of {n} is {v}.", "{v} is the best friend of {n}.", "{n} calls {v} a best friend."], ["Who is {n}'s [best |]friend?", "Who is the best friend of {n}?", "What is the name of {n}'s best friend?", "Which friend does {n} have?", "Tell me {n}'s best friend.", "How is {n}'s friend called?", "Whom does {n} call a best friend?"], "{n}'s best friend is {v}.", "", lambda d: d.name()),
}
THING = {
    "color": (["The {n} is {v}.", "The [color|colour] of the {n} is {v}.", "{n_cap} [comes|is painted] in {v}."], ["What [color|colour] is the {n}?", "What is the color of the {n}?", "Which color does the {n} have?", "How is the {n} painted?", "Tell me the colour of the {n}.", "In what color is the {n}?", "What colour does the {n} have?"], "The {n} is {v}.", "What is {v}?", lambda d: d.word("color")),
    "price": (["The {n} costs {v} [dollars|euros].", "The price of the {n} is {v}.", "You [pay|must pay] {v} for the {n}."], ["How much [is|does] the {n}[ cost|]?", "What is the price of the {n}?", "What does the {n} cost?", "How much must I pay for the {n}?", "Tell me the price of the {n}.", "What is the {n} worth?", "At what price is the {n} sold?"], "The {n} costs {v}.", "", lambda d: d.number(2, 999)),
    "place": (["The {n} is in the {v}.", "You [can find|find|will find] the {n} in the {v}.", "The {n} was left in the {v}.", "In the {v} there is [the|a] {n}."], ["Where is the {n}?", "Where can I find the {n}?", "In which place is the {n}?", "Where was the {n} left?", "Where did someone put the {n}?", "Tell me where the {n} is.", "What is the place of the {n}?"], "The {n} is in the {v}.", "What is in the {v}?", lambda d: d.word("place")),
    "owner": (["The {n} belongs to {v}.", "The owner of the {n} is {v}.", "{v} owns the {n}.", "It is {v} who has the {n}."], ["Who [owns|has] the {n}?", "Whose is the {n}?", "To whom does the {n} belong?", "Who is the owner of the {n}?", "Which person has the {n}?", "Tell me who owns the {n}.", "The {n} belongs to whom?"], "The {n} belongs to {v}.", "What does {v} own?", lambda d: d.name()),
    "material": (["The {n} is made of {v}.", "The {n} is [built|made] from {v}.", "{v_cap} was used for the {n}."], ["What is the {n} made of?", "Which material is the {n} made from?", "Of what is the {n} made?", "What material is the {n}?", "From what is the {n} built?", "Tell me the material of the {n}.", "What was used for the {n}?"], "The {n} is made of {v}.", "What is made of {v}?", lambda d: d.word("material")),
    "weight": (["The {n} weighs {v} kg.", "The weight of the {n} is {v} kilograms."], ["How heavy is the {n}?", "What does the {n} weigh?", "What is the weight of the {n}?", "How many kilograms does the {n} weigh?", "Tell me how heavy the {n} is.", "How much does the {n} weigh?", "What weight has the {n}?"], "The {n} weighs {v} kg.", "", lambda d: d.number(2, 99)),
    "code": (["The code [of|for] the {n} is {v}.", "The {n} has [the code|the number|the password] {v}.", "To open the {n}, use {v}."], ["What is the [code|password] [of|for] the {n}?", "Which code [opens|belongs to] the {n}?", "How do I open the {n}?", "What code does the {n} have?", "Give me the code for the {n}.", "Tell me the code of the {n}.", "What do I type to open the {n}?"], "The code for the {n} is {v}.", "", lambda d: d.code()),
}
EVENT = {
    "time": (["The {n} [starts|begins] at {v}.", "The {n} is at {v}.", "At {v} the {n} [starts|begins]."], ["When does the {n} [start|begin]?", "At what time is the {n}?", "What time does the {n} start?", "When is the {n}?", "Tell me when the {n} starts.", "At which hour is the {n}?", "What is the time of the {n}?"], "The {n} starts at {v}.", "What starts at {v}?", lambda d: d.time()),
    "day": (["The {n} is on {v}.", "The {n} takes place on {v}.", "On {v} there is the {n}."], ["On which day is the {n}?", "[What|Which] day is the {n}?", "When does the {n} take place?", "When is the {n}?", "Tell me the day of the {n}.", "For what day is the {n} planned?", "What is the day of the {n}?"], "The {n} is on {v}.", "What is on {v}?", lambda d: d.pick([d.word("day"), f"{d.word('month')} {d.range(1, 28)}"])),
    "where": (["The {n} is held in {v}.", "The {n} takes place in {v}.", "{v} hosts the {n}."], ["Where is the {n}[ held|]?", "In which city is the {n}?", "Where does the {n} take place?", "Which city hosts the {n}?", "What is the location of the {n}?", "Tell me where the {n} is held.", "To what city do I go for the {n}?"], "The {n} is in {v}.", "What is held in {v}?", lambda d: d.city()),
    "leader": (["The {n} is led by {v}.", "{v} leads the {n}.", "{v} is in charge of the {n}."], ["Who leads the {n}?", "Who is in charge of the {n}?", "By whom is the {n} led?", "Who runs the {n}?", "Which person leads the {n}?", "Tell me who leads the {n}.", "Who heads the {n}?"], "The {n} is led by {v}.", "What does {v} lead?", lambda d: d.full_name()),
    "guests": (["{v} people [come|are invited|will come] to the {n}.", "The {n} has {v} guests."], ["How many people come to the {n}?", "How many guests does the {n} have?", "How many people are at the {n}?", "What is the number of guests at the {n}?", "How many are invited to the {n}?", "Tell me how many come to the {n}.", "How large is the crowd at the {n}?"], "{v} people come to the {n}.", "", lambda d: d.number(3, 500)),
}
FIRM = {
    "founded": (["{n} was founded in {v}.", "{n} [started|opened] in {v}.", "The company {n} dates from {v}."], ["When was {n} founded?", "In which year was {n} founded?", "When did {n} start?", "What year does {n} date from?", "Since when does {n} exist?", "Tell me when {n} was founded.", "How far back does {n} go?"], "{n} was founded in {v}.", "", lambda d: d.number(1850, 2025)),
    "boss": (["The head of {n} is {v}.", "{v} runs {n}.", "{n} is led by {v}."], ["Who [runs|leads] {n}?", "Who is the [head|boss] of {n}?", "What is the name of {n}'s boss?", "By whom is {n} led?", "Who is in charge at {n}?", "Tell me who runs {n}.", "Who heads {n}?"], "{n} is led by {v}.", "Which company does {v} run?", lambda d: d.full_name()),
    "sells": (["{n} sells {v}s.", "{n} makes {v}s.", "At {n} you can buy {v}s."], ["What does {n} [sell|make]?", "What can I buy at {n}?", "What are the products of {n}?", "Which product does {n} sell?", "What is {n} known for?", "Tell me what {n} sells.", "In what does {n} trade?"], "{n} sells {v}s.", "Who sells {v}s?", lambda d: d.word("object")),
    "seat": (["{n} is based in {v}.", "The office of {n} is in {v}.", "{n} has its seat in {v}."], ["Where is {n} based?", "In which city is {n}?", "Where is the office of {n}?", "What city is {n} based in?", "Where does {n} have its seat?", "Tell me where {n} is based.", "Which city is home to {n}?"], "{n} is based in {v}.", "Which company is based in {v}?", lambda d: d.city()),
    "staff": (["{n} has {v} employees.", "{v} people work [at|for] {n}."], ["How many people work [at|for] {n}?", "How many employees does {n} have?", "What is the size of {n}'s staff?", "How large is {n}?", "Tell me how many employees {n} has.", "What number of people work at {n}?", "How many workers are there at {n}?"], "{n} has {v} employees.", "", lambda d: d.number(3, 9999)),
}
WORLDS = [(PERSON, lambda d: d.name()), (PERSON, lambda d: d.name()), (THING, lambda d: d.word("object")), (EVENT, lambda d: d.pick(["meeting", "concert", "race", "lecture", "party", "wedding", "fair", "match", "class", "tour", "auction", "parade", "workshop", "festival"]) if d.chance(0.5) else d.word("noun") + " " + d.pick(["meeting", "show", "day", "event"])), (FIRM, lambda d: d.pick([d.word("product"), d.made_up(2).capitalize()]) + d.pick(["", " Ltd", " Works", " Labs", " & Co"]))]
ASK = ["{t}\n\n{q}", "{t} {q}", "{t}\n{q}", "[Read|Here is] [the|a] [text|passage|story][ and answer|][:|.]\n\n{t}\n\n[Question: |Q: |]{q}", "{t}\n\n[Question|Q|My question]: {q}", "{q}\n\n{t}", "[Use|Look at|Based on] the text [below|]: {t}\n\n{q}", "[Text|Facts|Notes|Context]: {t}\n[Question|Q]: {q}",
       "I [know|was told|read] this: {t} [So|Now|] {q}", "[Given|Consider] [that|these facts|the following]: {t} {q}", "[Here are some facts|Some facts|What we know]. {t} {q}", "Context:\n{t}\n\n{q}\nAnswer:", "[My notes say|The report says]: {t} {q}", "Passage: {t}\nAnswer this: {q}"]
UNKNOWN = ["The text does not say.", "The text does not say."]
SHORT = [" [Answer|Reply] [in|with] [one word|a few words|as few words as possible][, please|].", " [Give|Say] only the answer.", " [Just|Only] the answer[, please|].", " Short answer[, please|]."]
THOUGHT = ['The text says: "{s}" So the answer is {v}.', "I look for {n} in the text: {s} The answer is {v}.", "{s} That gives {v}."]


def draw_facts(d: Draw, world: dict, draw_name, subjects: int, facts: int):
    """[(subject, relation, value, sentence)] with distinct subjects and distinct values in a relation."""
    names, out, used = [], [], set()
    while len(names) < subjects:
        name = draw_name(d)
        if name not in names:
            names.append(name)
    for name in names:
        for relation in d.rng.sample(list(world), min(facts, len(world))):
            for _ in range(20):
                value = world[relation][4](d)
                if (relation, value) not in used and value != name and value not in names:
                    break
            used.add((relation, value))
            sentence = d.say(world[relation][0], n=name, v=value, n_cap="The " + name, v_cap=str(value)[:1].upper() + str(value)[1:], month=d.word("month"), day=d.word("day"))
            out.append((name, relation, value, sentence))
    return out


def facts(d: Draw) -> Task:
    world, draw_name = d.pick(WORLDS)
    subjects, per = d.pick([(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (4, 2), (6, 1), (6, 2)])
    found = draw_facts(d, world, draw_name, subjects, per)
    if d.chance(0.5):
        d.rng.shuffle(found)
    name, relation, value, sentence = d.pick(found)
    lines = [f[3] for f in found]
    for _ in range(d.pick([0, 0, 0, 1, 2])):
        lines.insert(d.range(0, len(lines)), d.sentence())
    text = d.pick([" ", " ", "\n", "\n- "]).join(lines)
    questions, answer, inverse = world[relation][1], world[relation][2], world[relation][3]
    style = d.range(0, 19)
    if style <= 1 and len(world) > per:
        missing = d.pick([r for r in world if r not in [f[1] for f in found if f[0] == name]])
        text = d.ask(ASK, t=text, q=d.ask(world[missing][1], n=name))
        return Task("facts", text, d.pick(UNKNOWN), f"The text says nothing of that kind about {name}.", contains("does not say"))
    if style == 2:
        other = draw_name(d)
        if all(other != f[0] for f in found):
            text = d.ask(ASK, t=text, q=d.ask(questions, n=other))
            return Task("facts", text, d.pick(UNKNOWN), f"{other} is not in the text.", contains("does not say"))
    if style <= 5 and inverse and sum(f[2] == value for f in found) == 1:
        asked = d.ask(ASK, t=text, q=d.fill(inverse, v=value))
        who = name if world in (PERSON, FIRM) else f"the {name}"
        return Task("facts", asked, f"It is {who}.", d.say(['The text says: "{s}" So it is {n}.'], s=sentence, n=who), contains(name))
    if style <= 8 and "{v}" in answer:
        claim, true = (value, True) if d.chance(0.5) else (world[relation][4](d), False)
        true = claim == value
        stated = d.fill(answer, n=name, v=claim)
        question = d.say(["Is it true that {c}?", "Is this [right|true|correct]: {c}", "True or false: {c}", "[Yes or no: |]{c} Is that right?"], c=stated)
        yes, no = ("True", "False") if question.startswith("True or") else ("Yes", "No")
        real = d.fill(answer, n=name, v=value)
        return Task("facts", d.ask(ASK, t=text, q=question), f"{yes if true else no}. {real}", f'The text says: "{sentence}" So that is {"right" if true else "wrong"}.', contains(f"{yes if true else no}."))
    question = d.ask(questions, n=name)
    asked = d.ask(ASK, t=text, q=question)
    full = d.fill(answer, n=name, v=value)
    if d.chance(0.2):
        asked += d.say(SHORT)
        full = str(value)
    return Task("facts", asked, full, d.say(THOUGHT, s=sentence, v=value, n=name), contains(value))


GENERIC_ASK = ["What is the {r} of {n}?", "What is {n}'s {r}?", "[Tell me|Give me|Name|Say] the {r} of {n}.", "[Tell me|Give me|Say] {n}'s {r}.", "Which {r} does {n} have?", "Do you know the {r} of {n}?", "What {r} belongs to {n}?", "[The|And the] {r} of {n}?", "Can you tell me the {r} of {n}?", "I want to know {n}'s {r}.", "{n} has which {r}?", "How is the {r} of {n} given?", "What does the text give as the {r} of {n}?", "Find the {r} of {n}."]
WHO_ASK = ["Who {p} the {x}?", "By whom was the {x} {p}?", "Which person {p} the {x}?", "Tell me who {p} the {x}.", "Do you know who {p} the {x}?", "Who was it that {p} the {x}?", "Say who {p} the {x}."]
WHAT_ASK = ["What was {p} by {n}?", "What is it that {n} {p}?", "Which thing was it that {n} {p}?", "{n} {p} what?", "Tell me what {n} {p}.", "Do you know what {n} {p}?", "Say what {n} {p}."]


def generic(d: Draw) -> Task:
    """Facts of any kind: some attribute of something, or who did what; the words are drawn freely."""
    lines, asked = [], []
    owner = d.pick([d.name, d.city, lambda: "the " + d.word("object"), lambda: d.made_up(2).capitalize(), lambda: "the " + d.word("animal"), lambda: d.word("country"), d.full_name, lambda: "the " + d.word("place")])
    value = d.pick([d.any_word, d.city, d.name, lambda: str(d.number(0, 9999)), d.code, lambda: d.word("color"), d.time, lambda: d.made_up(2).capitalize(), lambda: f"{d.word('adjective')} {d.word('noun')}", d.iso_date])
    names, deeds = [], d.chance(0.3)
    for _ in range(d.pick([1, 1, 2, 3, 4, 6])):
        name = d.name() if deeds else owner()
        relation = d.word("past") if deeds else d.pick([d.word("noun"), d.word("noun"), d.word("object"), d.made_up(), f"{d.word('adjective')} {d.word('noun')}"])
        thing = d.pick([d.word("object"), d.word("animal"), d.word("food"), f"{d.word('adjective')} {d.word('object')}"]) if deeds else value()
        if any(name == a[0] or thing == a[2] for a in asked):
            continue
        asked.append((name, relation, thing, d.fill("{n} {r} the {v}." if deeds else d.pick(["The {r} of {n} is {v}.", "{n}'s {r} is {v}.", "{n} has the {r} {v}.", "The {r} [that belongs to|for] {n} is {v}.", "As {r}, {n} has {v}."]), n=name, r=relation, v=thing)))
    for a in asked:
        lines.append(a[3][0].upper() + a[3][1:])
    for _ in range(d.pick([0, 0, 0, 1, 2])):
        lines.insert(d.range(0, len(lines)), d.sentence())
    name, relation, thing, sentence = d.pick(asked)
    text = d.pick([" ", " ", "\n"]).join(lines)
    if deeds and d.chance(0.5):
        return Task("facts", d.ask(ASK, t=text, q=d.ask(WHO_ASK, p=relation, x=thing)), f"It was {name}.", d.say(THOUGHT, s=sentence, v=name, n=name), contains(name))
    if deeds:
        return Task("facts", d.ask(ASK, t=text, q=d.ask(WHAT_ASK, p=relation, n=name)), f"It was the {thing}.", d.say(THOUGHT, s=sentence, v=thing, n=name), contains(thing))
    asked_text = d.ask(ASK, t=text, q=d.ask(GENERIC_ASK, r=relation, n=name))
    answer = f"The {relation} of {name} is {thing}."
    if d.chance(0.25):
        asked_text, answer = asked_text + d.say(SHORT), thing
    return Task("facts", asked_text, answer, d.say(THOUGHT, s=sentence, v=thing, n=name), contains(thing))


def told(d: Draw) -> Task:
    """The turn in which the user tells something, and other turns that only want a short reply."""
    if d.chance(0.6):
        key = d.pick(list(TELL))
        statements, _, _, replies, draw = TELL[key]
        value = draw(d)
        slots = dict(v=value, w=d.name(), v_cap=str(value)[:1].upper() + str(value)[1:])
        reply = d.say(replies, **slots)
        said = next(str(x) for x in (slots["w"] if key == "pet" else value, slots["v_cap"]) if str(x) in reply)
        return Task("memory", d.say(statements, **slots), reply, "The user tells me something. I take note of it.", contains(said), history=small_turn(d) if d.chance(0.3) else [])
    turn = small_turn(d)
    answer = turn[1]["content"]
    check = exact(answer) if turn[0]["content"].startswith(("Say", "Repeat", "What")) else {"type": "nonempty"}
    return Task("memory", turn[0]["content"], answer, d.pick(["A short reply is enough.", "The user is talking to me."]), check, history=small_turn(d) if d.chance(0.3) else [], plain=True)


TELL = {
    "name": (["[My name is|My name's|I am|I'm|Call me|You can call me] {v}[.|!|]", "[Hi|Hello|Hey], [I'm|I am|my name is] {v}[.|!]", "The name is {v}.", "People call me {v}."], ["[What is|What's] my name?", "Who am I?", "Do you [remember|know] my name?", "[Tell me|Say] my name.", "How am I called?", "Can you tell me [what my name is|my name]?", "What did I say my name was?"], "Your name is {v}.", ["Nice to meet you, {v}!", "Hello {v}! [How can I help you|What can I do for you]?"], lambda d: d.name()),
    "color": (["My favorite [color|colour] is {v}.", "I [like|love] {v} [best|most] of all colors.", "{v_cap} is my favorite color."], ["[What is|What's] my favorite [color|colour]?", "Which [color|colour] do I like [best|most]?", "Do you remember my favorite color?", "Tell me my favorite color.", "What color do I love?", "Which is my favorite color?", "Remind me of my favourite colour."], "Your favorite color is {v}.", ["{v_cap} is a [nice|lovely|fine] color.", "[Good|Noted]: {v} it is."], lambda d: d.word("color")),
    "city": (["I live in {v}.", "[My home|My home town] is {v}.", "I [come from|am from|moved to] {v}."], ["Where do I live?", "[Which|What] city do I live in?", "Where am I from?", "Where is my home?", "Do you know where I live?", "Tell me where I live.", "In what city is my home?"], "You live in {v}.", ["{v} sounds [nice|like a good place].", "[Good|Noted]: you live in {v}."], lambda d: d.city()),
    "job": (["I am a {v}.", "I work as a {v}.", "My job is {v}."], ["[What is|What's] my job?", "What do I do[ for a living|]?", "Which job do I have?", "What do I work as?", "Do you remember my job?", "Tell me my profession.", "What kind of work do I do?"], "You are a {v}.", ["A {v}! That [sounds|is] interesting.", "Noted: you are a {v}."], lambda d: d.word("job")),
    "pet": (["I have a [pet |]{v} [called|named] {w}.", "My {v} is [called|named] {w}.", "My {v}'s name is {w}."], ["What is my {v}'s name?", "[What is|What's] the name of my {v}?", "How is my {v} called?", "What do I call my {v}?", "Do you remember my {v}'s name?", "Tell me the name of my {v}.", "What name does my {v} have?"], "Your {v} is called {w}.", ["{w} is a [nice|lovely|good] name for a {v}.", "Say hello to {w}!"], lambda d: d.word("animal")),
    "code": (["[Remember|Please remember|Note|Keep in mind|Don't forget] the [code|number|password|key|word] {v}.", "[The|My] [secret |][code|password|number|word] is {v}.", "[The|Today's] code word is {v}. [Remember it|Keep it safe|Do not forget it]."], ["[What is|What was|What's] the [secret |][code|number|password|word]?", "Which [code|word|number] did I [give|tell] you?", "[Tell me|Give me|Say] the [code|password|word|number].", "Do you remember the [code|word|number]?", "Repeat the [code|word|password].", "What did I ask you to remember?", "Which word?", "Remind me: what is the code?", "What was it that I told you to keep in mind?"], "It is {v}.", ["[OK|All right|Good|Noted], I will remember {v}.", "Noted: {v}."], lambda d: d.code()),
    "number": (["My [lucky |favorite |]number is {v}.", "I am thinking of the number {v}.", "[Remember|Note] the number {v}."], ["[What is|What was] my [lucky |favorite |]number?", "Which number did I [say|name|mention]?", "Tell me my number.", "Do you remember the number?", "What number was it?", "Which number was I thinking of?", "Say my number again."], "The number is {v}.", ["[OK|Noted], {v}.", "{v} is a good number."], lambda d: d.number(10, 9999)),
    "age": (["I am {v} years old.", "I'm {v}.", "I turned {v} [today|this week|last month]."], ["How old am I?", "What is my age?", "Do you know my age?", "Tell me how old I am.", "What age am I?", "Can you say how old I am?", "How many years old am I?"], "You are {v} years old.", ["{v} is a good age.", "Noted: you are {v}."], lambda d: d.number(5, 99)),
    "meeting": (["[My|The|Our] meeting is at {v}.", "I have a [meeting|appointment] at {v}.", "The meeting starts at {v}."], ["When is [my|the|our] meeting?", "At what time is the meeting?", "When does the meeting start?", "What time is my meeting?", "Tell me when the meeting is.", "When do I have to be there?", "For what time is the meeting set?"], "The meeting is at {v}.", ["[OK|Noted], the meeting is at {v}.", "I will remember: {v}."], lambda d: d.time()),
    "food": (["I [love|like] [to eat |]{v}.", "My favorite food is {v}.", "I eat {v} every day."], ["[What is|What's] my favorite food?", "What do I like to eat?", "Which food do I [like|love]?", "What do I eat?", "Do you remember what I like to eat?", "Tell me my favorite food.", "What is the food I love?"], "You like {v}.", ["{v_cap} is [delicious|good|a fine choice].", "Noted: you like {v}."], lambda d: d.word("food")),
    "friend": (["My [brother|sister|friend|cousin|neighbor|teacher|boss] is [called|named] {v}.", "My [best friend|brother|sister|boss]'s name is {v}."], ["What is [his|her|the] name?", "Who did I [mention|tell you about]?", "What name did I mention?", "Tell me the name that I mentioned.", "Which person did I talk about?", "Whom did I mention?", "What is the name of the person I told you about?"], "The name is {v}.", ["{v} is a nice name.", "Say hello to {v} from me."], lambda d: d.name()),
}
BETWEEN = [("[How are you|How is it going|Are you well]?", "I am doing fine, thank you. How can I help you?"), ("[Thanks|Thank you|Cheers][!|.|]", "You are welcome!"), ("[OK|Okay|Good|Great|Fine|Nice][.|!|]", "[Is there anything else|What would you like to do next]?"),
           ("[What is|What's] {a} + {b}?", "{a} + {b} = {c}"), ("Say {w}.", "{w}"), ("[Repeat|Say]: {s}", "{s}"), ("{s}", "I see."), ("[Let us|Let's] talk about [something else|{t}].", "[All right|OK]. [What would you like to know?|Go ahead.]"), ("Tell me [something|a story].", "{s}")]


def small_turn(d: Draw) -> list:
    a, b = d.number(1, 9), d.number(1, 9)
    user, answer = d.pick(BETWEEN)
    slots = dict(a=a, b=b, c=a + b, w=d.any_word(), s=d.sentence(), t=d.word("topic"))
    return [{"role": "user", "content": d.fill(user, **slots)}, {"role": "assistant", "content": d.fill(answer, **slots)}]


def memory(d: Draw, turns: int = 0) -> Task:
    """Something the user says in one turn is asked for in a later one."""
    keys = d.rng.sample(list(TELL), d.pick([1, 1, 2, 2, 3, 4]))
    history, told = [], []
    for key in keys:
        statements, questions, answer, replies, draw = TELL[key]
        value = draw(d)
        slots = dict(v=value, w=d.name(), v_cap=str(value)[:1].upper() + str(value)[1:])
        statement = d.say(statements, **slots)
        history += [{"role": "user", "content": statement}, {"role": "assistant", "content": d.say(replies, **slots)}]
        told.append((key, slots, statement))
        for _ in range(turns or d.pick([0, 0, 0, 1, 1, 2])):
            history += small_turn(d)
    for _ in range(d.pick([0, 0, 1, 2])):
        history += small_turn(d)
    if d.chance(0.1):
        key = d.pick([k for k in TELL if k not in keys and k not in ("code", "number", "friend")])
        animal = d.word("animal")
        return Task("memory", d.ask(TELL[key][1], v=animal), "You have not told me that.", "The user has not said that before.", contains("not told me"), history=history)
    key, slots, statement = d.pick(told)
    if "code" in keys and key in ("number",) or "number" in keys and key == "code":
        key, slots, statement = told[0] if told[0][0] not in ("number", "code") else (None, None, None)
        if key is None:
            return memory(d, turns)
    answer = d.fill(TELL[key][2], **slots)
    value = slots["w"] if key == "pet" else slots["v"]
    return Task("memory", d.ask(TELL[key][1], **slots), answer, d.say(['The user said: "{s}"'], s=statement), contains(value), history=history)


EARLIER = [("What did I [ask|say|write] first?", 0), ("What was my first [message|question]?", 0), ("[Repeat|Say] my first message.", 0), ("What was the first thing I [said|wrote]?", 0), ("What did I [just say|say last|say before this]?", -2), ("[Repeat|Say] your last answer[ again|].", -1), ("What did you just say?", -1), ("[Say that again|Again, please|Repeat that][.|]", -1), ("What was my last message?", -2), ("Go back to the start: what did I write?", 0), ("What was your answer before this?", -1)]


def earlier(d: Draw) -> Task:
    """Questions about the conversation itself."""
    history = []
    for _ in range(d.range(1, 4)):
        history += small_turn(d)
    while True:
        question, place = d.pick(EARLIER)
        if (EARLIER.index((question, place)) % 5 == 4) == d.held:
            break
    answer = history[place]["content"]
    return Task("memory", d.fill(question), answer, "I look back in the conversation.", exact(answer), history=history)


PAIR_LINES = ["{k}: {v}", "{k} = {v}", "{k} -> {v}", "{k}, {v}", "- {k}: {v}", "The {k} is {v}.", "{k} is {v}.", "{k}\t{v}", "[{k}] {v}".replace("[", "(").replace("]", ")"), "\"{k}\": \"{v}\","]
PAIR_ASK = ["What is the value of {k}?", "What is {k}?", "Which value belongs to {k}?", "[Look up|Find|Give me|Tell me] {k}.", "[Look up|Find] the value [of|for] {k}.", "{k}?", "What does the [list|table] say for {k}?", "Which entry stands beside {k}?", "Return the value of {k}.", "What value does {k} have?", "What stands next to {k}?", "Read me the value for {k}.", "What goes with {k}?", "I need the value of {k}."]
PAIR_FRAME = ["[Here is a list|A list|This is a table|Remember these values][:|.]\n{t}\n\n{q}", "{t}\n\n{q}", "{q}\n\n{t}", "[Data|Table|List|Entries]:\n{t}\n{q}", "[Study|Read|Use] [the list|these lines|this table].\n\n{t}\n\n[Question: |]{q}", "I have these [entries|values]:\n{t}\n{q}", "Below is a list.\n{t}\nEnd of the list. {q}", "Entries follow.\n\n{t}\n\nNow: {q}"]
SEVERAL = ["[Give me|List|What are|Tell me] the values of {k}[.|, in this order.]", "[Look up|Find] {k}.", "What are {k}?", "Values of {k}?", "I need the values of {k}.", "Return the values for {k}, in order.", "For each of {k}, give the value."]


def keys_and_values(d: Draw, count: int):
    draw_key = d.pick([lambda: d.made_up(2), d.any_word, lambda: d.code(), lambda: d.name(), lambda: f"{d.word('adjective')} {d.word('object')}", lambda: f"{d.made_up()}_{d.any_word()}".replace(" ", "_"), lambda: f"item {d.number(1, 9999)}"])
    draw_value = d.pick([lambda: d.digits(d.range(2, 6)), d.code, d.any_word, lambda: d.made_up(2), lambda: d.city(), lambda: str(d.number(0, 9999))])
    pairs = {}
    for _ in range(count * 4):
        if len(pairs) == count:
            break
        pairs[draw_key()] = draw_value()
    return pairs


def pairs(d: Draw, count: int = 0) -> Task:
    """A list of keys and values, asked for one or some of them. `count` sets the distance."""
    table = keys_and_values(d, count or d.pick([3, 5, 8, 12, 20, 30]))
    line = d.pick(PAIR_LINES)
    text = "\n".join(line.replace("{k}", k).replace("{v}", v) for k, v in table.items())
    if count and d.chance(0.35) or d.chance(0.15):
        keys = d.rng.sample(list(table), min(len(table), d.range(2, 8)))
        question = d.ask(SEVERAL, k=", ".join(keys))
        answer = ", ".join(table[k] for k in keys)
        return Task("recall of several", d.ask(PAIR_FRAME, t=text, q=question), answer, "I look up each key: " + ", ".join(f"{k} {table[k]}" for k in keys) + ".", exact(answer), plain=True)
    key = d.pick(list(table))
    question = d.ask(PAIR_ASK, k=d.pick([key, key, f'"{key}"']))
    return Task("recall", d.ask(PAIR_FRAME, t=text, q=question), table[key], f"The list has {key} with {table[key]}.", exact(table[key]), plain=True)


NEEDLES = [("The [secret |magic |special |]{k} [of|for] {n} is {v}.", ["What is the [secret |magic |special |]{k} [of|for] {n}?", "[Tell me|Give me] the {k} [of|for] {n}.", "Which {k} does {n} have?"]), ("{n}'s {k} is {v}.", ["What is {n}'s {k}?", "[Find|Tell me|Give me] {n}'s {k}.", "Which is {n}'s {k}?"]),
           ("[Remember|Note][ this|]: the {k} is {v}.", ["What is the {k}?", "[Tell me|Give me|Find] the {k}.", "What was the {k}[ in the text|]?", "Which {k} does the text [name|mention|give]?"]), ("The {k} is {v}.", ["What is the {k}?", "What does the text say the {k} is?", "[Find|Look for] the {k}."]),
           ("{n} [hid|left|lost] the {k} in {c}.", ["Where did {n} [hide|leave|lose] the {k}?", "Where is the {k} of {n}?", "In which city did {n} put the {k}?"])]
KINDS = ["code", "password", "key", "number", "pin", "code word", "secret code", "access code", "passphrase", "magic number", "magic word", "serial number", "secret word", "token", "combination", "secret", "door code", "ticket number", "order number"]
NEEDLE_FRAME = ["{t}\n\n{q}", "[Read|Study] [this|the text|the following text|this document][ carefully|][.|:]\n\n{t}\n\n{q}", "{q}\n\n{t}", "[Text|Document]:\n{t}\n\n[Question|Q]: {q}", "[Somewhere in|Hidden in] [this|the] text is something I need. {t}\n\n{q}", "{t} {q}", "Long text follows.\n{t}\n\nNow answer: {q}", "Here is everything: {t}\nThat was everything. {q}"]


def needle(d: Draw, length: int = 0) -> Task:
    """One or several facts hidden in filler text of about `length` words."""
    length = length or d.pick([20, 60, 120, 200])
    filler, words = [], 0
    pool = [d.sentence() for _ in range(d.pick([3, 10, 40, 400]))] if d.chance(0.4) else None
    while words < length:
        sentence = d.pick(pool) if pool else d.sentence()
        words += sentence.count(" ") + 1
        filler.append(sentence)
    count = d.pick([1, 1, 1, 2, 3, 4] + ([6, 10] if length > 500 else []))
    used, asked = set(), []
    for _ in range(count):
        statement, questions = d.pick(NEEDLES)
        kind, name, value = d.pick(KINDS), d.name(), d.pick([d.code(), d.code(), d.digits(d.range(3, 7)), str(d.number(10, 9999)), d.any_word()])
        city = d.city()
        mark = (kind, name) if "{n}" in statement else (kind,)
        if any(kind == m[0] for m in used) or "{c}" in statement and any("{c}" in a[0] for a in asked):
            continue
        used.add(mark)
        slots = dict(k=kind if "{c}" not in statement else d.pick(["key", "map", "ring", "letter", "book", "coin"]), n=name, v=value, c=city)
        asked.append((statement, questions, slots, d.fill(statement, **slots)))
        filler.insert(d.range(0, len(filler)), asked[-1][3])
    statement, questions, slots, sentence = d.pick(asked)
    value = slots["c"] if "{c}" in statement else slots["v"]
    text = d.pick([" ", " ", "\n"]).join(filler)
    question = d.fill(d.pick(questions), **slots)
    in_system = d.chance(0.08)
    answer = str(value) if d.chance(0.3) else f"It is {value}."
    user = d.ask(NEEDLE_FRAME, t=text, q=question)
    if not answer.startswith("It is"):
        user += d.say(SHORT)
    task = Task("recall", user, answer, f'The text says: "{sentence}"', contains(value), plain=True)
    if in_system:
        task.user, task.system, task.answer = question, text, f"It is {value}."
    return task


def long_memory(d: Draw, turns: int) -> Task:
    task = memory(d, turns)
    task.kind = "recall"
    return task


more.extend(globals())
