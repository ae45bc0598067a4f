"""Copying, letters, cases and words of a text."""

import more
from task import Task, contains, exact, number
from words import Draw

COPY = [
    "[Repeat|Please repeat|Can you repeat|Could you repeat|Now repeat] after me: {x}", "Repeat [this|the following|the following text|these words][ exactly|, please|]: {x}",
    "[Copy|Please copy|Kindly copy] [this|the following|the text|this line] [exactly|word for word|verbatim|]: {x}", "Say [exactly |]this: {x}", "Echo[ this| back|]: {x}",
    "[Output|Print|Write|Return|Give me] [exactly |]the following[ text|] and nothing else:[\n\n|\n| ]{x}", "[Write|Type|Send] [this|the following] back to me: {x}",
    "[Reproduce|Copy] the [text|words|line] below [exactly|without changes|as it is].[\n\n|\n]{x}", "{x}\n\n[Repeat|Copy|Echo|Write] the [text|line|words] above[ exactly|, please|].",
    "I want you to [repeat|say|write]: {x}", "[Reply|Answer|Respond] with [exactly |]this[ text|]: {x}", "[Just|Simply|Only] [say|repeat|write|echo] [this|the following]: {x}",
    "Your [answer|reply|output] [must|should] be exactly this: {x}", "[Please |]mirror [my words|what I write|this back]: {x}", "Say it back to me: {x}",
    "[Can|Could|Would|Will] you [copy|echo|write out|type out] the following[ for me|]? {x}", "Read this back[ to me|]: {x}", "[Make|Give me] [an exact|a faithful|a] copy of this[ text| line|]: {x}",
    "[Text|Input|Message]: {x}\n[Task|Job|Instruction]: [repeat it|copy it|echo it][ exactly|].", "[I will give you a text|Here is a text]. [Repeat it|Copy it|Say it back] [word for word|exactly|without any change].[\n\n|\n]{x}",
    "[Simply |]restate the [following|text] without [any |]changes: {x}",
]
COPY_QUOTED = [
    "[Say|Repeat|Write|Echo|Please say|Please repeat|Can you say|Print|Output] {q}[ for me| back to me| please| exactly|].", "[Repeat|Copy|Echo] the [word|words|text|phrase|string] {q}.",
    "[Answer|Reply|Respond] [with|only with|just with] {q}.", "[Please |]type {q}.", "Say {q} [and nothing else|only|, nothing more].", "I want to [hear|read|see] {q}[ from you|].",
    "[Your only answer is|Answer simply|Let your reply be] {q}.", "[Could|Would|Will] you [please |][say|write|repeat|echo|type] {q}?", "Give me the [text|words] {q} back.",
    "What I want you to [say|write] is {q}.", "The [text|phrase|word] is {q}. [Say it|Repeat it|Write it|Copy it].", "Nothing but {q}, please.", "Write the [text|word|string] {q} without [the |]quotes.",
    "Just {q}, [please|nothing else].",
]
SINGLE = [
    "[Answer|Reply|Respond] with [just |only |]the [single |one |]word {w}.", "Say [just |only |]the [single |]word {w}.", "[Say|Write|Print|Type] {w}.", "[Just|Simply] say {w}.",
    "[Please |]answer [only|just] {w}.", "Your [whole |]answer [is|must be|should be] [the word |]{w}.", "[Return|Output|Give me] [only |just |]the word {w}[ and nothing else|].",
    "One word[ only|]: {w}.", "Reply {w}[ and nothing more|].", "[Can|Could] you [just |]say {w}?", "Answer {w}.", "If you can read this, [say|answer|reply with|write] {w}.",
    "[Test|This is a test|Testing]: [say|answer|reply with] {w}.", "Nothing but the word {w}, please.",
]
TIMES = ["[Say|Write|Repeat|Print|Type] {q} {k} times.", "[Repeat|Write|Say] the word {q} {k} times[ in a row|, separated by spaces|].", "{k} times {q}, please.", "[Can|Could] you [say|write|type] {q} {k} times?",
         "[Please |]output {q} {k} times[ on one line|].", "I need {q} [repeated |]{k} times.", "Give me {k} copies of the word {q}.", "Print {q} again and again, {k} times in all."]
