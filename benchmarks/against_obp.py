# mypy: disable-error-code="import-not-found, import-untyped"
"""The estimators beside those of Open Bandit Pipeline, on the same log.

    python benchmarks/against_obp.py [FOLDER of its package, as PEERS/obp/lib/…/site-packages]

It prints its estimates, and `tests/test_offpolicy.py` holds ours to them on the log made here.
"""

import sys
from importlib.util import find_spec
from operator import attrgetter
from typing import Any
from unittest.mock import MagicMock

import numpy as np


def make_log(seed: int = 0, size: int = 2_000, arms: int = 5) -> dict[str, Any]:
    """Return a log with all propensities, a policy to evaluate, and slightly wrong predictions."""
    rng = np.random.default_rng(seed)
    means = rng.random((size, arms))
    scores = np.exp(2 * means)
    chances = 0.1 / arms + 0.9 * scores / scores.sum(axis=1, keepdims=True)
    arm = (rng.random((size, 1)) > np.cumsum(chances, axis=1)).sum(axis=1).clip(max=arms - 1)
    reward = (rng.random(size) < means[np.arange(size), arm]).astype(float)
    sharp = np.exp(8 * means)
    return {
        "arm": arm,
        "reward": reward,
        "propensity": chances,
        "target": sharp / sharp.sum(axis=1, keepdims=True),
        "predicted": 0.8 * means + 0.15,
    }


def stand_ins() -> None:
    """Replace modules that the package imports but its estimators do not use."""
    for name in ("torch", "seaborn", "pyieoe"):
        if find_spec(name) is None:
            module, empty = MagicMock(), type("Empty", (), {})
            module.Tensor = module.nn.Module = module.utils.data.Dataset = empty
            sys.modules[name] = module
            for part in ("nn", "nn.functional", "optim", "utils", "utils.data", "evaluator"):
                sys.modules[f"{name}.{part}"] = attrgetter(part)(module)


def main() -> None:
    """Print what Open Bandit Pipeline estimates."""
    sys.path += sys.argv[1:]
    stand_ins()
    from obp import ope

    log = make_log()
    size = log["arm"].size
    given = {
        "reward": log["reward"],
        "action": log["arm"],
        "pscore": log["propensity"][np.arange(size), log["arm"]],
        "action_dist": log["target"][:, :, None],
    }
    predicted = {"estimated_rewards_by_reg_model": log["predicted"][:, :, None]}
    ips, snips = ope.InverseProbabilityWeighting(), ope.SelfNormalizedInverseProbabilityWeighting()
    print("inverse_propensity", ips.estimate_policy_value(**given))
    print("self_normalised", snips.estimate_policy_value(**given))
    print("doubly_robust", ope.DoublyRobust().estimate_policy_value(**given, **predicted))
    switched = ope.SwitchDoublyRobust(tau=1.5)
    print("switch, largest=1.5", switched.estimate_policy_value(**given, **predicted))


if __name__ == "__main__":
    main()
