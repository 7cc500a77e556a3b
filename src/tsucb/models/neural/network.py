"""The base class of models with networks: settings, state, memory and forward pass."""

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import (
    Count,
    Natural,
    Positive,
    between,
    not_negative,
    number,
    positive,
    shown,
    whole_number,
)
from tsucb.compiler import compiled, implements
from tsucb.models.model import Model, training_due, update
from tsucb.models.state import MOST_REWARDS, Sizes, State, array, counts
from tsucb.numeric.arrays import Floats, Integers
from tsucb.record import Check, Record, derived

Singles = NDArray[np.float32]

MOST_NUMBER = 1e12  # in rewards and contexts: squared errors are finite in single precision
MOST_WEIGHT = 1e6  # in a network
MOST_OUTPUT = np.float32(1e25)  # of a hidden unit: sums of weights times outputs are finite
TINY = float(np.finfo(np.float64).tiny)


def optional(check: Check) -> Check:
    """Return a check that also accepts None."""
    return lambda name, value: None if value is None else check(name, value)


class Training(Record):
    """How a network is trained: by RMSProp on mini-batches of the remembered rewards.

    Parameters
    ----------
    memory
        The number of rewards to remember, with contexts; beyond it, the oldest are forgotten.
    interval
        The number of rewards between two trainings.
    batches, batch_size
        The number of mini-batches in a training, and of rewards in a mini-batch, which are drawn
        with replacement.
    rate, rate_decay
        The learning rate of mini-batch s is rate / (1 + rate_decay · s). By default 0.1 and 0.5 for
        `NeuralLinear`, where s is never reset; 0.03 and 0.1 for the others, where s starts at 0
        with each training.
    moment_decay
        The decay of RMSProp's second moments, which start at 1.
    clip_norm
        Gradients with a larger global norm are scaled down to this norm.
    weight_range
        All weights and biases start uniform in (−weight_range, weight_range).

    >>> Training(memory=500, batches=20)
    Training(memory=500, batches=20)
    """

    memory: Count = 10_000
    interval: Count = 50
    batches: Count = 100
    batch_size: Count = 512
    rate: Annotated[float | None, optional(positive)] = None
    rate_decay: Annotated[float | None, optional(not_negative)] = None
    moment_decay: Annotated[float, number("be at least 0 and below 1", lambda x: 0 <= x < 1)] = 0.9
    clip_norm: Positive = 5.0
    weight_range: Annotated[float, functools.partial(between, low=0, high=MOST_WEIGHT)] = 0.3


def training_settings(name: str, value: Any) -> Training:
    """Return a `Training`, given one or a mapping of its arguments, as in a TOML file."""
    if isinstance(value, Mapping):
        value = Training(**value)
    if not isinstance(value, Training):
        raise TypeError(
            f"{name} must be a tsucb.Training, such as Training(memory=500), not {shown(value)}"
        )
    return value


def layer_widths(name: str, value: Sequence[int]) -> tuple[int, ...]:
    """Return the widths of hidden layers, at least one, as a tuple."""
    if not isinstance(value, Iterable) or isinstance(value, str | bytes):
        raise TypeError(f"{name} must be a tuple of widths, such as (50, 50), not {shown(value)}")
    widths = tuple(whole_number(f"a width in {name}", width) for width in value)
    if not widths:
        raise ValueError(f"{name} is empty; give at least one hidden layer, such as (50, 50)")
    return widths


class NetworkState(State):
    """N networks, and the rewards that they remember.

    The parameters of a network are one vector: for each layer the weights by rows, then the biases.
    """

    pulls: Floats = counts("arm")
    parameters: Singles = array(
        "network", "parameter", dtype=np.float32, least=-MOST_WEIGHT, most=MOST_WEIGHT
    )
    # RMSProp's second moments.
    squares: Singles = array(
        "network", "parameter", start=1.0, dtype=np.float32, least=0.0, most=MOST_WEIGHT
    )
    # Networks that are never trained, for models with random priors.
    prior: Singles = array(
        "prior", "parameter", dtype=np.float32, least=-MOST_WEIGHT, most=MOST_WEIGHT
    )
    contexts: Singles = array(
        "memory", "feature", dtype=np.float32, least=-MOST_NUMBER, most=MOST_NUMBER
    )
    chosen: NDArray[np.int32] = array("memory", dtype=np.int32, least=0)  # arms
    rewards: Floats = array("memory", least=-MOST_NUMBER, most=MOST_NUMBER)
    # The standard deviation of the rewards remembered at the last training.
    spread: Floats = array(start=1.0, least=TINY, most=MOST_NUMBER)
    seen: Integers = counts(dtype=np.int64)  # rewards so far
    batches: Integers = array(dtype=np.int64, least=0, most=MOST_REWARDS)  # mini-batches so far
    key: NDArray[np.uint32] = array(2, dtype=np.uint32, least=0)  # seed of the mini-batches

    @classmethod
    def blank(cls, sizes: Sizes) -> Self:
        """Return networks of zeros, whose last layer has outputs for each arm."""
        size = sizes["hidden parameter"] + sizes["arm"] * sizes["arm parameter"]
        return super().blank({**sizes, "parameter": size})

    def check(self, rewards: int) -> None:
        """Raise ValueError also for rewards of arms that do not exist."""
        super().check(rewards)
        if (self.chosen >= self.pulls.size).any():
            raise ValueError(f"chosen must name arms below {self.pulls.size}")


