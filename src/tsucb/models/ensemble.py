"""A model made of any estimator with scikit-learn's `fit` and `predict`, by the bootstrap.

The state contains data and no estimators: rewards, how many of them the present members were fitted
to, and the key from which all random numbers are drawn. So no file contains code, and members can
be fitted again at any time. In memory the array `EnsembleState.fitted` carries them; see `Fits`.
"""

import copy
import functools
import math
import re
import warnings
from dataclasses import KW_ONLY
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.samples import SampleBelief
from tsucb.checks import LARGEST, Count, Natural, Switch, number, shown, whole_number
from tsucb.models.ensemble_members import Fits, Job, Members, Observations, fit, predictions
from tsucb.models.model import Model
from tsucb.models.state import MOST_REWARDS, Sizes, State, array, counts
from tsucb.numeric.arrays import Floats, Integers
from tsucb.record import derived


class EnsembleState(State):
    """The rewards that an ensemble remembers, and which of them its members are fitted to."""

    pulls: Floats = counts("arm")
    contexts: Floats = array("memory", "feature", least=-LARGEST, most=LARGEST)
    chosen: Integers = array("memory", dtype=np.int64, least=0)  # arms
    rewards: Floats = array("memory", least=-LARGEST, most=LARGEST)
    seen: Integers = counts(dtype=np.int64)  # rewards so far
    # The numbers of rewards and of arms that the present members were fitted to.
    fitted: Fits = array(dtype=np.int64, least=0, most=MOST_REWARDS)
    fitted_arms: Integers = array(dtype=np.int64, least=0, most=MOST_REWARDS)
    # What a member predicts for an arm that it has not seen: the rewards' mean plus this many of
    # their standard deviations.
    offsets: Floats = array("arm", "member", least=-100.0, most=100.0)
    key: NDArray[np.uint32] = array(2, dtype=np.uint32, least=0)  # of all random numbers

    @classmethod
    def blank(cls, sizes: Sizes) -> Self:
        """Return a state without rewards or members."""
        state = super().blank(sizes)
        return state._replace(fitted=state.fitted.view(Fits))

    def check(self, rewards: int) -> None:
        """Raise ValueError also for unknown arms, and for fits to more rewards than there were."""
        super().check(rewards)
        arms = self.pulls.size
        if (self.chosen >= arms).any():
            raise ValueError(f"chosen must name arms below {arms}")
        if self.fitted > self.seen or not (self.fitted > 0) <= self.fitted_arms <= arms:
            raise ValueError("members cannot be fitted to more rewards or arms than there are")

    def remember(self, x: Floats, arm: int, reward: float) -> None:
        """Count a reward, and write it to the memory in place of the oldest."""
        place = int(self.seen[0]) % self.rewards.size
        self.contexts[place], self.chosen[place], self.rewards[place] = x, arm, reward
        self.pulls[arm] += 1
        self.seen[0] += 1

    def observations(self, last: int) -> Observations:
        """Return copies of the remembered rewards with numbers below `last`."""
        memory = self.rewards.size
        first = min(max(0, int(self.seen[0]) - memory), last)
        at = np.arange(first, last) % memory
        return Observations(first, last, self.contexts[at], self.chosen[at], self.rewards[at])


