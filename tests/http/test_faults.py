"""Logits that are not finite, in a model made for it: the request ends with an error, and nobody else notices."""

import concurrent.futures
import shutil

import pytest

from conftest import TINY, events, serving

POISON = 700  # the token whose embedding is beyond what a float holds
CLEAN = [[5 + i, *range(40, 60 + i)] for i in range(8)]


@pytest.fixture(scope="module")
def poisoned(pergola, tmp_path_factory):
    """The golden model with the scale of one row of the embedding so large that its values become infinite: every stored number is
    finite, and the model is whole as long as that token is nowhere."""
    numpy = pytest.importorskip("numpy")
    safetensors = pytest.importorskip("safetensors.numpy")
    folder = tmp_path_factory.mktemp("poisoned") / "model"
    shutil.copytree(TINY, folder)
    shard = folder / "model-00002-of-00002.safetensors"
    tensors = safetensors.load_file(shard)
    (name,) = [n for n in tensors if n.endswith("embed_tokens.weight_scale")]
    tensors[name] = tensors[name].astype(numpy.float32)
    tensors[name][POISON] = 3e38
    safetensors.save_file(tensors, shard)
    with serving("--slots", 4, "--context", 1024, "--threads", 2, model=folder) as server:
        yield server


def ask(server, prompt, **more):
    body = {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logit_bias": {str(POISON): -100}, **more}
    return server.post("/v1/completions", body)


def test_a_poisoned_prompt_is_an_error_of_its_own(poisoned):
    cold = [ask(poisoned, p).json()["choices"] for p in CLEAN]
    used = poisoned.metric("pergola:snapshots_used")
    for _ in range(2):
        answer = ask(poisoned, [*CLEAN[0], POISON, *range(60, 90)])
        assert answer.status_code == 500 and answer.json()["error"]["code"] == "non_finite", answer.text
    poisoned.idle()
    assert poisoned.metric("pergola:snapshots_used") <= used, "nothing of it is kept"
    poisoned.healthy()
    assert [ask(poisoned, p).json()["choices"] for p in CLEAN] == cold


@pytest.mark.threads
def test_an_answer_that_fails_on_the_way_ends_with_one_error_and_disturbs_nobody(poisoned):
    cold = [ask(poisoned, p, max_tokens=24).json()["choices"][0]["text"] for p in CLEAN]
    drawn = {"logit_bias": {str(POISON): 100}}  # sampled at once: the state behind it is poisoned

    def one(i):
        if i % 2:
            return ask(poisoned, CLEAN[i // 2], max_tokens=24).json()["choices"][0]["text"]
        return ask(poisoned, CLEAN[i // 2], stream=True, max_tokens=24, **drawn)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(one, range(16)))
    assert answers[1::2] == cold
    for answer in answers[::2]:
        chunks, done = events(answer.content)
        assert answer.status_code == 200 and done and chunks[-1]["error"]["code"] == "non_finite"
        assert len(chunks) > 1 and all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1])
    poisoned.idle()
    poisoned.healthy()
    assert poisoned.metric("vllm:request_success_total", finished_reason="error") >= 8
    assert [ask(poisoned, p, max_tokens=24).json()["choices"][0]["text"] for p in CLEAN] == cold
