"""Check the settings of an agent or a learner; errors name what is wrong in one sentence."""

import math
from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from numbers import Real
from typing import Any

import numpy as np

from tsucb.agent.knowledge import plain_name
from tsucb.checks import shown
from tsucb.contexts.readers import Arm
from tsucb.contexts.values import cell_of, values_of
from tsucb.models.adaptive_curves import CURVES, AdaptiveCurves
from tsucb.models.adaptive_linear import AdaptiveLinear
from tsucb.models.hashed_linear import HashedLinear
from tsucb.models.hybrid_curves import HYBRID, HybridCurves
from tsucb.models.model import Model
from tsucb.policies.exploring import Exploring
from tsucb.policies.names import check_policy
from tsucb.policies.ts_ucb import TSUCB

# Models that read contexts in any form if they are made for 0 features.
READ_ANY = AdaptiveCurves, AdaptiveLinear, HashedLinear, *HYBRID
MOST_CURVED_ARMS = 50  # a new agent with more arms has no curves: they cost K p³
MOST_DECLARED = 100_000  # features of the default model: an arm would need 80 GB


def default_model(features: int | None, described: bool, arms: Any) -> Model:
    """Return the model of an agent without one; `described` if its arms have features."""
    if described:
        return HybridCurves(0)
    if features and features > MOST_DECLARED:
        raise ValueError(
            f"the agent's own model takes at most {MOST_DECLARED:,} features, not "
            f"{shown(features)}; give fewer, or model=tsucb.HashedLinear()"
        )
    many = isinstance(arms, Sized) and len(arms) > MOST_CURVED_ARMS
    return AdaptiveCurves(features or 0, curves=0 if many else CURVES)


def check_seed(seed: Any) -> int:
    """Return a seed as an int, an arbitrary one for None; raise ValueError for any other."""
    entropy: Any = np.random.SeedSequence().entropy if seed is None else seed
    if not isinstance(entropy, int | np.integer) or entropy < 0:
        raise ValueError(f"seed must be a whole number of at least 0, but it is {shown(seed)}")
    return int(entropy)


def whole_policy(policy: Any, exploration: float) -> Any:
    """Return the policy with its floor; `TSUCB(1)` for None."""
    policy = check_policy(TSUCB() if policy is None else policy)
    if exploration == 0:
        return policy
    if not isinstance(exploration, Real) or not 0 < exploration <= 1:
        raise ValueError(f"exploration must be from 0 to 1, but it is {shown(exploration)}")
    return Exploring(policy, float(exploration))


def reward_number(reward: Any) -> float:
    """Return a reward as a float; raise TypeError if it is no number."""
    try:
        value = None if isinstance(reward, str | bytes) else float(reward)  # float("1") is 1.0
    except (TypeError, ValueError):
        value = None
    except OverflowError:
        value = math.inf
    if value is None:
        raise TypeError(f"a reward must be a number, not {shown(reward)}")
    return value


def check_ordered(arms: Any) -> None:
    """Raise TypeError for a set, whose order differs from process to process."""
    if isinstance(arms, set | frozenset):
        raise TypeError("arms must have an order, which a set has not; give a list of names")


def arm_names(arms: Iterable[Arm]) -> tuple[Arm, ...]:
    """Return the plain names of listed arms; raise TypeError or ValueError for bad ones."""
    check_ordered(arms)
    if isinstance(arms, str) or not isinstance(arms, Iterable):
        raise TypeError(f"arms must be a list of names, such as [{shown(arms)}]")
    names: dict[Arm, None] = {}
    for name in map(plain_name, arms):
        if name in names:
            raise ValueError(f"there is an arm {shown(name)} already; choose another name")
        names[name] = None
    if not names:
        raise ValueError("an agent needs at least one arm; give their names")
    return tuple(names)


def feature_names(features: Any) -> tuple[str, ...]:
    """Return the names of declared features; raise TypeError if they are not a list of strings."""
    # A set has no order, so its vectors would differ from process to process.
    if isinstance(features, Set) or not isinstance(features, Iterable):
        raise TypeError(f"features is their number or a list of names, not {shown(features)}")
    names = tuple(features)
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"features are named by strings, not by {shown(names)}")
    return tuple(str(name) for name in names)


def named_model(
    features: int | Sequence[str] | None, model: Model | None, described: bool, arms: Any
) -> tuple[tuple[str, ...] | None, Model]:
    """Return the names of the features, None without any, and the model."""
    if isinstance(features, str):
        raise TypeError(f"features is their number or a list of names, such as [{shown(features)}]")
    if isinstance(features, np.integer):
        features = int(features)
    names = None if features is None or isinstance(features, int) else feature_names(features)
    if names is not None and len(set(names)) < len(names):
        raise ValueError("a feature is named twice; give each a name of its own")
    number: Any = features if names is None else len(names)
    if model is None:
        return names, default_model(number, described, arms)
    if not isinstance(model, Model):
        raise TypeError("model must be an instance of a tsucb.Model, such as tsucb.NIGLinear(5)")
    expected = model.context_shape(1)[-1:]
    if number is not None and expected != (number,):
        raise ValueError(
            f"{type(model).__name__} has contexts of shape {expected}, but {number} features were "
            "given; leave off features or make them agree"
        )
    return names, model


def plain_features(features: Any) -> Any:
    """Return the features of an arm as a file can hold them: a dictionary, a list, or None."""
    if features is None:
        return None
    values, positional = values_of(features)
    cells = {name: cell_of(name, value, False) for name, value in values.items()}
    return list(cells.values()) if positional else cells


def features_of_arms(arms: Any) -> dict[Arm, Any]:
    """Return the features of arms that are given as a mapping; {} if there are none."""
    if not isinstance(arms, Mapping):
        return {}
    found = {plain_name(name): plain_features(features) for name, features in arms.items()}
    return found if any(each is not None for each in found.values()) else {}
