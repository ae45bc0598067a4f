"""Arithmetic: bare sums, sums in words, small stories; worked steps when thinking is on."""

import more
from task import Task, contains, number
from words import Draw

BARE = ["{e}", "{e} =", "{e}=?", "{e} = ?", "[What is|What's|whats] {e}?", "[Calculate|Compute|Work out|Solve|Evaluate|Find][:|] {e}", "How much is {e}?", "[Please |]tell me {e}.", "{e}?", "[Can|Could] you [calculate|compute|work out|solve] {e}?", "What does {e} [equal|make|come to]?", "[The result of|Result:] {e}?",
        "I need the [result|value] of {e}.", "[Do the sum|Quick sum|Maths question|Math question]: {e}", "Give me the answer to {e}.", "What do you get for {e}?", "Help me with {e}.", "Answer: {e}", "Do you know what {e} is?", "Say what {e} is.", "Let me know what {e} comes to."]
ONLY = [" [Only|Just] [the number|the result|the answer][, please|].", " Answer with [the number only|just the number|a number only].", " [Give|Reply with] only the [result|number]."]
PLUS = ["{a} plus {b}", "the sum of {a} and {b}", "{a} and {b} together", "{a} added to {b}", "{a} increased by {b}"]
MINUS = ["{a} minus {b}", "{b} subtracted from {a}", "the difference between {a} and {b}", "{a} less {b}", "{a} take away {b}"]
MULTIPLY = ["{a} times {b}", "the product of {a} and {b}", "{a} multiplied by {b}"]
OVER = ["{a} divided by {b}", "{a} over {b}"]
PLACES = ["ones", "tens", "hundreds", "thousands", "ten thousands"]


def add_steps(a: int, b: int) -> str:
    left, right = str(a)[::-1], str(b)[::-1]
    carry, steps = 0, []
    for i in range(max(len(left), len(right))):
        x, y = int(left[i]) if i < len(left) else 0, int(right[i]) if i < len(right) else 0
        total = x + y + carry
        steps.append(f"{PLACES[i]}: {x} + {y}" + (f" + {carry}" if carry else "") + f" = {total}" + (f", write {total % 10} carry 1" if total > 9 else ""))
        carry = total // 10
    return "; ".join(steps) + f". So {a + b}."


def subtract_steps(a: int, b: int) -> str:
    left, right = str(a)[::-1], str(b)[::-1]
    borrow, steps = 0, []
    for i in range(len(left)):
        x, y = int(left[i]) - borrow, int(right[i]) if i < len(right) else 0
        short = x < y
        steps.append(f"{PLACES[i]}: {x + 10 if short else x} - {y} = {x + (10 if short else 0) - y}" + (", borrow 1" if short else ""))
        borrow = 1 if short else 0
    return "; ".join(steps) + f". So {a - b}."


def times_steps(a: int, b: int) -> str:
    if a < 10 and b < 10:
        return f"{a} * {b} = {a * b}."
    if b > a:
        a, b = b, a
    if b >= 10:
        tens, ones = b // 10 * 10, b % 10
        parts = [p for p in (tens, ones) if p]
        lines = [f"{a} * {p} = {a * p}" for p in parts]
        return "; ".join(lines) + f". Together {' + '.join(str(a * p) for p in parts)} = {a * b}."
    parts = [int(c) * 10 ** (len(str(a)) - 1 - i) for i, c in enumerate(str(a)) if c != "0"]
    lines = [f"{p} * {b} = {p * b}" for p in parts]
    return "; ".join(lines) + f". Together {' + '.join(str(p * b) for p in parts)} = {a * b}."


def operation(d: Draw, hard: bool):
    """(symbols, words, result, steps, operands)"""
    kind = d.pick("++++----**/")
    if kind == "+":
        top = d.pick([9, 20, 99, 99, 99, 999] + ([9999, 99999] if hard else []))
        a, b = d.number(0, top), d.number(0, top)
        return "+", PLUS, a + b, add_steps(a, b), a, b
    if kind == "-":
        top = d.pick([9, 20, 99, 99, 99, 999] + ([9999] if hard else []))
        a, b = sorted((d.number(0, top), d.number(0, top)), reverse=True)
        if d.chance(0.08):
            return "-", MINUS, b - a, f"{b} is less than {a}, so the result is negative: {a} - {b} = {a - b}, with a minus sign {b - a}.", b, a
        return "-", MINUS, a - b, subtract_steps(a, b), a, b
    if kind == "*":
        shape = d.pick([(9, 9), (9, 9), (12, 12), (99, 9)] + ([(99, 99), (999, 9)] if hard else []))
        a, b = d.number(0, shape[0]), d.number(0, shape[1])
        if d.chance(0.5):
            a, b = b, a
        return "*", MULTIPLY, a * b, times_steps(a, b), a, b
    b = d.range(2, 12)
    quotient = d.number(0, 12 if not hard else 99)
    return "/", OVER, quotient, f"{b} * {quotient} = {b * quotient}, so {b * quotient} / {b} = {quotient}.", b * quotient, b