class Ensemble(Model):
    """A regression of your choice, fitted many times; the members' predictions are the posterior.

    Each member sees every reward Poisson(1) times, which is the bootstrap for data that come one by
    one, and a few artificial rewards of every arm; without these, members would agree on arms that
    none has seen. A belief has one draw for each member: its predictions for the arms.

    All members are fitted from scratch each time there are `growth` times as many rewards. With
    `background=True` a thread fits them, and the old members decide until it is done; simulations
    then depend on how long fits take. Otherwise they are reproducible.

    Parameters
    ----------
    estimator
        An object with `fit(X, y)` and `predict(X)`, such as a regression, a forest or a pipeline of
        scikit-learn; a copy is taken. Not a classifier: rewards are predicted as numbers, also 0
        and 1. Its parameters called `random_state` are set.
    members
        M, the number of members. A decision takes as long as M predictions.
    features
        d, the length of a context.
    shared
        Whether one estimator learns all arms, with the arm as K further features of 0 and 1 behind
        the context: for forests and boosting, if arms have something in common. By default every
        arm has its own estimators, which linear regressions need.
    interval, growth
        Refit at multiples of `interval` rewards, when there are `growth` times as many as at the
        last fit.
    memory
        The number of rewards to remember; beyond it, the oldest are forgotten.
    initial_pulls
        How often every arm is pulled before the policy decides.
    artificial
        The number of artificial rewards per arm and member, at contexts of remembered rewards,
        drawn from a normal law with the mean and standard deviation of all rewards.
    incremental
        Whether to call `partial_fit(X, y)` with `interval` rewards at a time instead of `fit`;
        always True for an estimator without `fit`.
    background
        Whether to refit in a thread.

    >>> from sklearn.linear_model import Ridge
    >>> model = Ensemble(Ridge(), members=5, features=1)
    >>> contexts, arms = np.linspace(0.0, 1.0, 100)[:, None], np.arange(100) % 2
    >>> state = model.fit(2, contexts, arms, 3.0 * contexts[:, 0] * arms)
    >>> model.belief(state, [1.0], rng=np.random.default_rng(0)).mean.round()
    array([0., 3.])

    References: Eckles and Kaptein (2014), "Thompson sampling with the online bootstrap"; Osband and
    Van Roy (2015), "Bootstrapped Thompson sampling and deep exploration", on artificial rewards.
    """

    state = EnsembleState
    keeps_arms = True

    estimator: Any
    members: Annotated[int, functools.partial(whole_number, least=2)] = 10
    _: KW_ONLY
    features: Count
    shared: Switch = False
    interval: Count = 10
    growth: Annotated[float, number("be at least 1", lambda x: 1 <= x <= LARGEST)] = 1.2
    memory: Count = 10_000
    initial_pulls: Natural = 2  # type: ignore[misc]
    artificial: Natural = 1
    incremental: Switch = False
    background: Switch = False
    description: str = derived()

    @classmethod
    def prepare(cls, values: dict[str, Any]) -> None:
        """Raise TypeError if the estimator is no regression; copy it."""
        estimator = values["estimator"]
        values["incremental"] |= not hasattr(estimator, "fit")
        needed = ("partial_fit" if values["incremental"] else "fit", "predict")
        missing = [name for name in needed if not callable(getattr(estimator, name, None))]
        if isinstance(estimator, type) or missing:
            raise TypeError(
                f"estimator must be an instance with {needed[0]}(X, y) and predict(X), such as "
                f"Ridge(), not {shown(estimator)}"
            )
        if hasattr(estimator, "predict_proba"):
            raise TypeError(
                f"{type(estimator).__name__} is a classifier, but rewards are predicted as numbers;"
                " give the regression of its kind"
            )
        values["estimator"] = copy.deepcopy(estimator)
        values["description"] = in_words(estimator)

    def described(self) -> dict[str, Any]:
        """Return the settings for a file, with the estimator as text."""
        return self.settings() | {"estimator": self.description}

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the memory, and the number of members."""
        return {"memory": self.memory, "feature": self.features, "member": self.members}

    def prior(self, state: EnsembleState, rng: np.random.Generator | None = None) -> None:
        """Draw the members' predictions before any data, in place; without `rng` the same ones."""
        rng = np.random.default_rng(0) if rng is None else rng
        state.offsets[:] = rng.standard_normal(state.offsets.shape)
        state.key[:] = rng.integers(0, 2**32, size=2, dtype=np.uint32)

    def belief(
        self,
        state: EnsembleState,
        context: ArrayLike | None = None,
        arms: ArrayLike | None = None,
        *,
        step: int | None = None,
        rng: np.random.Generator,
    ) -> Belief:
        """Return the members' predictions for the available arms; see `Model.belief`."""
        count = state.pulls.size
        available = self.check_arms(np.arange(count) if arms is None else arms, count)
        x = self.check_context(context, count)
        draws = predictions(self, latest_members(self, state), state.offsets, x, available)
        t = int(state.pulls.sum()) + 1 if step is None else step
        return SampleBelief(draws, pulls=state.pulls[available], step=t)

    def update(
        self, state: EnsembleState, context: ArrayLike | None, arm: ArrayLike, reward: ArrayLike
    ) -> None:
        """Learn from one reward or many, and refit when it is due; see `Model.update`."""
        for x, a, y in zip(*self.observations(state, context, arm, reward), strict=True):
            state.remember(x, int(a), float(y))
            refit_when_due(self, state)

    def training_due(self, state: EnsembleState) -> bool:
        """Return False, because `update` itself refits."""
        return False


def latest_members(model: Ensemble, state: EnsembleState) -> Members | None:
    """Return the newest members of a state; None before the first fit.

    If the members are missing, as after loading a file, fit them again to the same data.
    """
    fits, rewards = state.fitted, int(state.fitted[0])
    if fits.job is not None and fits.job.members is not None:
        return fits.job.members
    members = fits.members
    if rewards and (
        members is None or members.rewards != rewards or members.estimator is not model.estimator
    ):
        data, arms = state.observations(rewards), int(state.fitted_arms[0])
        members = fits.members = fit(model, state.key, data, arms, None)
    return members


def refit_when_due(model: Ensemble, state: EnsembleState) -> None:
    """Fit the members again when there are enough rewards; in the background, only start the fit.

    First replace the members by those fitted in the background, if these are done.
    """
    fits, last = state.fitted, int(state.fitted[0])
    job = fits.job
    if job is not None and not job.over:
        return
    if job is not None and job.error is not None:
        last = job.rewards
        if not job.reported:
            job.reported = True
            warnings.warn(
                f"a refit in the background failed, and the last members go on: {job.error}",
                stacklevel=3,
            )
    elif job is not None:
        fits.job = None
        if job.members is not None:
            use(state, job.members)
            last = job.members.rewards
    wanted = max(last + model.interval, math.ceil(last * model.growth))
    if state.seen[0] < -(-wanted // model.interval) * model.interval:
        return
    last = int(state.seen[0]) // model.interval * model.interval
    data, before = state.observations(last), latest_members(model, state)
    work = functools.partial(fit, model, state.key.copy(), data, state.pulls.size, before)
    if model.background:
        fits.job = Job(last, work)
    else:
        use(state, work())


def use(state: EnsembleState, members: Members) -> None:
    """Make these the state's members, in place."""
    state.fitted[0], state.fitted_arms[0] = members.rewards, members.arms
    state.fitted.members, state.fitted.job = members, None


def in_words(estimator: Any) -> str:
    """Return an estimator as text that is the same in every process.

    >>> in_words(re.compile("a"))
    "Pattern re.compile('a')"
    """
    settings = estimator.get_params() if hasattr(estimator, "get_params") else estimator
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(estimator).__qualname__} {settings!r}")
