"""Faults in the middle of an answer (T60): one error, in the API's form, an end, and nothing left behind (I4)."""

import shutil

import numpy
import pytest
import safetensors.numpy

from conftest import TINY, events, serving

BAD = 700  # the token whose embedding is infinite in this model


@pytest.fixture(scope="module")
def broken(pergola, tmp_path_factory):
    """The golden model with one embedding beyond fp16: whoever meets that token gets logits that are no numbers."""
    folder = tmp_path_factory.mktemp("broken") / "model"
    shutil.copytree(TINY, folder)
    for path in folder.glob("*.safetensors"):
        tensors = safetensors.numpy.load_file(path)
        for name, tensor in tensors.items():
            if name.endswith("embed_tokens.weight_int8"):
                tensor[BAD] = 127
            if name.endswith("embed_tokens.weight_scale"):
                tensors[name] = tensor.astype(numpy.float32)
                tensors[name][BAD] = 1e6
        safetensors.numpy.save_file(tensors, path, metadata={"format": "pt"})
    with serving("--slots", 2, "--context", 2048, "--threads", 1, model=folder) as server:
        yield server


GOOD = {"prompt": "the", "max_tokens": 12, "temperature": 0, "ignore_eos": True, "logit_bias": {str(BAD): -100}}
# Not every choice of seed meets the token early: enough do.
RISKY = {"prompt": "the", "max_tokens": 200, "temperature": 1, "top_k": 0, "top_p": 1, "ignore_eos": True, "logit_bias": {str(BAD): 5}}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_an_answer_that_stops_being_numbers_ends_with_an_error(broken, path):
    expected = broken.post("/v1/completions", GOOD).json()["choices"]
    late = 0
    for seed in range(4):
        body = {**RISKY, "seed": seed}
        if path.endswith("chat/completions"):
            body = {**body, "messages": [{"role": "user", "content": body.pop("prompt")}]}
        streamed = broken.post(path, {**body, "stream": True})
        chunks, done = events(streamed.content)
        assert streamed.status_code == 200 and done
        error = chunks[-1]["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["code"] == "non_finite" and error["type"] == "server_error"
        assert all(c["choices"][0]["finish_reason"] is None for c in chunks[:-1])
        late += len(chunks) > 5
        plain = broken.post(path, body)
        assert plain.status_code == 500 and plain.json()["error"] == error
        assert broken.post("/v1/completions", GOOD).json()["choices"] == expected
    assert late >= 1, "no answer had begun before it failed"
    broken.idle()
    broken.healthy()


def test_a_prompt_that_gives_no_numbers_fails_alone_and_is_not_kept(broken):
    expected = broken.post("/v1/completions", GOOD).json()["choices"]
    bad = {**GOOD, "prompt": [5, 6, 7, BAD, 8, 9]}
    for _ in range(3):
        answer = broken.post("/v1/completions", bad)
        assert answer.status_code == 500 and answer.json()["error"]["code"] == "non_finite"
        chunks, done = events(broken.post("/v1/completions", {**bad, "stream": True}).content)
        assert done and [list(chunk) for chunk in chunks] == [["error"]]
    # What comes before the fault may be taken up again, what has it in it may not.
    usage = broken.post("/v1/completions", {**GOOD, "prompt": [5, 6, 7, 10]}).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] <= 3
    assert broken.post("/v1/completions", GOOD).json()["choices"] == expected
    assert broken.metric("vllm:request_success_total", finished_reason="error") >= 6


def test_neighbours_of_a_fault_get_their_answers(broken):
    import concurrent.futures

    expected = broken.post("/v1/completions", {**GOOD, "max_tokens": 60}).json()["choices"]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        good = [pool.submit(broken.post, "/v1/completions", {**GOOD, "max_tokens": 60}) for _ in range(6)]
        bad = [pool.submit(broken.post, "/v1/completions", {**GOOD, "prompt": [BAD] * 4}) for _ in range(6)]
        assert all(one.result().json()["choices"] == expected for one in good)
        assert all(one.result().status_code == 500 for one in bad)
    broken.healthy()