class NetworkModel(Model):
    """The base class of models that train N networks with H heads each.

    A network maps a context through hidden layers with ReLU to H outputs per arm. After every
    `training.interval` rewards it is trained, from where it was, on the squared error of the pulled
    arms' rewards. The networks of all runs of a simulation train at once.
    """

    state = NetworkState

    # Whether an untrained network is added to each trained one, and each head learns from a
    # bootstrap sample.
    has_priors: ClassVar[bool] = False

    # Whether the learning rate starts again with each training, or falls over a network's life.
    rate_restarts: ClassVar[bool] = True

    # Whether `install` takes Σ z zᵀ over every arm's remembered rows, (K, d + 2, d + 2). A row's z
    # has the d outputs of the last hidden layer, a constant, and the reward.
    sums_rows: ClassVar[bool] = False

    largest = MOST_NUMBER
    trains_together = True
    keeps_arms = True

    features: Count
    hidden: Annotated[tuple[int, ...], layer_widths] = (50, 50)
    _: KW_ONLY
    training: Annotated[Training, training_settings] = Training(rate=0.03, rate_decay=0.1)
    initial_pulls: Natural = 2  # type: ignore[misc]
    networks: int = derived()  # N
    heads: int = derived()  # H
    prior_scale: float = derived()  # 0 for models without it

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Set the class's learning rate if none was given; make one network with one head."""
        given, usual = values["training"], cls.__signature__.parameters["training"].default
        rate = usual.rate if given.rate is None else given.rate
        rate_decay = usual.rate_decay if given.rate_decay is None else given.rate_decay
        values["training"] = given._replace(rate=rate, rate_decay=rate_decay)
        values["networks"] = values["heads"] = 1
        values.setdefault("prior_scale", 0.0)

    def layer_shapes(self, arms: int) -> tuple[tuple[int, int], ...]:
        """Return the numbers of inputs and outputs of every layer; the last has heads × arms."""
        widths = (self.features, *self.hidden, self.heads * arms)
        return tuple(zip(widths[:-1], widths[1:], strict=True))  # noqa: RUF007

    def sizes(self) -> dict[str, int]:
        """Return the sizes of memory and networks."""
        *hidden, (width, _) = self.layer_shapes(0)
        return {
            "coefficient": width,
            "feature": self.features,
            "memory": self.training.memory,
            "network": self.networks,
            "prior": self.networks if self.has_priors else 0,
            "hidden parameter": sum((inputs + 1) * outputs for inputs, outputs in hidden),
            "arm parameter": (width + 1) * self.heads,
        }

    def prior(self, state: Any, rng: np.random.Generator | None = None) -> None:
        """Draw all networks, in place; without `rng` the same every time."""
        rng = np.random.default_rng(0) if rng is None else rng
        most = self.training.weight_range
        for networks in (state.parameters, state.prior):
            networks[:] = rng.uniform(-most, most, networks.shape)
        state.key[:] = rng.integers(0, 2**32, size=2, dtype=np.uint32)

    def extend(self, state: Any, arms: int) -> Any:
        """Return a state with further arms at the end; their outputs are drawn."""
        old, hidden = state.pulls.size, self.sizes()["hidden parameter"]
        # The seed depends on the state, so equal states are extended alike.
        fresh = self.start(old + arms, np.random.default_rng([*state.key, old, arms]))
        for name in ("parameters", "squares", "prior"):
            before, after = getattr(state, name), getattr(fresh, name)
            after[:, :hidden] = before[:, :hidden]
            # The last layer is a matrix with a column per head and arm; biases are its last row.
            last = len(before), self.hidden[-1] + 1, self.heads
            outputs = before[:, hidden:].reshape(*last, old)
            after[:, hidden:].reshape(*last, old + arms)[..., :old] = outputs
        longer = state.joined(fresh.select(np.arange(old, old + arms)))
        return longer._replace(
            parameters=fresh.parameters, squares=fresh.squares, prior=fresh.prior
        )

    def trainer(self, states: Sequence[Any]) -> Callable[[], None]:
        """Return a function that trains the networks of these states together, in place."""
        from tsucb.models.neural.training import Trainer

        return Trainer(self, states)

    def install(self, state: Any, parameters: Singles, sums: Floats | None, spread: float) -> bool:
        """Compute in place what follows from trained parameters; return whether it is finite.

        `sums` are of every arm's rows, if the model `sums_rows`; `spread` is the standard deviation
        of the rewards.
        """
        return True


@compiled
def hidden_features(model, parameters, context):  # type: ignore[no-untyped-def]
    """Return h(x), the outputs of a network's last hidden layer."""
    values = context.astype(np.float32)
    start = 0
    for width in model.hidden:
        biases = start + values.size * width
        outputs = parameters[biases : biases + width].copy()
        for i in range(values.size):
            x = values[i]
            row = parameters[start + i * width : start + (i + 1) * width]
            for j in range(width):
                outputs[j] += x * row[j]
        for j in range(width):
            outputs[j] = min(max(outputs[j], np.float32(0.0)), MOST_OUTPUT)
        values = outputs
        start = biases + width
    return values.astype(np.float64)


@implements(update, NetworkModel)
@compiled
def remember(model, state, context, arm, reward):  # type: ignore[no-untyped-def]
    """Count a reward, and write it to the memory in place of the oldest."""
    place = state.seen[0] % state.rewards.size
    for i in range(context.size):
        state.contexts[place, i] = context[i]
    state.chosen[place] = arm
    state.rewards[place] = reward
    state.pulls[arm] += 1
    state.seen[0] += 1


@implements(training_due, NetworkModel)
def training_due_network(model, state):  # type: ignore[no-untyped-def]
    return state.seen[0] % model.training.interval == 0
