"""What every policy shares: a name, a rule that gives its reason, and fair ties."""

import math
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.checks import shown, whole_number
from tsucb.compiler import compiled, generic, held, hook, implements, offers, run
from tsucb.numeric.arrays import Floats, total
from tsucb.record import Record

RAREST = 1e-9  # the smallest probability given to an arm that may be chosen


class Choice(NamedTuple):
    """The arm to play, as an index into the arms of the belief, and the reason for it.

    `target` is f̃ for TS-UCB, the best draw for Thompson sampling, the largest bound for UCB, the
    information ratio for IDS; NaN for a policy that compares nothing. `favourite` is the arm that
    the policy would play without a floor under exploration; without a floor it is `arm`.

    >>> import numpy as np, tsucb
    >>> belief = tsucb.GaussianBelief(mean=[0.1, 0.3], std=[1.0, 1.0])
    >>> tsucb.Greedy().choose(belief, np.random.default_rng(0))
    Choice(arm=1, target=0.3, favourite=1)
    """

    arm: int
    target: float
    favourite: int


@generic
def choose(policy: Any, belief: Any, rng: np.random.Generator) -> Choice:
    """Return the arm that the policy plays, with its reason."""
    choice = policy.choose(belief, rng)
    return choice if isinstance(choice, Choice) else Choice(int(choice), math.nan, int(choice))


@generic
def explored(policy: Any, place: int, arms: int, rng: np.random.Generator) -> int:
    """Return the arm to play: `place`, or by chance another if the policy has a floor."""
    own = getattr(policy, "explored", None)
    return place if own is None else int(own(place, arms, rng))


@hook
def probabilities(policy: Any, belief: Any) -> Floats:
    """Return the probability of each arm, for policies with a formula."""


class Policy(Record):
    """A rule that turns a belief into an arm.

    A policy holds hyper-parameters only: all that was learned is in the belief, and all randomness
    comes from `rng`. Ties are broken uniformly at random.

    A policy of your own derives from this class, with its settings as annotated fields. Either it
    has a method `choose(belief, rng)` in plain Python, or `implements(choose, …)` registers a
    compiled one.
    """

    # The name that the paper prints, with settings in braces; by default that of the class.
    printed_name: ClassVar[str] = ""
    # The name of `Choice.target` in explanations.
    target_name: ClassVar[str] = "target"

    @property
    def name(self) -> str:
        """The name that the paper prints, such as TS-UCB(100); ∞ stands for infinite settings."""
        name = self.printed_name.format(**self._asdict()) or type(self).__name__
        return name.replace("(inf)", "(∞)")

    def choose(self, belief: Belief, rng: np.random.Generator) -> Choice:
        """Return the arm to play, as an index into the arms of the belief, and its reason."""
        choice = run(choose, self, belief, rng)
        return Choice(int(choice.arm), float(choice.target), int(choice.favourite))

    def is_exact(self, belief: Belief) -> bool:
        """Return whether `probabilities(belief)` comes from a formula, not from sampling."""
        finite = np.isfinite(belief.mean).all() and np.isfinite(belief.std).all()
        return bool(offers(probabilities, type(self)) and finite) and self.has_formula(belief)

    def has_formula(self, belief: Belief) -> bool:
        """Return whether the formula holds for this belief, whose means and stds are finite."""
        return True

    def probabilities(
        self, belief: Belief, rng: np.random.Generator | None = None, repetitions: int = 10_000
    ) -> Floats:
        """Return the probability with which `choose` plays each arm; they sum to one.

        - From a formula, where `is_exact` says that there is one.
        - From quasi-random points, to about 1e-3, for `Thompson` and `TSUCB` on jointly normal
          arms.
        - From the frequencies of `repetitions` choices otherwise: for IDS with finitely many
          samples, for infinite standard deviations, and where floats are too coarse to tell draws
          apart.

        `probabilities_with_errors` also returns the standard errors of the latter two. Their counts
        include one more choice, spread evenly over the arms, so that no probability is zero.

        Under `Thompson` and `TSUCB` every independent arm that a draw may choose, however rarely,
        has at least 1e-9, so that rewards can be divided by it. Zero means that the arm is never
        chosen.

        Parameters
        ----------
        belief
            From a model or made by hand.
        rng, repetitions
            For the frequencies. By default every call uses the same stream. If `rng` is given,
            frequencies replace quasi-random points, too.

        >>> import tsucb
        >>> belief = tsucb.GaussianBelief(mean=[0.0, 0.0, 1.0], std=[1.0, 1.0, 0.0])
        >>> tsucb.Thompson().probabilities(belief).round(4)
        array([0.1461, 0.1461, 0.7079])
        """
        return self.probabilities_with_errors(belief, rng, repetitions)[0]

    def estimated(self, belief: Belief) -> tuple[Floats, Floats] | None:
        """Return probabilities and their errors, more precise than frequencies; None if unknown."""
        return None

    def probabilities_with_errors(
        self, belief: Belief, rng: np.random.Generator | None = None, repetitions: int = 10_000
    ) -> tuple[Floats, Floats]:
        """Return `probabilities` and the standard error of each; 0 where a formula gives them.

        Parameters
        ----------
        belief, rng, repetitions
            As in `probabilities`.
        """
        if self.is_exact(belief):
            exact = np.asarray(probabilities(self, belief))
            return exact, np.zeros(exact.size)
        estimated = self.estimated(belief) if rng is None else None
        if estimated is not None:
            return estimated
        stream = np.random.default_rng(0) if rng is None else rng
        counts = np.zeros(belief.mean.size)
        if offers(choose, type(self)):
            count_choices(self, belief, held(stream), counts, repetitions)
        else:
            for _ in range(repetitions):
                counts[choose(self, belief, stream).arm] += 1.0
        chances = (counts + 1 / counts.size) / (repetitions + 1)
        return chances, np.sqrt(chances * (1 - chances) / repetitions)

    def __str__(self) -> str:
        return self.name