SIGNS = {"+": ["+"], "-": ["-"], "*": ["*", "*", "x", "×"], "/": ["/", "/", "÷", ":"]}


def sums(d: Draw) -> Task:
    hard = d.chance(0.5)
    sign, words, result, steps, a, b = operation(d, hard)
    space = d.pick([" ", " ", ""])
    expression = f"{a}{space}{d.pick(SIGNS[sign])}{space}{b}" if d.chance(0.7) else d.say(words, a=a, b=b)
    text = d.ask(BARE, e=expression)
    only = d.chance(0.2)
    if only:
        text += d.say(ONLY)
    answer = str(result) if only else f"{a} {sign} {b} = {result}"
    return Task("arithmetic", text, answer, steps, number(result), think="on" if hard and max(a, b) > 99 and sign != "/" or (sign == "*" and min(a, b) > 9) else "any")


CHAIN = ["{e}", "{e} = ?", "[What is|Calculate|Compute|Work out] {e}[?|]", "How much is {e}?", "[Please |]solve {e}.", "Find the value of {e}.", "What do you get for {e}?", "Do this step by step: {e}"]


def chain(d: Draw) -> Task:
    values = [d.number(1, d.pick([9, 20, 50, 99])) for _ in range(d.range(3, 5))]
    total, text, steps = values[0], str(values[0]), []
    for value in values[1:]:
        if d.chance(0.35) and total - value >= 0:
            steps.append(f"{total} - {value} = {total - value}")
            total, text = total - value, f"{text} - {value}"
        else:
            steps.append(f"{total} + {value} = {total + value}")
            total, text = total + value, f"{text} + {value}"
    return Task("arithmetic", d.ask(CHAIN, e=text), f"{text} = {total}", "; ".join(steps) + ".", number(total), think="on" if len(values) > 3 else "any")


STORY_PLUS = ["{n} has {a} {x}s and [gets|buys|finds|is given] {b} more. How many {x}s does {n} have[ now| in all| altogether|]?", "There are {a} {x}s [in|on] the {p}. {n} brings {b} more. How many {x}s are there [now|in the end|altogether]?",
              "{n} [bought|collected|sold|counted] {a} {x}s on {d} and {b} on {e}. How many {x}s is that [in all|altogether|in total]?", "{n} has {a} {x}s. {m} has {b} {x}s. How many do they have together?", "A {p} holds {a} {x}s and {b} {y}s. How many things are that [in total|altogether]?",
              "If {n} [picks|carries] {a} {x}s and {m} [picks|carries] {b}, how many {x}s do they have [in all|together]?", "{a} {x}s are in one box and {b} in another. How many {x}s are there in both?", "First {n} finds {a} {x}s, then {b} more. What is the total?"]
STORY_MINUS = ["{n} has {a} {x}s and [gives|sells|hands] {b} [of them |]to {m}. How many {x}s does {n} have left?", "There are {a} {x}s in the {p}. {b} [are taken away|are sold|break|get lost]. How many [are left|remain]?", "{n} had {a} {x}s and lost {b}[ of them|]. How many are left?",
               "A {p} has {a} {x}s. {n} takes {b}. How many {x}s remain?", "{n} needs {a} {x}s but has only {b}. How many are missing?", "{n} has {a} {x}s, {m} has {b}. How many more does {n} have?", "From {a} {x}s, {n} throws {b} away. How many stay?", "Of {a} {x}s, {b} are {c}. How many are not {c}?"]
STORY_TIMES = ["{n} has {a} [boxes|bags|baskets] with {b} {x}s each. How many {x}s is that[ in all|]?", "There are {b} {x}s in each of {a} [boxes|crates|drawers]. How many {x}s are there altogether?", "A {x} costs {b} [dollars|euros|coins]. How much do {a} {x}s cost?", "{n} [walks|runs|drives] {b} km [a|every] day. How far is that in {a} days?",
               "One {x} weighs {b} kg. What do {a} {x}s weigh?", "{n} buys {a} {x}s at {b} euros each. What does {n} pay?", "Each of {a} children gets {b} {x}s. How many {x}s are needed?", "{a} shelves hold {b} {x}s each. How many {x}s in total?"]
STORY_OVER = ["{n} shares {a} {x}s equally among {b} [friends|children|people]. How many does each get?", "{a} {x}s are put into {b} [boxes|bags] with the same number in each. How many are in one?", "{n} pays {a} [dollars|euros] for {b} {x}s. What does one {x} cost?", "{a} {x}s are divided equally by {b}. How many is that each?",
              "A rope of {a} m is cut into {b} equal pieces. How long is each piece?", "{b} friends split {a} {x}s evenly. How many for each?", "How many {x}s does each of {b} people get from {a}?", "{a} {x}s fit in {b} equal rows. How many in a row?"]


