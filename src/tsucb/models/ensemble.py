"""Any estimator with scikit-learn's `fit` and `predict`, made a model by the bootstrap.

The state holds data and no fitted estimators (`tsucb.models.members`); who keeps these meanwhile,
and when they are fitted again, is in `tsucb.models.refits`.
"""

import copy
import re
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tsucb.beliefs.belief import Belief
from tsucb.beliefs.samples import SampleBelief
from tsucb.checks import positive, truth, whole_number, within
from tsucb.models.members import History, predictions, remember
from tsucb.models.model import Model, check_arm_count
from tsucb.models.refits import KEPT, promote, refit, refit_due
from tsucb.structure import copied


class Ensemble(
    Model,
    NamedTuple(
        "Ensemble",
        [
            ("estimator", Any),
            ("members", int),
            ("features", int),
            ("shared", bool),
            ("interval", int),
            ("growth", float),
            ("memory", int),
            ("pulls_first", int),
            ("artificial", int),
            ("incremental", bool),
            ("background", bool),
            ("description", str),
        ],
    ),
):
    """A regression of your choice, fitted many times; what its members predict is the posterior.

    Member m sees every reward Poisson(1) times, which is the bootstrap for data that come one by
    one, and a few artificial rewards of every arm, without which members would agree on what none
    has seen. A belief has one draw for each member: what it predicts for the arms.

    All members are fitted anew, from scratch, each time there are `growth` times as many rewards.
    With `background=True` a thread does that, and decisions are made by the members there are until
    it is done; simulations are reproducible without, and with it depend on the time that fits take.

    Parameters
    ----------
    estimator
        What has `fit(X, y)` and `predict(X)`, such as a regression, a forest or a pipeline of
        scikit-learn; a copy is taken. Not a classifier: rewards are predicted, 0 and 1 included.
        Its parameters called `random_state` are set.
    members
        M, how many are fitted. A decision takes as long as M predictions.
    features
        d, the length of a context.
    shared
        One estimator for all arms, which finds the arm among its features, as K columns of 0 and 1
        behind the context: for forests and boosting, where arms have something in common. By
        default every arm has estimators of its own, as it must be for linear regressions.
    interval, growth
        Refit at multiples of `interval` rewards, when there are `growth` times as many as before.
    memory
        Rewards kept to fit to; beyond it, the oldest are forgotten.
    initial_pulls
        How often every arm is pulled before the policy decides.
    artificial
        Rewards of every arm that each member is given beside what was seen, at contexts that were
        seen, and drawn from a normal with the mean and spread of all rewards.
    incremental
        Use `partial_fit(X, y)` with `interval` rewards at a time, and `fit` never; so it is anyway
        for an estimator without `fit`.
    background
        Refit in a thread.

    >>> from sklearn.linear_model import Ridge
    >>> model = Ensemble(Ridge(), members=5, features=1)
    >>> contexts, arms = np.linspace(0.0, 1.0, 100)[:, None], np.arange(100) % 2
    >>> state = model.fit(2, contexts, arms, 3.0 * contexts[:, 0] * arms)
    >>> model.belief(state, [1.0], rng=np.random.default_rng(0)).mean.round()
    array([0., 3.])

    References: Eckles and Kaptein (2014), "Thompson sampling with the online bootstrap"; Osband and
    Van Roy (2015), "Bootstrapped Thompson sampling and deep exploration", on artificial rewards.
    """

    __slots__ = ()

    def __new__(
        cls,
        estimator: Any,
        members: int = 10,
        *,
        features: int,
        shared: bool = False,
        interval: int = 10,
        growth: float = 1.2,
        memory: int = 10_000,
        initial_pulls: int = 2,
        artificial: int = 1,
        incremental: bool = False,
        background: bool = False,
    ) -> "Ensemble":
        by_parts = bool(incremental) or not hasattr(estimator, "fit")
        needed = ("partial_fit" if by_parts else "fit", "predict")
        missing = [name for name in needed if not callable(getattr(estimator, name, None))]
        if isinstance(estimator, type) or missing:
            raise TypeError(
                f"estimator must be an instance with {needed[0]}(X, y) and predict(X), such as "
                f"Ridge(), not {estimator!r}"
            )
        if hasattr(estimator, "predict_proba"):
            raise TypeError(
                f"{type(estimator).__name__} is a classifier, but rewards are predicted as numbers;"
                " give the regression of its kind"
            )
        if not growth >= 1:
            raise ValueError(f"growth must be at least 1, but it is {growth!r}")
        own = copy.deepcopy(estimator)
        return super().__new__(
            cls,
            own,
            whole_number("members", members, least=2),
            whole_number("features", features),
            truth("shared", shared),
            whole_number("interval", interval),
            positive("growth", growth),
            whole_number("memory", memory),
            whole_number("initial_pulls", initial_pulls, least=0),
            whole_number("artificial", artificial, least=0),
            by_parts,
            truth("background", background),
            described(own),
        )

    @property
    def initial_pulls(self) -> int:  # type: ignore[override]
        """How often every arm is pulled before the policy decides."""
        return self.pulls_first

    def described(self) -> dict[str, Any]:
        """Its settings as a file has them: the estimator in words."""
        return {k: v for k, v in self._asdict().items() if k != "estimator"}

    def start(self, arms: int, rng: np.random.Generator | None = None) -> History:
        """The state before any data; without `rng` the same every time."""
        rng = np.random.default_rng(0) if rng is None else rng
        arms = check_arm_count(arms)
        return History(
            np.zeros(arms, dtype=np.int64),
            np.zeros((self.memory, self.features)),
            np.zeros(self.memory, dtype=np.int64),
            np.zeros(self.memory),
            np.zeros(1, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
            np.zeros(3, dtype=np.uint64),
            rng.standard_normal(arms * self.members),
            rng.integers(0, 2**32, size=2, dtype=np.uint32),
        )

    def extend(self, state: History, arms: int) -> History:
        """A state with further arms at the end, each with the prior."""
        old = state.pulls.size
        # From a stream of its own, determined by the state's.
        fresh = self.start(arms, np.random.default_rng([*state.key, old, arms]))
        longer: History = copied(state)._replace(
            pulls=np.concatenate((state.pulls, fresh.pulls)),
            offsets=np.concatenate((state.offsets, fresh.offsets)),
        )
        KEPT.bind(longer, KEPT.of(self, state))
        return longer

    def context_shape(self, arms: int) -> tuple[int, ...]:
        """One vector (d,), the same for all arms."""
        return (self.features,)

    def belief(
        self,
        state: History,
        context: ArrayLike | None = None,
        arms: ArrayLike | None = None,
        *,
        step: int | None = None,
        rng: np.random.Generator,
    ) -> Belief:
        """What the members predict for the available arms; see `Model.belief`."""
        count = state.pulls.size
        available = self.check_arms(np.arange(count) if arms is None else arms, count)
        x = self.check_context(context, count)
        latest = KEPT.of(self, state).latest()
        draws = predictions(self, latest, state.offsets.reshape(count, -1), x, available)
        t = int(state.pulls.sum()) + 1 if step is None else step
        return SampleBelief(draws, pulls=state.pulls[available], step=t)

    def update(
        self, state: History, context: ArrayLike | None, arm: ArrayLike, reward: ArrayLike
    ) -> None:
        """Learn from one observation or many, refitting when it is due; see `Model.update`."""
        for x, a, y in zip(*self.observations(state, context, arm, reward), strict=True):
            remember(self, state, x, int(a), float(y))
            kept = KEPT.of(self, state)
            if kept.job is not None and kept.job.over:
                kept = promote(state, kept, kept.job)
            if refit_due(self, state, kept):
                kept = refit(self, state, kept)
            KEPT.bind(state, kept)

    def training_due(self, state: History) -> bool:
        """Never: `update` refits by itself, so that whoever calls it need not."""
        return False

    def check_state(self, state: History, rewards: int) -> None:
        """Raise a ValueError for a memory that cannot have come about."""
        arms, seen = state.pulls.size, int(state.seen[0])
        if not 0 <= seen <= rewards or (state.pulls < 0).any() or state.pulls.sum() > rewards:
            raise ValueError("counts of rewards that cannot be")
        for fitted, known in (state.fitted.tolist(), state.wanted.tolist()):
            if not 0 <= fitted <= seen or not (fitted > 0) <= known <= arms:
                raise ValueError("fits that cannot be")
        if ((state.chosen < 0) | (state.chosen >= arms)).any():
            raise ValueError("a memory of arms that there are not")
        if not within(state.contexts, self.largest) or not within(state.rewards, self.largest):
            raise ValueError("a memory of numbers that cannot be")
        if not within(state.offsets, 100.0):
            raise ValueError("a prior that cannot be")


def described(estimator: Any) -> str:
    """An estimator in words that are the same in every process.

    >>> described(re.compile("a"))
    "Pattern re.compile('a')"
    """
    settings = estimator.get_params() if hasattr(estimator, "get_params") else estimator
    return re.sub(r" at 0x[0-9a-f]+", "", f"{type(estimator).__qualname__} {settings!r}")
