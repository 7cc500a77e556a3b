"""Everything that the package exports, found and made: no test keeps a list of its own."""

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
from tsucb.paper import datasets
from tsucb.record import Record
from tsucb.testing import example

EXPORTED = [getattr(tsucb, name) for name in tsucb.__all__]

# Values of optional parameters that lead through other code than the defaults do.
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