COUNT_NAMES = {2: ["two", "2"], 3: ["three", "3"], 4: ["four", "4"], 5: ["five", "5"], 6: ["six", "6"]}
QUOTES = ['"{}"', '"{}"', "'{}'", "`{}`", "“{}”"]
UNICODE = "é è ü ö ä ß ñ ç å ø œ ı ğ ş č ž ł ń á ó ú â ê î ô û α β γ δ λ π ω д ж и я ш 你 好 世 界 水 火 日 月 あ い う え か な も ア カ ん ם א ת ع س م ₹ € £ ° § ± × → ← ✓ ★ ☕ 😀 🎉 🚀 🌍 🐱 🔥".split()
EMOJI = "😀 😂 🙂 😎 😍 🤔 🎉 🚀 🌍 🐱 🐶 🔥 ⭐ 🌈 🍕 🎵 👍 ❤️ ☀️ 🌙".split()


def payload(d: Draw) -> str:
    style = d.range(0, 15)
    if style <= 2:
        return " ".join(d.any_word() for _ in range(d.range(1, 8)))
    if style <= 5:
        return " ".join(d.sentence() for _ in range(d.pick([1, 1, 1, 2, 3])))
    if style == 6:
        return d.code()
    if style == 7:
        return " ".join(d.code() for _ in range(d.range(2, 6)))
    if style == 8:
        return "".join(d.pick("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") for _ in range(d.range(6, 28)))
    if style == 9:
        return d.pick([d.email, d.path, d.url, d.time, d.date])()
    if style == 10:
        return "\n".join(d.pick([d.any_word, d.sentence, d.code, d.name])() for _ in range(d.range(2, 6)))
    if style == 11:
        return d.say(["{a} = {f}({n}, '{b}')", "if {a} > {n}: return {b}", "for i in range({n}): print({a})", "<{a} id=\"{b}\">{n}</{a}>", "SELECT {a} FROM {b} WHERE id = {n};", "{a}[{n}] += {b}.{f}",
                      "def {f}({a}, {b}={n}):", '{{"{a}": {n}, "{b}": "{f}"}}'.replace("{{", "").replace("}}", ""), "let {a} = {b} + {n};", "$ {f} --{a} {n} -{b}"],
                     a=d.any_word().replace(" ", "_"), b=d.any_word().replace(" ", "_"), f=d.made_up(), n=d.number(0, 999))
    if style == 12:
        return " ".join(str(d.number(0, 9999)) for _ in range(d.range(2, 9)))
    if style == 13:
        return "".join(d.pick([d.pick(UNICODE), d.any_word(), " "]) for _ in range(d.range(3, 10))).strip() or "é"
    if style == 14:
        return ", ".join(d.any_word() for _ in range(d.range(3, 9)))
    word = d.any_word()
    return d.pick([word.upper(), word.capitalize(), word + "!", word + "?", f"({word})", word + "...", "".join(d.pick([c.upper(), c]) for c in word)])


COPY_THOUGHT = ["The user wants this text back, unchanged.", "I should repeat the text exactly.", "I have to copy the text as it stands.", "The task is to give the same text back."]


def copy(d: Draw) -> Task:
    style = d.range(0, 9)
    if style <= 5:
        text = payload(d)
        return Task("copy", d.ask(COPY, x=text), text, d.pick(COPY_THOUGHT), exact(text), plain=True)
    if style <= 7:
        text = payload(d).replace("\n", " ")
        quote = d.pick(QUOTES)
        if quote[0] in text or quote[-1] in text:
            quote = "<{}>" if '"' in text else '"{}"'
        return Task("copy", d.ask(COPY_QUOTED, q=quote.format(text)), text, d.pick(COPY_THOUGHT), exact(text), plain=True)
    if style == 8:
        word = d.pick([d.any_word(), d.any_word().upper(), d.any_word().upper(), d.pick(["YES", "NO", "OK", "TRUE", "DONE", "READY", "HELLO", "yes", "no"]), str(d.number(0, 999)), d.any_word().capitalize()])
        word = word.replace(" ", "-")
        return Task("copy", d.ask(SINGLE, w=d.pick(["{}", "{}", '"{}"']).format(word)), word, d.say(["The answer must be one word: {w}.", "I only have to say {w}."], w=word), exact(word), plain=True)
    word, count = d.any_word(), d.range(2, 6)
    text = " ".join([word] * count)
    return Task("copy", d.ask(TIMES, q=d.pick(QUOTES).format(word), k=d.pick(COUNT_NAMES[count])), text, f"The word is {word}, {count} times.", exact(text), plain=True)


