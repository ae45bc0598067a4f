"""Sorting, counting, picking and filtering of lists; runs of numbers."""

import more
from task import Task, contains, exact, number
from words import Draw, strip_period

SORT_WORDS = ["[Sort|Order|Arrange] [these words|the following words|the words|this list|these] [alphabetically|in alphabetical order|from a to z][ please|]: {x}", "[Put|Place|Bring] {x} in[to|] alphabetical order.", "[Please |]alphabetize [this list: |]{x}",
              "Sort {x}.", "[Can|Could] you [sort|order|arrange] [these|the words|this list] [alphabetically|by alphabet]? {x}", "What is the alphabetical order of {x}?", "{x}\nSort [the list|these words|them] [alphabetically|from a to z].", "Sort from a to z: {x}",
              "[Here is a list|My list]: {x}. [Sort it|Put it in alphabetical order].", "I need {x} in alphabetical order.", "alphabetical order please: {x}", "Which order do {x} have in a dictionary?", "List these from A to Z: {x}", "Give me {x} sorted by [letter|alphabet]."]
SORT_NUMBERS = ["[Sort|Order|Arrange] [these numbers|the numbers|the following numbers|this list|] [{up}]: {x}", "[Put|Place|Bring] {x} in[to|] {order} order.", "[Can|Could] you sort {x} [{up}]?", "Sort {x} [{up}].", "{x}\nSort [the numbers|them] {up}.",
                "[Here are some numbers|Numbers]: {x}. [Sort|Order|Arrange] them {up}.", "[Please |]list {x} {up}.", "What are {x} in {order} order?", "I need {x} sorted {up}.", "{order} order: {x}", "Write {x} again, {up}.", "Rank {x} {up}.", "Arrange {up}: {x}", "The numbers {x} should be {up}."]
REVERSED = ["Reverse [the list|this list|the order of]: {x}", "[Write|Give me|List] {x} in reverse order.", "[Put|Turn] {x} in[to|] reverse order.", "[What is|Show] the list {x} backwards[?|.]", "{x}\nReverse the [list|order].", "List these from last to first: {x}",
            "Turn the list around: {x}", "Start from the end: {x}"]
COUNT = ["How many [items|things|entries|elements] are [there |]in [this list|the list|the following list]: {x}?", "Count the [items|entries|things|elements]: {x}", "How many [items|things] [do I have|are these]: {x}?", "[What is|Tell me] the length of this list: {x}", "{x}\nHow many [items|entries] are [that|there]?",
         "I have {x}. How many [things|items] is that?", "[Please |]count [this list|these]: {x}", "How long is the list {x}?", "My list: {x}. How many entries?"]
NTH = ["[What is|What's|Which is|Give me|Tell me] the {o} [item|entry|element|one] [of|in] [this list|the list|]: {x}[?|]", "[Which|What] [item|one] [is|comes] {o}: {x}?", "{x}\n[What is|Which is] the {o} [item|one|entry]?", "[The list is|List:|Take the list] {x}. [What is|Name] the {o} [one|item|entry][?|.]",
       "In the list {x}, what is {o}?", "Pick the {o} [one|item] from {x}.", "[Name|Say|Find] the {o} of [these|]: {x}", "Out of {x}, which comes {o}?"]
EXTREME = ["[What is|What's|Which is|Find|Give me|Tell me] the {l} [number |]of {x}[?|.]", "Which [number |]is the {l}: {x}?", "[Find|Pick] the {l}[ number| value|]: {x}", "{x}\nWhich is the {l}?", "Of {x}, which [number |]is {l}?", "The {l} [number |]in {x}?", "[Given|Among] {x}, [name|find] the {l}.",
           "Out of {x}, what is the {l}?"]
DEDUPE = ["Remove [the |]duplicates[ from]: {x}", "[Write|Give me|List] {x} without [duplicates|repeats|repetitions].", "[List|Name] [each|every] [item|entry] [only |]once: {x}", "Which different [items|words] are in {x}?", "{x}\nRemove the duplicates.", "Drop [everything|what] that [is repeated|comes twice]: {x}",
          "Each only once, please: {x}", "Keep the first of each: {x}"]
