"""One small round of each trial in `tests/stress.py`."""

import functools

import pytest
import stress

SMALL = {
    "threads": functools.partial(stress.threads, count=8, calls=15),
    "evictions": functools.partial(stress.evictions, calls=40),
    "merges": functools.partial(stress.merges, steps=10),
    "parquet": functools.partial(stress.parquet, rows=60),
    "many arms": functools.partial(stress.many_arms, arms=500),
    "long runs": functools.partial(stress.long_runs, steps=200),
    "precision": functools.partial(stress.precision, rows=2_000),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", SMALL)
def test_a_small_round(name, tmp_path):
    assert SMALL[name](1, tmp_path) > 0