def spaced(word: str, mark: str = " ") -> str:
    return mark.join(word)


def one(d: Draw, short: bool = False) -> str:
    while True:
        word = d.any_word()
        if " " not in word and word.isalpha() and len(word) <= (8 if short else 12):
            break
    return d.pick([word, word, word, word.capitalize(), d.name()]) if not short else word


W = "[word|string|text|] {q}"
REVERSE = ["Reverse the [word|string|letters of|text] {q}.", "[Write|Spell|Say|Type] {q} backwards.", "[What is|What's] {q} [backwards|reversed|spelled backwards|in reverse]?", "[Please |]reverse {q}[ for me|].",
           "[Can|Could] you reverse {q}?", "Turn {q} around, letter by letter.", "Give me {q} in reverse[ order|].", "How do you [spell|write] {q} backwards?", "[Reverse|Flip] [this word|the letters]: {w}",
           "backwards: {w}", "Spell {q} from the end to the start.", "{q} [reversed|backwards][, please|]?", "Put the letters of {q} in reverse order.", "Read {q} from right to left.", "I need {q} [backwards|reversed]."]
UPPER = ["[Write|Put|Convert|Turn|Change|Make] {q} [in|to|into] [upper case|uppercase|capital letters|capitals|all caps].", "[Uppercase|Capitalize every letter of] {q}.", "[What is|What's] {q} in [upper case|uppercase|capital letters]?",
         "[Please |]shout {q} in capital letters.", "to upper case: {w}", "[Can|Could] you [write|put] {q} in [capitals|capital letters|upper case]?", "Give me {q} in [all caps|upper case].", "Upper-case [this|the following]: {w}",
         "I need {q} in [big letters|capitals|upper case]."]
LOWER = ["[Write|Put|Convert|Turn|Change|Make] {q} [in|to|into] [lower case|lowercase|small letters].", "[Lowercase|Lower-case] {q}.", "[What is|What's] {q} in [lower case|lowercase|small letters]?", "to lower case: {w}",
         "[Can|Could] you [write|put] {q} in [small letters|lower case]?", "Give me {q} in [lower case|lowercase].", "No capitals, please: {w}", "I need {q} in [small letters|lower case]."]
TITLE = ["[Write|Put|Give me] {q} with a capital [first letter|letter at the start of each word].", "Capitalize [the first letter of |the words of |each word of |]{q}.", "[Convert|Change|Turn] {q} [to|into] title case.", "Title case[ for|:] {q}",
         "[Can|Could] you capitalize {q}?", "[Please |]capitalize {q}.", "Start [each|every] word of {q} with a capital letter.", "Make the first letter of each word in {q} a capital."]
SPELL = ["Spell [the word |]{q}.", "[Spell out|List] the letters of {q}[, separated by spaces|].", "How do you spell {q}?", "[What are|Which are|Name] the letters [of|in] {q}?", "[Can|Could] you spell {q}[ for me| letter by letter|]?",
         "Write {q} letter by letter.", "[Split|Break] {q} into letters.", "Put a space between the letters of {q}.", "Give me {q} one letter at a time."]
LENGTH = ["How many letters [are there in|are in|does|has] [the word |]{q}[ have|]?", "How long is the word {q}?", "Count the letters [in|of] {q}.", "[What is|What's] the length of {q}?", "[Number|Count] of letters in {q}?",
          "[Please |]count how many letters {q} has.", "[Tell me|Say] how many letters {q} has.", "{q}: how many letters?", "How many characters does {q} have?"]
OCCURS = ["How many [times does the letter |]{l}['s|s] are [there |]in {q}?", "How [often|many times] does [the letter |]{l} [occur|appear|come] in {q}?", "Count the [letter |]{l} in {q}.", "How many times is [the letter |]{l} in {q}?",
          "[Count|Find] how [often|many times] {l} [appears|occurs] in [the word |]{q}.", "In {q}, how many letters are {l}?", "[What is|What's] the number of {l}'s in {q}?", "Tell me how many {l} there are in the word {q}.",
          "Number of times the letter {l} appears in {q}?"]
