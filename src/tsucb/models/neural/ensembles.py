"""Models whose posterior is the predictions of several networks, or of several heads of one."""

import functools
from dataclasses import KW_ONLY
from typing import Annotated, Any

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.samples import Samples
from tsucb.checks import Positive, whole_number
from tsucb.compiler import compiled, implements
from tsucb.models.model import belief
from tsucb.models.neural.network import NetworkModel, hidden_features

Members = Annotated[int, functools.partial(whole_number, least=2)]


class DeepEnsemble(NetworkModel):
    """Networks that start at random and learn the same; their predictions are the posterior.

    Each is trained on the squared error of the pulled arms' rewards, from where it was. Networks
    agree where there are data; elsewhere they differ by their start and their mini-batches. Nothing
    is added where they agree too early.

    Training needs JAX and optax (`tsucb[deep]`) and runs on the device that JAX finds; in
    `simulate` the networks of all runs and policies train together.

    Parameters
    ----------
    features
        d', the length of a context.
    hidden
        Widths of the hidden layers.
    training
        See `Training`.
    initial_pulls
        How often every arm is pulled before the policy decides.
    members
        The number of networks.

    >>> model = DeepEnsemble(features=2, hidden=(8, 4), members=5)
    >>> state = model.start(arms=3)
    >>> model.update(state, context=[0.5, -1.0], arm=1, reward=1.0)
    >>> model.belief(state, [0.5, -1.0], rng=np.random.default_rng(0)).law.draws.shape
    (5, 3)

    Reference: Lakshminarayanan, Pritzel and Blundell (2017), "Simple and scalable predictive
    uncertainty estimation using deep ensembles".
    """

    _: KW_ONLY
    members: Members = 10

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Make every member a network."""
        super().prepare(values)
        values["networks"] = values["members"]


class BootstrappedHeads(NetworkModel):
    """One network with many heads, each with half of the data and its own random prior.

    All heads share the hidden layers. Head h predicts f(x, a) + β σ p(x, a): f is trained, p is an
    output of a random network that is never trained, and σ the standard deviation of the rewards.
    Where there are data, f makes up for p; where there are none, heads differ by p, even if their f
    agree. All of it costs little more than one network. For each head a random half of the rewards
    counts double, the other half not at all.

    Training needs JAX and optax (`tsucb[deep]`), and runs as for `DeepEnsemble`.

    Parameters
    ----------
    features, hidden, training, initial_pulls
        As in `DeepEnsemble`; the random network has the same layers.
    members
        The number of heads.
    prior_scale
        β, in standard deviations of the rewards.

    >>> model = BootstrappedHeads(features=2, hidden=(8, 4), members=5)
    >>> model.belief(model.start(arms=3), [0.5, 1.0], rng=np.random.default_rng(0)).mean.shape
    (3,)

    References: Osband, Blundell, Pritzel and Van Roy (2016), "Deep exploration via bootstrapped
    DQN"; Osband, Aslanides and Cassirer (2018), "Randomized prior functions for deep reinforcement
    learning".
    """

    has_priors = True

    _: KW_ONLY
    members: Members = 10
    prior_scale: Positive = 1.0

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Make every member a head."""
        super().prepare(values)
        values["heads"] = values["members"]


@implements(belief, DeepEnsemble, BootstrappedHeads)
def belief_of_members(model, state, context, arms, step, rng):  # type: ignore[no-untyped-def]
    count = state.pulls.size
    draws = np.zeros((model.members, arms.size))
    scale = model.prior_scale * state.spread[0]
    for n in range(model.networks):
        first = n * model.heads
        add_predictions(model, state.parameters[n], context, count, arms, 1.0, draws, first)
        if n < state.prior.shape[0]:
            add_predictions(model, state.prior[n], context, count, arms, scale, draws, first)
    mean, std = moments(draws)
    pulls, information = state.pulls[arms], np.zeros(arms.size)
    return Belief(Samples(draws), mean, std, mean, std, pulls, information, step, 1, 1.0)


@compiled
def add_predictions(model, parameters, context, count, arms, scale, draws, first):  # type: ignore[no-untyped-def]
    """Add a network's predictions, times a scale, to the rows of `draws` from `first` on."""
    features = hidden_features(model, parameters, context)
    # The last layer is a matrix with a column for each head and arm, the biases in its last row.
    columns = model.heads * count
    start = parameters.size - (features.size + 1) * columns
    biases = parameters.size - columns
    for h in range(model.heads):
        for a in range(arms.size):
            column = h * count + arms[a]
            value = np.float64(parameters[biases + column])
            for i in range(features.size):
                value += features[i] * parameters[start + i * columns + column]
            draws[first + h, a] += scale * value


@compiled
def moments(draws):  # type: ignore[no-untyped-def]
    """Return mean and standard deviation of every column."""
    rows, columns = draws.shape
    mean, std = np.zeros(columns), np.zeros(columns)
    for a in range(columns):
        for i in range(rows):
            mean[a] += draws[i, a]
        mean[a] /= rows
        for i in range(rows):
            std[a] += (draws[i, a] - mean[a]) ** 2
        std[a] = np.sqrt(std[a] / rows)
    return mean, std
