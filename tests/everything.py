"""Find and make everything that the package exports, so that no test keeps a list."""

import functools
import inspect
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

import tsucb
from tsucb.compiler import offers
from tsucb.models.model import forget
from tsucb.numeric.arrays import Floats
from tsucb.paper import datasets
from tsucb.record import Record

EXPORTED = [getattr(tsucb, name) for name in tsucb.__all__]

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


# Values of required parameters by name. Four arms, three features.
TYPICAL: dict[str, Any] = {
    "arms": 4,
    "features": 3,
    "horizon": 1000,
    "samples": 10,
    "gamma": 0.99,
    "noise": 0.5,
    "model": tsucb.NIGLinear(3),
    "policy": tsucb.TSUCB(7),
    "epsilon": 0.2,
    "estimator": LeastSquares(),
    # tables of data
    "contexts": _rng.normal(size=(300, 3)),
    "labels": _rng.integers(4, size=300),
    "edible": _rng.random(300) < 0.5,
    "ratings": _rng.normal(size=(300, 11)),
}


def example(cls: Callable[..., Any], **given: Any) -> Any:
    """Return an instance of a class, with typical values for the parameters that it requires."""
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


# Values of optional parameters for which other code runs than for the defaults.
OTHERWISE: dict[str, list[Any]] = {
    "samples": [1, math.inf],
    "first": [True],
    "empirical": [True, False],
    "laplace": [True],
    "features": [24],  # the layout of regressions changes at 20
    "context": [2],
    "hidden": [(6, 50)],
    "prior": [tsucb.GaussianArms(), tsucb.PoissonArms()],
    "redraw": [True],
    "availability": [0.5],
    "shared": [True],
}
# Settings with which a network trains in milliseconds.
QUICK = {
    "hidden": (6, 5),
    "memory": 64,
    "interval": 20,
    "training": tsucb.Training(memory=64, interval=20, batches=3, batch_size=16),
}
FEW = {"members": 3}  # of an ensemble
NARROW = {"bits": 6}  # of columns that are hashed


def made(cls: type) -> list[Any]:
    """Return a typical instance, and those that differ from it in one parameter that matters."""
    parameters = inspect.signature(cls).parameters
    usual = {name: value for name, value in (QUICK | FEW).items() if name in parameters}
    slow, usual = bool(usual), usual | {n: v for n, v in NARROW.items() if n in parameters}
    found = {repr(thing): thing for thing in [example(cls, **usual)]}
    for name in OTHERWISE.keys() & parameters.keys():
        if not (name == "features" and (slow or issubclass(cls, tsucb.Environment))):
            for value in OTHERWISE[name]:
                thing = example(cls, **usual | {name: value})
                found.setdefault(repr(thing), thing)
    return [found[key] for key in sorted(found)]


def concrete(kind: type, among: list[Any] = EXPORTED) -> list[type]:
    """Return the classes of a kind that can be made."""
    derived = [c for c in among if inspect.isclass(c) and issubclass(c, kind) and c is not kind]
    return [cls for cls in derived if issubclass(cls, tuple)]


def descendants(cls: type) -> list[type]:
    """Return all classes of the package that derive from this one, as far as they are loaded."""
    below = [each for child in cls.__subclasses__() for each in (child, *descendants(child))]
    return [each for each in below if each.__module__.startswith("tsucb.")]


def label(thing: Any) -> str:
    """Return a short name for a test."""
    if isinstance(thing, tsucb.Forgetting):
        return f"Forgetting-{label(thing.model)}"
    plain = [
        v for v in thing if isinstance(v, bool | int | float | tuple) and not isinstance(v, Record)
    ]
    inner = [type(v).__name__ for v in thing if isinstance(v, tsucb.Model)]
    return "-".join([type(thing).__name__, *inner, *map(str, plain[:3])]).replace(" ", "")


def network(cls: Any, *arguments: Any, **settings: Any) -> Any:
    """Return a network model; settings of its training go into a `Training`."""
    own = {name: settings.pop(name) for name in tsucb.Training._fields if name in settings}
    return cls(*arguments, training=tsucb.Training(**own), **settings)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def aside(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test that calls compiled code very often outside of the main thread.

    From the main thread, where signal handlers run, each call has a thread of its own, which takes
    ten times as long.
    """

    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(test, *arguments, **options).result()

    return run


POLICIES = [policy for cls in concrete(tsucb.Policy) for policy in made(cls)]
PLAIN_MODELS = [
    model for cls in concrete(tsucb.Model) if cls is not tsucb.Forgetting for model in made(cls)
]
FORGETTING = {
    type(model): tsucb.Forgetting(model, 0.9)
    for model in PLAIN_MODELS
    if offers(forget, type(model))
}
MODELS = PLAIN_MODELS + list(FORGETTING.values())
TABLES = [
    cls
    for cls in descendants(tsucb.Environment)
    if cls.__module__.startswith(datasets.__name__) and cls.__name__ != "Table"
]
ENVIRONMENTS = [
    bandit for cls in concrete(tsucb.Environment, EXPORTED + TABLES) for bandit in made(cls)
]
