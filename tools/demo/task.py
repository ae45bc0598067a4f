"""One training or test example: a conversation, the wanted answer, and how to check an answer."""

from dataclasses import dataclass, field


@dataclass
class Task:
    kind: str
    user: str = ""
    answer: str = ""
    thought: str = ""
    check: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)  # [{"name", "arguments"}]: the answer is these calls
    tools: list = field(default_factory=list)
    system: str = ""
    history: list = field(default_factory=list)  # messages before `user`
    after: list = field(default_factory=list)  # messages after `user`: calls already made and their results
    think: str = "any"  # "on" or "off" where only one fits
    fresh: bool = False  # worded (or with a tool) that training never sees
    note: str = ""  # a finer kind, for measuring
    plain: bool = False  # the wording must stay as it is: no greeting, no change of case or punctuation

    def messages(self) -> list:
        start = [{"role": "system", "content": self.system}] if self.system else []
        return start + self.history + [{"role": "user", "content": self.user}] + self.after


def exact(value: str) -> dict:
    return {"type": "exact", "value": value}


def contains(*values, none=()) -> dict:
    return {"type": "contains", "all": [str(v) for v in values], "none": [str(v) for v in none]}


def anything(*values) -> dict:
    """Right with any one of the values in it."""
    return {"type": "any", "any": [str(v) for v in values]}


def number(value) -> dict:
    return {"type": "number", "value": value}


def as_json(value) -> dict:
    return {"type": "json", "value": value}
