"""Random draws of the data recipe: words, names, numbers, phrasings.

Owns the split between training and held-out material. A `Draw` is made for one side and never
gives what belongs to the other: lexicon entries and made-up words are divided by a hash,
numbers by their leading digits, question phrasings by their place in their list.
"""

import functools
import random
import re
import zlib
from pathlib import Path

from more import vary

CLOSED = {"month", "day", "season", "language", "greek", "color"}
HELD_LEADING = {"37", "58", "83"}
ONSETS = "b c d f g h j k l m n p r s t v w z br ch cl cr dr fl fr gl gr kl kr pl pr sh sk sl sn st str sw th tr".split()
VOWELS = "a e i o u a e i o u ai ea ee ie oa oo ou".split()
CODAS = "b ck d f g k l ll m n nd ng nt p r rd rk rn s sh sk ss st t th x z".split()
GIVEN = "abcdefghijklmnopqrstuvwxyz"


def held_word(word: str) -> bool:
    return zlib.crc32(word.lower().encode()) % 9 == 0


def held_number(number: int) -> bool:
    digits = str(abs(number))
    return len(digits) > 1 and digits[:2] in HELD_LEADING


def held_phrasing(place: int, template: str) -> bool:
    return place % 7 == 6 and zlib.crc32(template.encode()) % 2 == 0


@functools.cache
def lexicon() -> dict:
    sections, entries = {}, None
    for line in (Path(__file__).parent / "lexicon.txt").read_text(encoding="utf-8").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            entries = sections.setdefault(line[1:-1], [])
        else:
            entries.extend(entry.strip() for entry in line.split(","))
    sections["common"] = sorted({w for s in ("animal", "food", "object", "noun", "adjective", "verb") for w in sections[s]})
    return sections


@functools.cache
def side_of(section: str, held: bool) -> tuple:
    entries = lexicon()[section]
    if section in CLOSED:
        return tuple(entries)
    return tuple(e for e in entries if held_word(e) == held)


@functools.cache
def phrasings(templates: tuple, held: bool) -> tuple:
    """About every fourteenth phrasing of a list is held out; a list without one gives the held-out side all."""
    kept = tuple(t for i, t in enumerate(templates) if held_phrasing(i, t) == held)
    return kept or templates


@functools.cache
def parse(template: str):
    """`[a|b|]` chooses, `{slot}` is filled; nested choices are allowed. Returns a tree of parts."""
    position = 0

    def sequence(stop):
        nonlocal position
        parts, text = [], []
        while position < len(template) and template[position] not in stop:
            char = template[position]
            if char == "[":
                if text:
                    parts.append("".join(text))
                    text = []
                position += 1
                options = [sequence("|]")]
                while template[position] == "|":
                    position += 1
                    options.append(sequence("|]"))
                position += 1
                parts.append(options)
            elif char == "{":
                if text:
                    parts.append("".join(text))
                    text = []
                end = template.index("}", position)
                parts.append((template[position + 1 : end],))
                position = end + 1
            else:
                text.append(char)
                position += 1
        if text:
            parts.append("".join(text))
        return parts

    return sequence("")