def story(d: Draw) -> Task:
    n, m = d.names(2)
    slots = dict(n=n, m=m, x=d.word(d.pick(["object", "animal", "food"])), y=d.word("object"), p=d.word("place"), d=d.word("day"), e=d.word("day"), c=d.word("adjective"))
    kind = d.pick("++--*/")
    top = d.pick([10, 20, 50, 99])
    if kind == "+":
        a, b = d.number(2, top), d.number(2, top)
        text, result, steps, sign = d.ask(STORY_PLUS, a=a, b=b, **slots), a + b, add_steps(a, b), "+"
    elif kind == "-":
        a, b = sorted((d.number(2, top), d.number(1, top)), reverse=True)
        text, result, steps, sign = d.ask(STORY_MINUS, a=a, b=b, **slots), a - b, subtract_steps(a, b), "-"
    elif kind == "*":
        a, b = d.range(2, 10), d.number(2, 12)
        text, result, steps, sign = d.ask(STORY_TIMES, a=a, b=b, **slots), a * b, times_steps(a, b), "*"
    else:
        b, result = d.range(2, 9), d.number(2, 12)
        a = b * result
        text, steps, sign = d.ask(STORY_OVER, a=a, b=b, **slots), f"{b} * {result} = {a}.", "/"
    word = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}[sign]
    return Task("word problem", text, f"{a} {sign} {b} = {result}, so the answer is {result}.", f"The numbers are {a} and {b}. Here I {word}. {steps}", number(result))


COMPARE = ["Which is [larger|bigger|greater], {a} or {b}?", "Is {a} [larger|bigger|greater|more] than {b}?", "Is {a} [smaller|less] than {b}?", "Which is [smaller|less], {a} or {b}?", "Compare {a} and {b}.", "Which number is [higher|bigger|larger]: {a} or {b}?", "Of {a} and {b}, which is the larger?", "What is more, {a} or {b}?"]
PARITY = ["Is {a} [even|odd]?", "Is {a} an [even|odd] number?", "Even or odd: {a}?", "[Tell me|Say|Check] whether {a} is even or odd.", "Is the number {a} even or odd?", "{a}: even or odd?", "Do you know if {a} is even?"]
NEXT = ["[What comes|Which number comes|What number is] next: {x}?", "[Continue|Complete] the [sequence|series|pattern]: {x}", "{x}, ...?", "What is the next number in {x}?", "[Find|Give me] the next number: {x}", "{x}, and then?", "How does {x} go on?", "Next in the row {x}?"]
DOUBLE = ["[What is|What's] [double|twice] {a}?", "[Double|Twice] {a}[, please|]?", "Double the number {a}.", "[What is|What's] half of {b}?", "Half of {b}[, please|]?", "Halve {b}.", "What number is [one|1] more than {a}?", "What number comes [after|right after] {a}?", "What comes before {b}?", "What is {a} squared?"]


def small(d: Draw) -> Task:
    style = d.range(0, 3)
    if style == 0:
        a, b = d.number(0, d.pick([20, 99, 999, 9999])), d.number(0, d.pick([20, 99, 999, 9999]))
        b = b if a != b else a + 1
        text = d.ask(COMPARE, a=a, b=b)
        if text.startswith("Is"):
            yes = (a < b) if ("smaller" in text or "less" in text) else a > b
            word = "less" if a < b else "greater"
            return Task("numbers", text, f"{'Yes' if yes else 'No'}, {a} is {word} than {b}.", f"{max(a, b)} is the larger one.", contains("Yes" if yes else "No"))
        low = "smaller" in text or "less" in text
        value = min(a, b) if low else max(a, b)
        return Task("numbers", text, f"{value} is {'smaller' if low else 'larger'}.", f"{max(a, b)} is greater than {min(a, b)}.", number(value))
    if style == 1:
        a = d.number(0, d.pick([9, 99, 999, 9999]))
        return Task("numbers", d.ask(PARITY, a=a), f"{a} is {'even' if a % 2 == 0 else 'odd'}.", f"The last digit is {a % 10}, which is {'even' if a % 2 == 0 else 'odd'}.", contains(f"is {'even' if a % 2 == 0 else 'odd'}"))
    if style == 2:
        start, step, count = d.number(0, 50), d.range(1, 12), d.range(3, 5)
        falling = d.chance(0.25)
        values = [start + step * i for i in range(count + 1)]
        values = values[::-1] if falling else values
        return Task("numbers", d.ask(NEXT, x=", ".join(map(str, values[:-1]))), f"The next number is {values[-1]}.", f"Each number is {step} {'less' if falling else 'more'} than the one before: {values[-2]} {'-' if falling else '+'} {step} = {values[-1]}.", number(values[-1]))
    a = d.number(1, 99)
    b = 2 * d.number(1, 49)
    text = d.ask(DOUBLE, a=a, b=b)
    low = text.lower()
    if "squared" in low:
        a = d.range(1, 12)
        text, result, steps = f"What is {a} squared?", a * a, f"{a} * {a} = {a * a}."
    elif "half" in low or "halve" in low:
        result, steps = b // 2, f"{b} / 2 = {b // 2}."
    elif "before" in low:
        result, steps = b - 1, f"{b} - 1 = {b - 1}."
    elif "after" in low or "more than" in low:
        result, steps = a + 1, f"{a} + 1 = {a + 1}."
    else:
        result, steps = 2 * a, f"2 * {a} = {2 * a}."
    return Task("numbers", text, f"{result}", steps, number(result))


more.extend(globals())