HAS = ["Is {a} in [the list|this list|]: {x}?", "Does [the list|this list] contain {a}: {x}?", "[The list is|List:|I have] {x}. Is {a} [in it|among them|there]?", "{x}\nIs {a} in the list?", "Do you see {a} [here|in this list]: {x}?", "Check if {a} is among {x}.", "Is {a} one of {x}?", "Can {a} be found in {x}?"]
STARTS = ["Which [of these |]words [start|begin] with [the letter |]{l}: {x}?", "[List|Name|Find|Give me] the words that [start|begin] with {l}: {x}", "{x}\nWhich [start|begin] with {l}?", "From {x}, pick [the ones|those|the words] [starting|beginning|that start] with {l}.", "[Keep|Select] only words with [first letter|initial] {l}: {x}",
          "Of {x}, which begin with {l}?", "Words that start with {l} in {x}?", "Filter by first letter {l}: {x}"]
PARITY = ["Which of [these numbers|the numbers|] {x} are {l}?", "[List|Name|Find|Give me|Pick] the {l} numbers[ in| of| from]: {x}", "{x}\nWhich [numbers |]are {l}?", "[Keep|Select] only the {l} numbers: {x}", "From {x}, [take|choose] the {l} ones.", "{l} numbers among {x}?", "Filter: {l} numbers only. {x}", "Of {x}, which are {l}?"]
JOINED = ["[Write|Put|Join] {x} with {n} between [them|the items].", "Join [these|the words|] {x} with {n}.", "[Separate|Divide] {x} by {n}.", "Use {n} [as separator|to separate]: {x}", "[Turn|Make] {x} into a list separated by {n}.", "{x}\nSeparate them with {n}.", "List {x} with {n} as the separator.", "Connect {x} with {n}."]
BULLETS = ["[Write|Make|Turn|Format] {x} [as|into] a {l} list.", "[Give me|Show] a {l} list of {x}.", "Make a {l} list: {x}", "{x}\nAs a {l} list, please.", "[Put|List] {x} as a {l} list, one [item |]a line.", "Please format as {l} list: {x}", "I want {x} as a {l} list."]
ADD = ["Add {a} to [the list|this list|]: {x}", "[Put|Append] {a} [at|to] the end of [the list |]{x}.", "[My list is|The list is|Here is my list:] {x}. Add {a}.", "{x}\nAdd {a}[ to it|].", "Insert {a} at the end: {x}", "I have {x}; add {a} and show me the list.", "Extend {x} by {a}."]
WITHOUT = ["Remove {a} from [the list|this list|]: {x}", "[Take|Delete|Drop] {a} [out of|from] [the list |]{x}.", "[My list is|The list is|Here is my list:] {x}. Remove {a}.", "{x}\nRemove {a}[ from it|].", "{x} without {a}[, please|]?", "Cross out {a}: {x}", "I have {x}; drop {a} and show me the rest."]
RUN = ["[Count|Please count|Can you count|Count up] from {a} to {b}.", "[List|Write|Print|Give me|Name] [all |]the [whole |]numbers from {a} to {b}[, separated by commas|].", "[Write|List] {a} to {b}.", "Numbers {a} [to|through] {b}[, please|].", "[Count|Go] up from {a} until you reach {b}.", "[What are|Which are] the numbers [between|from] {a} [and|to] {b}, both included?",
       "Start at {a} and count to {b}.", "Say the numbers from {a} up to {b}.", "[Count|Can you count|Please count|Count up|Now count] [up |]to {b}[ from {a}|]", "Numbers from {a} up to and including {b}.", "[List|Write|Print] the [whole |]numbers {a} [to|through] {b}.", "{a} to {b}, count."]
DOWN = ["[Count|Please count|Can you count] [down |backwards ]from {a} to {b}.", "[List|Write|Give me] the numbers from {a} down to {b}.", "[Do a|Give me a] countdown from {a} to {b}.", "Countdown[:| from] {a} to {b}[.|]", "Go down from {a} to {b}.", "Numbers {a} to {b}, [falling|backwards], please.", "Say the numbers from {a} down to {b}."]
STEPS = ["[Count|List|Write] by {k}s from {a} to {b}.", "[List|Give me|Write] [the |]multiples of {k} from {a} to {b}.", "[Count|Go] from {a} to {b} in steps of {k}.", "[Write|List] every {k}th number from {a} to {b}.", "From {a} to {b}, step {k}[, please|].", "Steps of {k}: {a} to {b}.", "Skip count by {k} from {a} to {b}."]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"]
SHORT_THOUGHT = ["I go through the list one by one.", "One by one.", "I keep the order of the list."]


SMALL = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()


def word_for(d: Draw, number: int):
    return SMALL[number] if number <= 20 and d.chance(0.12) else number


def show(d: Draw, items) -> str:
    items = [str(i) for i in items]
    style = d.range(0, 9)
    if style <= 6:
        return ", ".join(items)
    if style == 7 and len(items) > 1:
        return ", ".join(items[:-1]) + " and " + items[-1]
    if style == 8 and all(" " not in i for i in items):
        return " ".join(items)
    return "[" + ", ".join(items) + "]"


