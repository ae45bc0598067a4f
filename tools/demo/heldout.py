"""Writes the held-out set as JSON lines: python heldout.py --per-kind 40 OUT.jsonl

Each line is a chat request (messages, tools), whether thinking is on, the wanted answer and how
to check one (check.py). `fresh` marks examples whose wording or tool occurs in no training
example; the others are worded as in training but with words and numbers that training never has.
"""

import argparse
import json

import mixture


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--per-kind", type=int, default=40)
    args = parser.parse_args()
    with open(args.out, "w", encoding="utf-8") as file:
        for name, task, thinking in mixture.held_out(args.per_kind):
            file.write(json.dumps(mixture.as_record(task, name, thinking), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