FIRST = ["[What is|What's|Tell me|Give me] the {o} letter of [the word |]{q}[?|.]", "Which letter is the {o} [one |]in {q}?", "[The |]{o} letter of {q}?", "[Name|Say|Find] the {o} letter [of|in] {q}.", "[Which|What] letter [comes|stands] {o} in {q}?",
         "Give the {o} letter in {q}.", "In the word {q}, what is the {o} letter?", "{q}: {o} letter?"]
VOWEL = ["How many vowels are [there |]in {q}?", "Count the vowels [in|of] {q}.", "How many vowels does {q} have?", "[Number|Count] of vowels in {q}?", "[What is|Tell me] the number of vowels in {q}[.|?]", "{q}: how many vowels?", "Vowels in {q}, how many?",
         "[Please |]count vowels: {w}"]
REPLACE = ["Replace [the letter |every |each |]{l} [with|by] {m} in {q}.", "In {q}, [replace|change|swap] {l} [with|by|for] {m}.", "Change every {l} [in|of] {q} to {m}.", "[What is|What's] {q} with {m} instead of {l}?", "Put {m} for [each|every] {l} in {q}.",
           "Take {q} and turn each {l} into {m}.", "Substitute {m} for {l} in {q}.", "[Write|Give me] {q} with every {l} [changed|turned] to {m}."]
REMOVE = ["Remove [the letter |every |all |]{l} from {q}.", "[Delete|Drop|Take out] [the letter |every |each |]{l} [from|in] {q}.", "[Write|What is] {q} without [the letter |any |]{l}[?|.]", "{q} without the letter {l}[, please|]?", "Leave out [every|the] {l} in {q}.",
          "Strip the {l} from {q}.", "Give me {q} with no {l}.", "Erase all {l} in {q}."]
JOIN = ["[Join|Glue|Put|Stick] {a} and {b} together[ as one word|].", "Concatenate {a} and {b}.", "[What do you get when you|] join {a} and {b}[ into one word|]?", "Combine [the words |]{a} and {b} into [one|a single] word.",
        "[Make|Form] one word [of|from] {a} and {b}.", "Append {b} to {a}.", "Write {a} and {b} without a space between them.", "Merge {a} with {b}.", "Add {b} to the end of {a}."]
ORDINALS = ["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"]