def some_words(d: Draw, low: int, high: int) -> list:
    section = d.pick(["common", "common", "animal", "food", "object", "color", "noun", "first", "city"])
    count = d.range(low, high)
    items = []
    while len(items) < count:
        word = d.made_up() if d.chance(0.12) else d.word(section)
        if word not in items:
            items.append(word)
    return items


def some_numbers(d: Draw, low: int, high: int) -> list:
    top = d.pick([9, 20, 99, 99, 999, 9999])
    return [d.number(-20, top) if d.chance(0.05) else d.number(0, top) for _ in range(d.range(low, high))]


def listing(d: Draw) -> Task:
    style = d.pick(["sort"] * 5 + ["sort_numbers"] * 4 + ["reverse", "count", "count", "nth", "nth", "extreme", "dedupe", "has", "starts", "parity", "join", "bullets", "add", "without", "run", "run", "down", "steps"])

    def task(templates, answer, thought, check=None, kind="list", **slots):
        return Task(kind, d.ask(templates, **slots), answer, thought, check or exact(answer), plain=True)

    if style == "sort":
        items = some_words(d, 3, 8)
        ordered = sorted(items, key=str.lower)
        begins = ", ".join(f"{i}: {' '.join(i[:3].lower())}" for i in items)
        return task(SORT_WORDS, ", ".join(ordered), f"{begins}. Sorted: {', '.join(ordered)}.", kind="sort", x=show(d, items))
    if style == "sort_numbers":
        items = list(dict.fromkeys(some_numbers(d, 3, 8)))
        down = d.chance(0.4)
        ordered = sorted(items, reverse=down)
        up = d.say(["[in descending order|from largest to smallest|from high to low|from biggest to smallest]"] if down else ["[in ascending order|from smallest to largest|from low to high|by size]"])
        thought = f"The {'largest' if down else 'smallest'} is {ordered[0]}, then " + ", ".join(str(i) for i in ordered[1:]) + "." if len(ordered) > 1 else "There is one number."
        return task(SORT_NUMBERS, ", ".join(map(str, ordered)), thought, kind="sort", x=show(d, items), up=up, order="descending" if down else "ascending")
    if style == "reverse":
        items = some_words(d, 3, 8) if d.chance(0.6) else some_numbers(d, 3, 8)
        return task(REVERSED, ", ".join(str(i) for i in reversed(items)), "I start from the end.", x=show(d, items))
    if style == "count":
        items = some_words(d, 2, 12)
        return task(COUNT, d.say(["There are {k} items.", "The list has {k} items.", "That is {k} items."], k=len(items)), "Counting: " + ", ".join(f"{w} {i + 1}" for i, w in enumerate(items)) + ".", number(len(items)), kind="count", x=show(d, items))
    if style == "nth":
        items = some_words(d, 3, 9)
        place = d.range(0, min(len(items), 8) - 1)
        order, item = (ORDINALS[place], items[place]) if d.chance(0.75) else ("last", items[-1])
        return task(NTH, f"The {order} item is {item}.", "In order: " + ", ".join(f"{i + 1} {w}" for i, w in enumerate(items)) + ".", contains(f"is {item}"), x=show(d, items), o=order)
    if style == "extreme":
        items = list(dict.fromkeys(some_numbers(d, 3, 8)))
        big = d.chance(0.5)
        value = max(items) if big else min(items)
        name = d.pick(["largest", "biggest", "greatest", "highest", "maximum"] if big else ["smallest", "lowest", "least", "minimum"])
        return task(EXTREME, f"The {name} is {value}.", f"Sorted: {', '.join(map(str, sorted(items)))}. The {name} is {value}.", number(value), x=show(d, items), l=name)
    if style == "dedupe":
        items = some_words(d, 3, 6)
        doubled = items + [d.pick(items) for _ in range(d.range(1, 3))]
        d.rng.shuffle(doubled)
        return task(DEDUPE, ", ".join(dict.fromkeys(doubled)), d.pick(SHORT_THOUGHT), x=show(d, doubled))
    if style == "has":
        items = some_words(d, 3, 9)
        item = d.pick(items) if d.chance(0.5) else d.any_word()
        inside = item in items
        return task(HAS, f"Yes, {item} is in the list." if inside else f"No, {item} is not in the list.", "The list has " + ", ".join(items) + f". {item} is {'there' if inside else 'missing'}.", contains("Yes" if inside else "No"), x=show(d, items), a=item)
    if style == "starts":
        items = [w.lower() for w in some_words(d, 4, 9)]
        letter = d.pick(items)[0]
        found = [w for w in items if w[0] == letter]
        return task(STARTS, ", ".join(found), ", ".join(f"{w} {'yes' if w[0] == letter else 'no'}" for w in items) + ".", x=show(d, items), l=d.pick([letter, letter, letter.upper(), f'"{letter}"']))
    if style == "parity":
        items = some_numbers(d, 4, 9)
        even = d.chance(0.5)
        found = [n for n in items if (n % 2 == 0) == even]
        return task(PARITY, ", ".join(map(str, found)) or "None of them.", ", ".join(f"{n} {'even' if n % 2 == 0 else 'odd'}" for n in items) + ".", x=show(d, items), l="even" if even else "odd")
    if style == "join":
        items = some_words(d, 3, 6)
        mark, name = d.pick([("-", "a hyphen"), ("-", "hyphens"), (" / ", "slashes"), ("; ", "semicolons"), (" | ", "a vertical bar"), ("_", "underscores"), (" and ", '"and"'), (" or ", '"or"'), (" + ", "plus signs"), (", ", "commas"), (" ", "spaces")])
        return task(JOINED, mark.join(items), f"Between the items goes {name}.", x=", ".join(items), n=name)
    if style == "bullets":
        items = some_words(d, 2, 6)
        numbered = d.chance(0.5)
        answer = "\n".join(f"{i + 1}. {w}" if numbered else f"- {w}" for i, w in enumerate(items))
        return task(BULLETS, answer, "One item on each line.", x=show(d, items), l="numbered" if numbered else d.pick(["bullet", "bulleted"]))
    if style == "add":
        items, new = some_words(d, 2, 7), d.any_word()
        return task(ADD, ", ".join(items + [new]), f"{new} goes to the end.", x=show(d, items), a=new)
    if style == "without":
        items = some_words(d, 3, 7)
        old = d.pick(items)
        return task(WITHOUT, ", ".join(i for i in items if i != old), f"Everything but {old}.", x=show(d, items), a=old)
    if style == "run":
        low = d.pick([1, 1, 1, d.number(0, 90), d.number(100, 900)])
        high = low + d.range(2, 20 if d.chance(0.85) else 60)
        high = low + d.range(60, 150) if d.chance(0.04) else high
        start, end = str(word_for(d, low)), str(word_for(d, high))
        made = task(RUN, ", ".join(map(str, range(low, high + 1))), f"I count from {low} to {high}.", kind="count", a=start, b=end)
        if low != 1 and start not in made.user.replace(end, ""):
            made.user = f"Count from {low} to {high}."
        if d.chance(0.15):
            made.user = strip_period(made.user) + d.pick([", one per line.", ", each on its own line.", ", one number a line."])
            made.answer = made.answer.replace(", ", "\n")
            made.check = exact(made.answer)
        return made
    if style == "down":
        low = d.pick([0, 1, 1, d.number(2, 80)])
        high = low + d.range(3, 15)
        return task(DOWN, ", ".join(map(str, range(high, low - 1, -1))), f"I count down from {high} to {low}.", kind="count", a=high, b=low)
    step, start = d.range(2, 10), d.range(0, 10)
    start = start if d.chance(0.4) else step
    end = start + step * d.range(3, 12)
    return task(STEPS, ", ".join(map(str, range(start, end + 1, step))), f"Each number is {step} more than the one before.", kind="count", k=step, a=start, b=end)


NAME_SOME = ["[Name|List|Give me|Tell me|Write] {k} {s}s.", "[Can|Could] you name {k} {s}s?", "[What are|Which are] {k} {s}s?", "{k} {s}s, please.", "I need {k} {s}s.", "Think of {k} {s}s.", "[Please |]list {k} different {s}s.", "Give {k} examples of {s}s."]
KIND_NAMES = [("animal", "animal"), ("color", "color"), ("color", "colour"), ("city", "citie"), ("food", "food"), ("job", "job"), ("instrument", "instrument"), ("first", "name"), ("language", "language"), ("country", "countrie"), ("hobby", "hobbie"), ("material", "material"), ("month", "month")]


def name_some(d: Draw) -> Task:
    section, name = d.pick(KIND_NAMES)
    count = d.range(2, 5)
    items = Draw(d.rng.random()).words(section, count)
    asked = d.ask(NAME_SOME, k=d.pick([["two", "2"], ["three", "3"], ["four", "4"], ["five", "5"]][count - 2]), s=name)
    return Task("open", asked, ", ".join(items), f"I need {count} of them.", {"type": "items", "count": count})


more.extend(globals())
