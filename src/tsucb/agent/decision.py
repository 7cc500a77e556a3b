"""A decision of a live agent, and why it was made."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent.contexts import Arm
from tsucb.agent.roster import Offer
from tsucb.beliefs.belief import Belief
from tsucb.numeric.arrays import Floats
from tsucb.policies.ts_ucb import TSUCB

if TYPE_CHECKING:
    import pandas as pd


class Decision:
    """The arm to play now, and the id under which to report its reward.

    `id` is a string; `arm` is the name of the arm. `explain()` says why.
    """

    __slots__ = ("_belief", "_offer", "_policy", "_seen", "arm", "id")

    def __init__(
        self,
        id: str,
        arm: Arm,
        offer: Offer,
        policy: Any,
        seen: bytes,
        belief: Belief | None,
    ) -> None:
        self.id = id
        self.arm = arm
        # The arms available, and who chose among them.
        self._offer = offer
        self._policy = policy
        # What `tsucb.step.next_arm` saw, as the bytes of 4n + 1 numbers: the target, then every
        # arm's mean, std, estimate and radius; NaN for first pulls. The belief, if it was kept.
        self._seen = seen
        self._belief = belief

    def __repr__(self) -> str:
        return f"Decision(id={self.id!r}, arm={self.arm!r})"

    @property
    def probability(self) -> float:
        """The probability with which the policy would choose this arm again, given its belief.

        Needs an agent with `keep_beliefs=True`.
        """
        if math.isnan(np.frombuffer(self._seen)[1]):
            return 1.0  # one of the first pulls, which are not random
        if self._belief is None:
            raise ValueError(
                "this agent does not keep its beliefs, so the probability is not known; "
                "make it with keep_beliefs=True"
            )
        return float(self._policy.probabilities(self._belief)[self._offer.names.index(self.arm)])

    def explain(self) -> "Explanation":
        """What the policy saw of every arm that was available, as it was then."""
        names = self._offer.names
        seen = np.frombuffer(self._seen)
        mean, std, estimate, radius = seen[1:].reshape(4, -1)
        chosen, target = names.index(self.arm), float(seen[0])
        weighed = getattr(self._policy, "target_name", "target")
        return Explanation(
            names, chosen, str(self._policy), mean, std, estimate, radius, target, weighed
        )


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a policy saw when it decided; prints as a table.

    Parameters
    ----------
    arms, chosen
        The n arms that were available, and which of them was chosen, as an index.
    policy
        The policy's name.
    mean, std, estimate, radius
        The belief about every arm's mean reward (n,); see `tsucb.beliefs`. NaN for the first pulls
        of an arm that a model asks for, which no belief decides.
    target, target_name
        What the arm was weighed against, and what it is: f̃ for TS-UCB, the sampled mean reward of
        the best arm; NaN for policies that weigh nothing.
    """

    arms: tuple[Arm, ...]
    chosen: int
    policy: str
    mean: Floats
    std: Floats
    estimate: Floats
    radius: Floats
    target: float
    target_name: str = "target"

    @property
    def _by_ratio(self) -> bool:
        return self.target_name == TSUCB.target_name

    @property
    def ratio(self) -> Floats:
        """Ψ(a) = (f̃ − estimate) / radius, of which TS-UCB plays the smallest (n,).

        Minus infinity for arms that go first: never tried, or certainly as good as f̃. NaN for
        policies other than TS-UCB.
        """
        if not self._by_ratio:
            return np.full(len(self.arms), math.nan)
        with np.errstate(divide="ignore", invalid="ignore"):
            psi: Floats = (self.target - self.estimate) / self.radius
        if not math.isnan(self.target):
            psi[np.isnan(psi) | (self.radius == np.inf)] = -np.inf
        return psi

    @property
    def alpha(self) -> float:
        """α_t, the UCB factor this decision amounts to: it maximises estimate + α_t · radius.

        Equation (3) of Baek and Farias (2023); equal to the chosen arm's ratio.
        """
        return float(self.ratio[self.chosen])

    def table(self) -> "pd.DataFrame":
        """One row per arm: mean, std, estimate, radius, ratio, and whether it was chosen."""
        import pandas as pd

        columns = {
            "mean": self.mean,
            "std": self.std,
            "estimate": self.estimate,
            "radius": self.radius,
            "ratio": self.ratio,
        }
        if not self._by_ratio:
            del columns["ratio"]
        table = pd.DataFrame(columns, index=pd.Index(self.arms, name="arm"))
        table["chosen"] = ["<" if i == self.chosen else "" for i in range(len(self.arms))]
        return table

    def __str__(self) -> str:
        if np.isnan(self.mean).any():
            return f"{self.arms[self.chosen]!r} was pulled because its model asks for first pulls"
        lines = [f"{self.policy} chose {self.arms[self.chosen]!r}"]
        if not math.isnan(self.target):
            lines[0] += f": {self.target_name} = {self.target:.4g}"
        if self._by_ratio:
            lines[0] += f", α_t = {self.alpha:.4g}"
        return "\n".join([*lines, self.table().to_string(float_format="{:.4g}".format)])