def letters(d: Draw) -> Task:
    style = d.pick(["reverse"] * 4 + ["upper"] * 3 + ["lower"] * 2 + ["title"] * 2 + ["spell"] * 3 + ["length"] * 3 + ["occurs"] * 2 + ["first"] * 2 + ["vowels", "replace", "remove"] + ["join"] * 2)
    word = one(d, short=style == "reverse" and d.chance(0.7))
    q = d.pick(QUOTES + ["{}", "{}"]).format(word)
    seen = spaced(word)

    def task(templates, answer, thought, kind="letters", check=None, **slots):
        return Task(kind, d.ask(templates, q=q, w=word, **slots), answer, thought, check or exact(answer), plain=True)

    if style == "reverse":
        back = word[::-1]
        return task(REVERSE, back, d.say(["The letters are {s}. From the end: {r}. Joined: {b}.", "{w} is spelled {s}. Reversed that is {r}, so {b}."], s=seen, r=spaced(back), b=back, w=word), "reverse")
    if style in ("upper", "lower", "title"):
        text = d.pick([word, word, " ".join(d.any_word() for _ in range(d.range(2, 6))), d.sentence()])
        if style == "lower" or (style == "title" and d.chance(0.3)):
            text = d.pick([text.upper(), text.title(), text])
        q, word = d.pick(QUOTES[:3]).format(text) if d.chance(0.8) else text, text
        words = text.split(" ")
        answer = {"upper": text.upper(), "lower": text.lower(), "title": " ".join(w[:1].upper() + w[1:].lower() for w in words)}[style]
        name = {"upper": "upper case", "lower": "lower case", "title": "a capital at the start of each word"}[style]
        return task({"upper": UPPER, "lower": LOWER, "title": TITLE}[style], answer, f"The text should be in {name}.", "case")
    if style == "spell":
        mark = " "
        return task(SPELL, spaced(word, mark), f"I spell {word} letter by letter.")
    if style == "length":
        count = len(word)
        numbered = " ".join(f"{c} {i + 1}" for i, c in enumerate(word))
        return task(LENGTH, d.say(['The word "{w}" has {k} letters.', '"{w}" has {k} letters.'], w=word, k=count), f"Counting the letters: {numbered}. That makes {count}.", check=number(count))
    if style == "occurs":
        low = word.lower()
        letter = d.pick(low) if d.chance(0.8) else d.pick("aeiorstnl")
        count = low.count(letter)
        marks = " ".join(c + (" yes" if c == letter else " no") for c in low)
        times = {0: "does not occur", 1: "occurs 1 time"}.get(count, f"occurs {count} times")
        shown = d.pick([f'"{letter}"', letter, letter, f"'{letter}'"])
        return task(OCCURS, f'The letter {letter} {times} in "{word}".', f"Looking for {letter}: {marks}. Found: {count}.", check=contains(times), l=shown)
    if style == "first":
        place = d.range(0, min(len(word), 6) - 1)
        order = ORDINALS[place] if d.chance(0.7) else "last"
        letter = word[place] if order != "last" else word[-1]
        letter = letter.lower()
        return task(FIRST, d.say(['The {o} letter of "{w}" is {l}.'], o=order, w=word, l=letter), f"The letters are {seen.lower()}. The {order} is {letter}.", check=contains(f"is {letter}"), o=order)
    if style == "vowels":
        found = [c for c in word.lower() if c in "aeiou"]
        marks = " ".join(found) or "none"
        return task(VOWEL, f'"{word}" has {len(found)} vowel{"" if len(found) == 1 else "s"}.', f"The letters are {seen.lower()}. The vowels among them: {marks}. That makes {len(found)}.", check=number(len(found)))
    if style == "replace":
        letter, other = d.pick(word.lower()), d.pick("abcdefghijklmnopqrstuvwxyz")
        word, q = word.lower(), q.lower()
        answer = word.replace(letter, other)
        return task(REPLACE, answer, f"The letters are {spaced(word)}. With {other} for {letter}: {spaced(answer)}.", l=letter, m=other)
    if style == "remove":
        word, q = word.lower(), q.lower()
        letter = d.pick(word)
        answer = word.replace(letter, "") or "Nothing is left."
        return task(REMOVE, answer, f"The letters are {spaced(word)}. Without {letter}: {spaced(word.replace(letter, ''))}.", l=letter)
    other = one(d)
    quote = d.pick(QUOTES + ["{}"])
    return task(JOIN, word + other, f"{word} followed by {other}.", a=quote.format(word), b=quote.format(other))


WORD_COUNT = ["How many words are [there |]in {q}?", "Count the words [in|of] {q}.", "How many words does {q} have?", "[What is|Tell me] the number of words in {q}[?|.]", "[Word count|Number of words] of {q}?", "How many words: {q}",
              "Count words: {q}", "How long, in words, is {q}?"]
WORD_REVERSE = ["Reverse the [order of the words|word order] in {q}.", "[Write|Say|Give me] the words of {q} [backwards|in reverse order|from last to first].", "Put the words of {q} in reverse order.", "[What is|What's] {q} with the words in reverse order?",
                "Turn the word order of {q} around.", "Word by word from the end: {q}", "List the words of {q} starting with the last."]
NTH_WORD = ["[What is|What's|Give me] the {o} word [of|in] {q}[?|.]", "Which word [is|comes] {o} in {q}?", "[The |]{o} word of {q}?", "[Name|Find|Say] the {o} word in {q}.", "In {q}, what is the {o} word?", "{q}: {o} word?", "Pick out the {o} word of {q}."]
INITIALS = ["[What are|Give me|Write] the initials of {q}[?|.]", "[Take|Give me|Write] the first letter of each word in {q}.", "[Make|Form|What is] [an|the] acronym [of|from|for] {q}[?|.]", "First letters of the words in {q}?", "Which initials does {q} have?",
            "Build an acronym from {q}.", "Acronym of {q}, please."]
LONGEST = ["[What is|Which is] the {l} word in {q}?", "Find the {l} word [in|of] {q}.", "Which word in {q} is the {l}?", "{l} word of {q}?", "[Give me|Tell me] the {l} word in {q}.", "In {q}, which word is {l}?", "Name the {l} word here: {q}"]
SWAP = ["Replace [the word |]{a} [with|by] {b} in [this|the following|the] [sentence|text|line]: {x}", "In {q}, replace {a} [with|by] {b}.", "[Change|Swap] {a} [to|for|into] {b}: {x}", "Write {q} with {b} instead of {a}.", "[Take|Use] the [sentence|text] {q} and put {b} where it says {a}.",
        "{x}\nReplace {a} [with|by] {b}.", "Say {q} again, but with {b} in place of {a}."]
