"""A floor under exploration: any policy, with a small chance of a uniformly random arm."""

import functools
from typing import Annotated, Any, Self

import numpy as np

from tsucb.beliefs.belief import Belief
from tsucb.checks import between
from tsucb.compiler import implements, offers
from tsucb.numeric.arrays import Floats
from tsucb.policies.policy import Choice, Policy, can_choose, choose, explored


def inner_policy(name: str, policy: Any) -> Any:
    """Return the policy; raise if it cannot choose or already has a floor."""
    can_choose(name, policy)
    if isinstance(policy, Exploring):
        raise ValueError(f"{policy} has a floor already; change its epsilon instead")
    return policy


class Exploring(Policy):
    """Play any policy, but with a small chance ε an arm at random, each with the same chance.

    Given the arm b that the policy itself would play, its favourite, arm a of K is played with
    probability (1 − ε) [a = b] + ε / K. So the probability of every choice is known exactly,
    whatever the policy and the model, and none is below ε / K: a log of such choices can say what
    other policies would have earned. The floor also holds for the first pulls that a model asks
    for.

    Parameters
    ----------
    policy
        Any policy that has no floor of its own.
    epsilon
        ε, above 0 and at most 1.

    >>> import numpy as np, tsucb
    >>> policy = Exploring(tsucb.TSUCB(100), epsilon=0.05)
    >>> policy.name
    'TS-UCB(100)+5%'
    >>> belief = tsucb.GaussianBelief(mean=[0.0, 9.0], std=[0.1, 0.1])
    >>> policy.choose(belief, np.random.default_rng(0))
    Choice(arm=1, target=9.0..., favourite=1)
    >>> policy.probabilities(belief)
    array([0.025, 0.975])
    """

    policy: Annotated[Any, inner_policy]
    epsilon: Annotated[float, functools.partial(between, low=0, high=1)]

    def __new__(cls, *arguments: Any, **named: Any) -> Self:
        made = super().__new__(cls, *arguments, **named)
        # Around a policy in plain Python, the floor must be plain Python, too.
        return made if offers(choose, type(made.policy)) else PlainExploring._make(made)  # type: ignore[return-value]

    @property
    def name(self) -> str:
        inner = getattr(self.policy, "name", type(self.policy).__name__)
        return f"{inner}+{100 * self.epsilon:.10g}%"

    @property
    def target_name(self) -> str:  # type: ignore[override]
        """The policy's own name of `Choice.target`."""
        return str(getattr(self.policy, "target_name", "target"))

    def is_exact(self, belief: Belief) -> bool:
        """Return whether the probabilities of the policy are exact."""
        return isinstance(self.policy, Policy) and self.policy.is_exact(belief)

    def probabilities_with_errors(
        self, belief: Belief, rng: np.random.Generator | None = None, repetitions: int = 10_000
    ) -> tuple[Floats, Floats]:
        """Return the probabilities, averaged over the policy's draws, and their standard errors."""
        inner, errors = self.policy.probabilities_with_errors(belief, rng, repetitions)
        return (1 - self.epsilon) * inner + self.epsilon / inner.size, (1 - self.epsilon) * errors


class PlainExploring(Exploring):
    """`Exploring` around a policy written in plain Python."""

    def choose(self, belief: Belief, rng: np.random.Generator) -> Choice:
        """Return the arm to play, its reason, and the policy's favourite."""
        choice = choose(self.policy, belief, rng)
        arm = self.explored(choice.arm, belief.mean.size, rng)
        return Choice(arm, choice.target, choice.arm)

    def explored(self, place: int, arms: int, rng: np.random.Generator) -> int:
        """Return `place`, or with chance ε any arm."""
        return int(with_floor(self, place, arms, rng))


@implements(choose, Exploring)
def choose_exploring(policy, belief, rng):  # type: ignore[no-untyped-def]
    choice = choose(policy.policy, belief, rng)
    arm = explored(policy, choice.arm, belief.mean.size, rng)
    return Choice(arm, choice.target, choice.arm)


@implements(explored, Exploring)
def with_floor(policy, place, arms, rng):  # type: ignore[no-untyped-def]
    # One draw decides both: below ε a random arm is played, and which one follows from the draw.
    u = rng.random() / policy.epsilon
    return min(int(u * arms), arms - 1) if u < 1.0 else place
