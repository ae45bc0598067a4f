"""A few hundred requests of the soak: what make soak does at length."""

import pytest

from conftest import SLOWDOWN
from soak.run import Soak, judge

REQUESTS = 300


@pytest.mark.threads
@pytest.mark.timeout(300 * SLOWDOWN)
def test_a_random_mix_of_clients_leaves_every_answer_right(pergola, tmp_path):
    report = Soak(seed=20260, n_requests=REQUESTS, parallel=32, directory=tmp_path).run()
    failures = judge(report)
    assert not failures, "\n\n".join(failures[:5])
    assert report["counts"]["compared"] > REQUESTS // 3
