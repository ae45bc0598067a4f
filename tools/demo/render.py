"""Messages to text, exactly as chat_template.jinja renders them, but fast and in pieces.

A piece is (text, graded): graded text is what the model itself writes. Piece borders are where
a server cuts between prompt and answer, so tokenizing piece by piece gives the tokens of serving.
"""

import json

CALL_HELP = ("\n</tools>\nCall one with:\n<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>")


def call_text(calls: list) -> str:
    out = []
    for call in calls:
        lines = [f"<tool_call>\n<function={call['name']}>\n"]
        for key, value in call["arguments"].items():
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            lines.append(f"<parameter={key}>\n{text}\n</parameter>\n")
        out.append("".join(lines) + "</function>\n</tool_call>")
    return "\n".join(out)


def answer_text(content: str, calls: list) -> str:
    return content + ("\n\n" if content and calls else "") + (call_text(calls) if calls else "")


def head(system: str, tools: list) -> str:
    if tools:
        lines = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in tools)
        return ("<|im_start|>system\nTools you may call, one JSON signature a line:\n<tools>" + lines + CALL_HELP
                + ("\n\n" + system if system else "") + "<|im_end|>\n")
    return f"<|im_start|>system\n{system}<|im_end|>\n" if system else ""


def pieces(task, thinking: bool) -> list:
    """The whole conversation with its final answer."""
    messages = task.messages()
    system = ""
    if messages[0]["role"] == "system":
        system, messages = messages[0]["content"].strip(), messages[1:]
    last_user = max(i for i, m in enumerate(messages) if m["role"] == "user")
    out, text = [], head(system, task.tools)
    for i, message in enumerate(messages):
        content = (message["content"] or "").strip()
        if message["role"] == "user":
            text += f"<|im_start|>user\n{content}<|im_end|>\n"
        elif message["role"] == "tool":
            first = messages[i - 1]["role"] != "tool"
            final = i + 1 == len(messages) or messages[i + 1]["role"] != "tool"
            text += ("<|im_start|>user" if first else "") + f"\n<tool_response>\n{content}\n</tool_response>" + ("<|im_end|>\n" if final else "")
        else:
            body = answer_text(content, message.get("calls", []))
            if i < last_user:
                text += f"<|im_start|>assistant\n{body}<|im_end|>\n"
            else:
                text = add_answer(out, text, body, message.get("thought", ""), thinking)
    add_answer(out, text, answer_text(task.answer, task.calls), task.thought, thinking)
    return out


def add_answer(out: list, before: str, body: str, thought: str, thinking: bool) -> str:
    """Appends prompt and answer pieces; returns the text to go on with (none: it is all in `out`)."""
    if thinking:
        out.append((before + "<|im_start|>assistant\n<think>\n", False))
        out.append((f"{thought.strip()}\n</think>\n\n{body}<|im_end|>", True))
    else:
        out.append((before + "<|im_start|>assistant\n<think>\n\n</think>\n\n", False))
        out.append((f"{body}<|im_end|>", True))
    out.append(("\n", False))
    return ""