CONTAINS = ["Does {q} contain [the word |]{a}?", "Is [the word |]{a} in {q}?", "[Can|Do] you [find|see] [the word |]{a} in {q}?", "Is there a {a} in {q}?", "Does the word {a} [occur|appear] in {q}?", "Check whether {q} contains {a}.", "Tell me if {a} appears in {q}."]


def phrase(d: Draw) -> Task:
    style = d.pick(["count", "reverse", "nth", "nth", "initials", "longest", "swap", "swap", "contains"])
    words = [w for w in (d.any_word() for _ in range(d.range(3, 8))) if " " not in w]
    while len(set(words)) < 3:
        words.append(d.made_up())
    text = " ".join(words)
    quote = d.pick(QUOTES[:3])
    q = quote.format(text)
    if style == "count":
        marks = " ".join(f"{w} {i + 1}" for i, w in enumerate(words))
        return Task("words", d.ask(WORD_COUNT, q=q), f"There are {len(words)} words.", f"Counting: {marks}.", number(len(words)), plain=True)
    if style == "reverse":
        back = " ".join(reversed(words))
        return Task("words", d.ask(WORD_REVERSE, q=q), back, "I go through the words from the last to the first.", exact(back), plain=True)
    if style == "nth":
        place = d.range(0, min(len(words), 8) - 1)
        order = ORDINALS[place] if d.chance(0.75) else "last"
        word = words[place] if order != "last" else words[-1]
        return Task("words", d.ask(NTH_WORD, q=q, o=order), d.say(['The {o} word is "{w}".'], o=order, w=word), "In order: " + ", ".join(f"{i + 1} {w}" for i, w in enumerate(words)) + ".", contains(f'"{word}"'), plain=True)
    if style == "initials":
        answer = "".join(w[0].upper() for w in words)
        return Task("words", d.ask(INITIALS, q=q), answer, "First letters: " + ", ".join(f"{w} {w[0].upper()}" for w in words) + ".", exact(answer), plain=True)
    if style == "longest":
        words = sorted(set(words), key=words.index)
        longest = d.chance(0.6)
        by_length = sorted(words, key=len, reverse=longest)
        if len(by_length[0]) == len(by_length[1]):
            extra = d.made_up(1)[:3] if not longest else d.made_up(3) + d.made_up(3)
            if len(extra) == len(by_length[0]) or extra in words:
                extra = extra[:2] if not longest else extra + "s"
            words.insert(d.range(0, len(words)), extra)
            by_length = sorted(words, key=len, reverse=longest)
        name = d.pick(["longest", "longest"] if longest else ["shortest", "shortest"])
        q = quote.format(" ".join(words))
        return Task("words", d.ask(LONGEST, q=q, l=name), f'The {name} word is "{by_length[0]}".', "Lengths: " + ", ".join(f"{w} {len(w)}" for w in words) + ".", contains(f'"{by_length[0]}"'), plain=True)
    if style == "swap":
        text = d.sentence() if d.chance(0.6) else text
        inner = [w.strip(".,!?") for w in text.split(" ")]
        old = d.pick([w for w in inner if w])
        new = d.any_word()
        answer = " ".join(w.replace(old, new) if w.strip(".,!?") == old else w for w in text.split(" "))
        return Task("words", d.ask(SWAP, q=quote.format(text), x=text, a=old, b=new), answer, f"{old} becomes {new}; the rest stays.", exact(answer), plain=True)
    inside = d.chance(0.5)
    word = d.pick(words) if inside else d.any_word()
    inside = word in words
    return Task("words", d.ask(CONTAINS, q=q, a=d.pick(['"{}"', "{}"]).format(word)), f'{"Yes" if inside else "No"}, "{word}" is {"" if inside else "not "}in it.',
                "The words are: " + ", ".join(words) + f". {word} is {'among them' if inside else 'not among them'}.", contains("Yes" if inside else "No"), plain=True)


more.extend(globals())
