"""The tokenizer: byte-level BPE in the published layout, trained on the recipe's own text."""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import mixture
import render
from words import Draw

VOCAB = 2048
PATTERN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>",
           "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
MARKS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"]


def texts(count: int, seed: str):
    for i in range(count):
        d = Draw(f"{seed}-{i}")
        task = mixture.long_one(d, 300) if i % 20 == 0 else mixture.one(d)
        for text, _ in render.pieces(task, task.think == "on" or d.chance(0.5)):
            for mark in MARKS + ["<|im_start|>", "<|im_end|>"]:
                text = text.replace(mark, "\x00")
            yield from (part for part in text.split("\x00") if part)


def plain_words():
    """Each lexicon entry a few times, so that common words get a token beyond the templates."""
    from words import lexicon

    for section, entries in lexicon().items():
        for entry in entries:
            yield from (f" {entry}", f" {entry}", entry)


def train(count: int = 24000, seed: str = "vocab") -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False, use_regex=False)
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - len(CONTROL) - len(MARKS), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False, min_frequency=2)

    def source():
        yield from texts(count, seed)
        yield from plain_words()

    tokenizer.train_from_iterator(source(), trainer)
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in CONTROL])
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in MARKS])
    return tokenizer


def save(tokenizer: Tokenizer, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    added = {str(tokenizer.token_to_id(t)): {"content": t, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": t in CONTROL} for t in CONTROL + MARKS}
    config = {"added_tokens_decoder": added, "add_bos_token": False, "add_prefix_space": False, "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
              "model_max_length": 16384, "pad_token": "<|endoftext|>", "split_special_tokens": False, "tokenizer_class": "Qwen2Tokenizer", "unk_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def load(folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))


if __name__ == "__main__":
    import sys

    save(train(), Path(sys.argv[1]))
