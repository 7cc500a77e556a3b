"""Typical instances, found by the names of constructor parameters."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tsucb import beliefs
from tsucb.beliefs.belief import Belief
from tsucb.models.nig_linear import NIGLinear
from tsucb.numeric.arrays import Floats
from tsucb.policies.ts_ucb import TSUCB

_rng = np.random.default_rng(0)


class LeastSquares:
    """A regression with scikit-learn's methods and without scikit-learn."""

    def fit(self, x: Floats, y: Floats) -> "LeastSquares":
        """Return the coefficients, the constant last; a small ridge where rows are few."""
        z = np.column_stack((x, np.ones(len(x))))
        self.beta = np.linalg.solve(z.T @ z + 1e-6 * np.eye(z.shape[1]), z.T @ y)
        return self

    def predict(self, x: Floats) -> Floats:
        """Return the predictions of the coefficients."""
        predicted: Floats = x @ self.beta[:-1] + self.beta[-1]
        return predicted

    def __repr__(self) -> str:
        return "LeastSquares()"


# What a required parameter of this name is given. Four arms, three features.
TYPICAL: dict[str, Any] = {
    "arms": 4,
    "features": 3,
    "horizon": 1000,
    "samples": 10,
    "gamma": 0.99,
    "noise": 0.5,
    "model": NIGLinear(3),
    "policy": TSUCB(7),
    "epsilon": 0.2,
    "estimator": LeastSquares(),
    # beliefs, one entry per arm
    "mean": np.array([0.1, 0.2, 0.3, -0.5]),
    "std": np.array([1.0, 0.5, 0.1, 0.8]),
    "factor": np.array([[1.0, 0.0], [0.5, 0.5], [0.1, -0.3], [0.0, 1.0]]),
    "alpha": np.array([1.0, 3.0, 2.0, 5.0]),
    "beta": np.array([2.0, 1.5, 2.0, 9.0]),
    "shape": np.array([1.0, 3.0, 2.0, 6.0]),
    "rate": np.array([1.0, 2.0, 2.0, 9.0]),
    "centre": np.array([-2.0, 0.5, -0.5, -3.0]),
    "scale": np.array([1.0, 0.5, 0.1, 2.0]),
    "draws": _rng.normal([0.1, 0.2, 0.3, -0.5], [1.0, 0.5, 0.1, 0.8], size=(500, 4)),
    # tables of data
    "contexts": _rng.normal(size=(300, 3)),
    "labels": _rng.integers(4, size=300),
    "edible": _rng.random(300) < 0.5,
    "ratings": _rng.normal(size=(300, 11)),
}
PER_ARM = ("mean", "std", "factor", "alpha", "beta", "shape", "rate", "centre", "scale")


def example(cls: Callable[..., Any], **given: Any) -> Any:
    """Return an instance of a class, with typical values for the parameters that it requires.

    Parameters
    ----------
    cls
        A class, or a function that makes something, such as `tsucb.GaussianBelief`.
    given
        Parameters to give it in any case, required or not.

    >>> import tsucb
    >>> example(tsucb.HoeffdingUCB)
    HoeffdingUCB(horizon=1000)
    >>> example(tsucb.NIGLinear, features=5).features
    5
    """
    filled = {}
    for name in required(cls):
        if name not in given and name not in TYPICAL:
            raise TypeError(
                f"there is no typical value for the parameter {name} of {cls.__name__}; "
                f"give one: example({cls.__name__}, {name}=…)"
            )
        filled[name] = given.get(name, TYPICAL.get(name))
    return cls(**filled | given)


def required(cls: Callable[..., Any]) -> list[str]:
    """Return the names of the parameters without a default."""
    return [
        parameter.name
        for parameter in inspect.signature(cls).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    ]


def belief_makers() -> dict[str, Callable[..., Belief]]:
    """Return the functions of the package that make beliefs, one for each law, by their names."""
    exported = {name: getattr(beliefs, name) for name in beliefs.__all__}
    return {
        name: thing
        for name, thing in exported.items()
        if inspect.isfunction(thing) and inspect.signature(thing).return_annotation is Belief
    }


def example_beliefs(arms: int = 4) -> list[Belief]:
    """Return a belief of every law of the package about the first `arms` of four arms."""
    evidence = {"pulls": np.array([1, 4, 9, 2]), "step": 17}
    found = []
    for make in belief_makers().values():
        values = {name: TYPICAL[name] for name in required(make)} | evidence
        cut = {k: v[:arms] if k in (*PER_ARM, "pulls") else v for k, v in values.items()}
        if "draws" in cut:
            cut["draws"] = np.ascontiguousarray(cut["draws"][:, :arms])
        found.append(make(**cut))
    return found
