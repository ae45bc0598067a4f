"""lm-eval with `local-completions`: log-likelihoods through echo, held to the program's own logits of the same tokens."""

import json
import os
import pathlib
import subprocess
import tempfile

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", TOKENIZERS_PARALLELISM="false")

import lm_eval
import numpy as np
from lm_eval.tasks import TaskManager
from safetensors.numpy import load_file

from checks import TINY, check, main

HERE = pathlib.Path(__file__).resolve().parent / "lm_eval"
MODEL = os.environ["PERGOLA_CHECKPOINT"]
PERGOLA = os.environ["PERGOLA"]
NAME = pathlib.Path(MODEL).name
TOLERANCE = 1e-4  # nats, of a whole continuation


def evaluate(task, **more):
    os.chdir(HERE)  # the tasks name their data beside themselves
    arguments = {"model": NAME, "base_url": f"{TINY}/completions", "tokenizer": MODEL, "tokenizer_backend": "huggingface",
                 "num_concurrent": 4, "max_retries": 1, "max_length": 2048, **more}
    return lm_eval.simple_evaluate(model="local-completions", model_args=arguments, tasks=[task], log_samples=True, bootstrap_iters=0,
                                   task_manager=TaskManager(include_path=str(HERE), include_defaults=False))


def log_probabilities(lists):
    """For each list of ids: the log-probability of every token behind the first, and whether it was the likeliest."""
    with tempfile.TemporaryDirectory() as folder:
        ids, out = pathlib.Path(folder, "ids.json"), pathlib.Path(folder, "out.safetensors")
        ids.write_text(json.dumps(lists))
        subprocess.run([PERGOLA, "logits", "--model", MODEL, "--ids", ids, "--out", out], check=True, capture_output=True)
        logits = load_file(out)
    rows = []
    for i, one in enumerate(lists):
        x = logits[f"logits.{i}"][:-1].astype(np.float64)
        top = x.max(-1, keepdims=True)
        x = x - top - np.log(np.exp(x - top).sum(-1, keepdims=True))
        y = x[np.arange(len(one) - 1), one[1:]]
        rows.append((y, y == x.max(-1)))
    return rows


def tokenize(text):
    result = subprocess.run([PERGOLA, "tokenize", "--model", MODEL], input=text, capture_output=True, text=True, check=True)
    return json.loads(result.stdout)["ids"]


def compare_choices(results):
    pairs = []
    for sample in results["samples"]["pergola_choice"]:
        for choice, response in zip(sample["doc"]["choices"], sample["filtered_resps"]):
            whole, context = tokenize(sample["doc"]["context"] + choice), tokenize(sample["doc"]["context"])
            pairs.append((whole, len(context), response))
    for (whole, n, response), (values, greedy) in zip(pairs, log_probabilities([p[0] for p in pairs])):
        assert abs(float(response[0]) - values[n - 1:].sum()) < TOLERANCE, (response, values[n - 1:].sum())
        assert bool(response[1]) == bool(greedy[n - 1:].all())
    assert len(pairs) == 23


@check
def multiple_choice_with_token_ids():
    compare_choices(evaluate("pergola_choice", tokenized_requests=True))


@check
def multiple_choice_with_texts():
    compare_choices(evaluate("pergola_choice", tokenized_requests=False))


@check
def multiple_choice_one_at_a_time_and_in_batches():
    one = evaluate("pergola_choice", num_concurrent=1)["samples"]["pergola_choice"]
    many = evaluate("pergola_choice", num_concurrent=1, batch_size=6)["samples"]["pergola_choice"]
    key = lambda rows: sorted(json.dumps(row["filtered_resps"]) for row in rows)
    assert key(one) == key(many)


@check
def accuracy_is_that_of_pergola_eval():
    theirs = evaluate("pergola_choice")["results"]["pergola_choice"]["acc,none"]
    result = subprocess.run([PERGOLA, "eval", "--model", MODEL, "--choices", HERE / "choices.jsonl", "--json"],
                            capture_output=True, text=True, check=True)
    ours = json.loads(result.stdout)
    assert abs(ours["accuracy"] - theirs) < 1e-9, (ours, theirs)


@check
def rolling_log_likelihood():
    results = evaluate("pergola_text")
    eos = results["config"].get("eot") or None
    for sample in results["samples"]["pergola_text"]:
        response = sample["filtered_resps"][0]
        value = float(response if not isinstance(response, (list, tuple)) else response[0])
        prefix = end_of_text()
        ids = tokenize(sample["doc"]["text"])
        (values, _), = log_probabilities([[prefix] + ids])
        assert abs(value - values.sum()) < TOLERANCE * max(1, len(ids) / 10), (value, values.sum(), len(ids), eos)


def end_of_text():
    """What lm-eval puts in front of a text: the tokenizer's end of text."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(MODEL).eos_token_id


if __name__ == "__main__":
    main("lm-eval")
