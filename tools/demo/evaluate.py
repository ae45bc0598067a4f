"""Runs the held-out set against a server and reports the share of right answers by kind.

  python heldout.py heldout.jsonl
  python evaluate.py heldout.jsonl --url http://127.0.0.1:8000/v1

Needs httpx only. Every request is greedy (temperature 0). An answer that the server cuts off, or
an error, counts as wrong and is named.
"""

import argparse
import json
import os
import sys
import time

import httpx

from check import right, typed


def calls_of(message: dict, tools: list) -> list:
    """The structured calls of an answer, with arguments decoded; arguments that are no JSON stay text."""
    known = {t["function"]["name"] for t in tools}
    calls = []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        name = function["name"]
        calls.append({"name": name if name in known else f"unknown: {name}", "arguments": typed(function.get("arguments") or "{}", {"type": "object"})})
    return calls


def ask(client: httpx.Client, model: str, record: dict, most: int) -> tuple:
    """(right or not, what came back)"""
    body = {"model": model, "messages": record["messages"], "temperature": 0, "max_tokens": most, "chat_template_kwargs": {"enable_thinking": record["thinking"]}}
    if record.get("tools"):
        body["tools"] = record["tools"]
    answer = client.post("chat/completions", json=body)
    if answer.status_code != 200:
        return False, f"status {answer.status_code}: {answer.text[:200]}"
    choice = answer.json()["choices"][0]
    message = choice["message"]
    calls = calls_of(message, record.get("tools", []))
    shown = json.dumps({k: message.get(k) for k in ("reasoning_content", "content", "tool_calls") if message.get(k)}, ensure_ascii=False)
    if choice["finish_reason"] == "length":
        return False, "cut off: " + shown[-200:]
    return right(record["check"], message.get("content") or "", calls), shown


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", help="the JSON lines that heldout.py wrote")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--key", default=os.environ.get("PERGOLA_API_KEY", ""))
    parser.add_argument("--kinds", default="", help="only these kinds, separated by commas")
    parser.add_argument("--limit", type=int, default=0, help="at most so many of each kind")
    parser.add_argument("--max-tokens", type=int, default=700)
    parser.add_argument("--wrong", default="", help="write the wrong answers here, as JSON lines")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    with open(args.set, encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
    kinds, kept = set(filter(None, args.kinds.split(","))), {}
    for record in records:
        group = kept.setdefault(record["kind"], [])
        if (not kinds or record["kind"] in kinds) and (not args.limit or len(group) < args.limit):
            group.append(record)
    headers = {"authorization": f"Bearer {args.key}"} if args.key else {}
    client = httpx.Client(base_url=args.url.rstrip("/") + "/", timeout=600, headers=headers)
    model = client.get("models").raise_for_status().json()["data"][0]["id"]
    counts, wrong, begin = {}, [], time.time()
    for kind in sorted(kept):
        for record in kept[kind]:
            good, shown = ask(client, model, record, args.max_tokens)
            for key in (kind, "held-out wording" if record["fresh"] else "known wording, held-out words", "thinking" if record["thinking"] else "no thinking", "all"):
                count = counts.setdefault(key, [0, 0])
                count[0] += good
                count[1] += 1
            if not good:
                wrong.append({"id": record["id"], "asked": record["messages"][-1]["content"], "wanted": record["answer"] or record.get("calls"), "got": shown})
        if kept[kind] and not args.json:
            print(f"{kind:32s} {counts[kind][0] / counts[kind][1]:6.1%} of {counts[kind][1]}", flush=True)
    if args.wrong:
        with open(args.wrong, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(w, ensure_ascii=False) + "\n" for w in wrong)
    if args.json:
        print(json.dumps({"model": model, "seconds": round(time.time() - begin, 1), "right": counts}))
    else:
        for key in ("held-out wording", "known wording, held-out words", "thinking", "no thinking", "all"):
            if key in counts:
                print(f"{key:32s} {counts[key][0] / counts[key][1]:6.1%} of {counts[key][1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