class Draw:
    """One stream of random choices for one side of the split."""

    def __init__(self, seed, held: bool = False):
        self.rng = random.Random(seed)
        self.held = held
        self.fresh = False  # whether a held-out phrasing was drawn
        self.early = False  # first part of the training: the tasks that grow with it stay small

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, options):
        return options[int(self.rng.random() * len(options))]

    def range(self, low: int, high: int) -> int:
        return low + int(self.rng.random() * (high - low + 1))

    def fill(self, template: str, varied: bool = False, **slots) -> str:
        out = []

        def walk(parts):
            for part in parts:
                if isinstance(part, str):
                    out.append(vary(part, self) if varied else part)
                elif isinstance(part, tuple):
                    out.append(str(slots[part[0]]))
                else:
                    walk(self.pick(part))

        walk(parse(template))
        return "".join(out)

    def say(self, templates, **slots) -> str:
        return self.fill(self.pick(templates), **slots)

    def ask(self, templates, **slots) -> str:
        """A phrasing from this side of the split, filled; on the training side some of its words are exchanged."""
        options = phrasings(tuple(templates), self.held)
        template = self.pick(options)
        if self.held:
            self.fresh |= held_phrasing(templates.index(template), template)
            return self.fill(template, **slots)
        return self.fill(template, varied=self.chance(0.45), **slots)

    def word(self, section: str = "common") -> str:
        return self.pick(side_of(section, self.held))

    def words(self, section: str, count: int) -> list:
        entries = side_of(section, self.held)
        if count > len(entries):
            raise ValueError(f"section {section}: {count} wanted, {len(entries)} there")
        return self.rng.sample(entries, count)

    def made_up(self, syllables: int = 0) -> str:
        """A pronounceable word of no language, from this side of the split."""
        while True:
            parts = []
            for _ in range(syllables or self.range(1, 3)):
                parts += [self.pick(ONSETS) if self.chance(0.9) else "", self.pick(VOWELS)]
            word = "".join(parts) + (self.pick(CODAS) if self.chance(0.6) else "")
            if len(word) > 2 and held_word(word) == self.held:
                return word

    def blend(self) -> str:
        """A word that does not exist, from the beginning of one real word and the end of another."""
        while True:
            a, b = self.word().replace(" ", ""), self.word().replace(" ", "")
            word = a[: self.range(2, max(2, len(a) - 1))] + b[self.range(1, max(1, len(b) - 2)) :]
            if 3 <= len(word) <= 12 and held_word(word) == self.held:
                return word

    def any_word(self) -> str:
        kind = self.rng.random()
        return self.made_up() if kind < 0.25 else self.blend() if kind < 0.45 else self.word()

    def name(self) -> str:
        if self.chance(0.2):
            return self.made_up(2).capitalize()
        return self.word("first")

    def names(self, count: int) -> list:
        found = []
        while len(found) < count:
            name = self.name()
            if name not in found:
                found.append(name)
        return found

    def full_name(self) -> str:
        last = self.made_up(2).capitalize() if self.chance(0.3) else self.word("last")
        return f"{self.name()} {last}"

    def city(self) -> str:
        return self.made_up(2).capitalize() if self.chance(0.15) else self.word("city")

    def number(self, low: int, high: int) -> int:
        """A whole number of this side; held-out numbers are those that begin with 37, 58 or 83."""
        for _ in range(2000):
            number = self.range(low, high)
            if held_number(number) == self.held or high < 37:
                return number
        return number

    def digits(self, count: int) -> str:
        while True:
            text = "".join(self.pick("0123456789") for _ in range(count))
            if (text[:2] in HELD_LEADING) == self.held or count < 2:
                return text

    def code(self) -> str:
        """A random string as in ticket numbers, keys and passwords."""
        while True:
            style = self.range(0, 6)
            if style == 0:
                text = self.digits(self.range(3, 8))
            elif style == 1:
                text = "".join(self.pick("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(self.range(2, 3))) + "-" + self.digits(self.range(2, 5))
            elif style == 2:
                text = "".join(self.pick("abcdefghijklmnopqrstuvwxyz0123456789") for _ in range(self.range(4, 12)))
            elif style == 3:
                text = self.any_word() + "-" + self.any_word() + ("-" + self.digits(2) if self.chance(0.5) else "")
            elif style == 4:
                text = "".join(self.pick("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") for _ in range(self.range(4, 10)))
            elif style == 5:
                text = self.any_word().upper()
            else:
                text = self.made_up() + self.digits(self.range(1, 4))
            if style in (0, 1, 3, 5) or held_word(text) == self.held:
                return text

    def time(self) -> str:
        hour, minute = self.range(1, 12), self.pick(["00", "15", "30", "45", "10", "20", "40", "50"])
        style = self.range(0, 3)
        if style == 0:
            return f"{hour} {self.pick(['am', 'pm'])}"
        if style == 1:
            return f"{hour}:{minute} {self.pick(['am', 'pm'])}"
        return f"{self.range(0, 23):02d}:{minute}"

    def date(self) -> str:
        day, month, year = self.range(1, 28), self.word("month"), self.number(1950, 2035)
        style = self.range(0, 3)
        if style == 0:
            return f"{month} {day}"
        if style == 1:
            return f"{day} {month} {year}"
        if style == 2:
            return f"{month} {day}, {year}"
        return f"{year}-{self.range(1, 12):02d}-{day:02d}"

    def iso_date(self) -> str:
        return f"{self.number(1990, 2035)}-{self.range(1, 12):02d}-{self.range(1, 28):02d}"

    def email(self) -> str:
        user = self.name().lower() + self.pick(["", ".", "_"]) + self.pick([self.made_up(2), self.digits(2), ""])
        return f"{user.rstrip('._')}@{self.pick([self.made_up(2), self.word('noun')])}.{self.pick(['com', 'org', 'net', 'io', 'de', 'example'])}".replace(" ", "")

    def path(self) -> str:
        stem = self.any_word().replace(" ", "_") + self.pick(["", "", self.digits(1), "_" + self.any_word().replace(" ", "_")])
        folder = self.pick(["", "", "", "/tmp/", "src/", "docs/", "./", self.made_up() + "/", "/home/" + self.made_up() + "/"])
        return folder + stem + "." + self.pick(["txt", "md", "py", "c", "json", "csv", "log", "html", "cfg", "yaml", "png", "pdf"])

    def url(self) -> str:
        return f"https://{self.pick(['www.', ''])}{self.made_up(2)}.{self.pick(['com', 'org', 'net', 'io'])}/{self.any_word().replace(' ', '-')}"

    def title(self) -> str:
        return self.say(["The {a} {n}", "{a} {n}", "A {n} of {m}", "The {n} and the {m}", "{n} at {m}"], a=self.word("adjective").capitalize(),
                        n=self.word("noun").capitalize(), m=self.word("noun").capitalize())

    def sentence(self) -> str:
        """A plain sentence without a meaning that matters."""
        noun = lambda: self.word(self.pick(["animal", "object", "food", "noun", "job"]))
        text = self.say(SENTENCES, n=self.name(), a=self.word("adjective"), b=self.word("adjective"), x=noun(), y=noun(), z=noun(), v=self.word("past"),
                        w=self.word("verb"), p=self.word("place"), c=self.city(), k=self.number(2, 99), d=self.word("day"))
        return text[0].upper() + text[1:]


SENTENCES = [
    "the {a} {x} {v} the {b} {y}.", "{n} {v} a {x} [near|behind|beside|in] the {p}.", "a {x} is [never|always|often|rarely] {a}.",
    "the {x} and the {y} were {a}.", "{n} [wants|likes|hopes|needs] to {w} the {x}.", "[on|last|every] {d} the {p} was {a} and {b}.",
    "there [are|were] {k} {a} {x}s in the {p}.", "no one {v} the {x} in {c}.", "{n} said that the {x} was too {a}.",
    "in {c} the {p} is {a}[, but the {x} is {b}|].", "[please|do not] {w} the {x} before {d}.", "the {x} of {n} is {a}.",
    "my {x} is more {a} than your {y}.", "{n}[ and {x}|] {v} the {y} with a {z}.", "when the {x} is {a}, the {y} will {w}.",
    "a {a} {x} [came|ran|went] to the {p}.", "[yesterday|today|once|later] {n} {v} {k} {x}s.", "the {p} has a {a} {x} and a {b} {y}.",
    "is the {x} {a} or {b}?", "what a {a} {x}!", "we {v} the {x}, the {y} and the {z}.", "every {x} in the {p} [must|can|may] {w}.",
    "{n} went to {c} to {w} a {x}.", "it was a {a} {d} and the {x} was {b}.", "[perhaps|maybe|surely] the {y} {v} the {x}.",
]


def strip_period(text: str) -> str:
    return re.sub(r"[.!?]+$", "", text)