@implements(explored, Policy)
def never_another(policy, place, arms, rng):  # type: ignore[no-untyped-def]
    return place


@compiled
def count_choices(policy, belief, stream, counts, repetitions):  # type: ignore[no-untyped-def]
    """Add to `counts` how often each arm is chosen."""
    for _ in range(repetitions):
        counts[choose(policy, belief, stream.rng).arm] += 1.0


@compiled
def winner(scores, sign, rng):  # type: ignore[no-untyped-def]
    """Return the index of the largest sign · score; ties are broken uniformly."""
    best, highest, ties = 0, sign * scores[0], 1
    for a in range(1, scores.size):
        score = sign * scores[a]
        if score >= highest:
            ties = ties + 1 if score == highest else 1
            if ties == 1 or rng.random() * ties < 1.0:
                best = a
            highest = score
    return best


@compiled
def choose_largest(scores, rng):  # type: ignore[no-untyped-def]
    """Return the choice of the arm with the largest score, which is the reason."""
    arm = winner(scores, 1.0, rng)
    return Choice(arm, scores[arm], arm)


@compiled
def tie_shares(scores, sign):  # type: ignore[no-untyped-def]
    """Return the probability with which `winner` returns each index."""
    chances, best, ties = np.zeros(scores.size), 0, 0
    for a in range(1, scores.size):
        if sign * scores[a] > sign * scores[best]:
            best = a
    for a in range(scores.size):
        ties += scores[a] == scores[best]
    for a in range(scores.size):
        if scores[a] == scores[best]:
            chances[a] = 1.0 / ties
    return chances


@compiled
def at_least_rarest(chances, possible):  # type: ignore[no-untyped-def]
    """Return the probabilities, raised to RAREST where `possible` says the arm may be chosen."""
    for a in range(chances.size):
        if possible[a]:
            chances[a] = max(chances[a], RAREST)
    return chances / total(chances)


def can_choose(name: str, policy: Any) -> Any:
    """Return the policy; raise TypeError if it has no method `choose`."""
    if isinstance(policy, type) or not callable(getattr(policy, "choose", None)):
        raise TypeError(
            f"{name} must be an instance with a method choose(belief, rng), such as "
            f"tsucb.TSUCB(1), but it is {shown(policy)}"
        )
    return policy


def sample_count(name: str, value: float) -> float:
    """Return the number of posterior samples; raise unless whole, or `math.inf` for integrals."""
    return value if value == math.inf else whole_number(name, value, least=1)


SampleCount = Annotated[float, sample_count]
