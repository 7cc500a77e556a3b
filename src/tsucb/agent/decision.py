"""Decisions of an agent, single and ranked lists, and what the policy saw when it made them."""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.agent.knowledge import Offer
from tsucb.beliefs.belief import Belief
from tsucb.contexts.readers import Arm
from tsucb.display import html_table, text_table
from tsucb.extras import require
from tsucb.models.change import NoticedChange
from tsucb.numeric.arrays import Floats, Integers
from tsucb.policies.exploring import Exploring
from tsucb.policies.ts_ucb import TSUCB

if TYPE_CHECKING:
    import pandas as pd


class Decision:
    """The arm to play now, and the id under which to report its reward.

    `id` is a string; `arm` is the name of the arm; `time` is the time by the agent's clock.
    `explain()` says why this arm was chosen, and `seen` holds the same as bytes, which
    `Explanation.of` reads.
    """

    __slots__ = ("_belief", "_offer", "arm", "id", "seen", "time")

    def __init__(
        self, id: str, arm: Arm, offer: Offer, seen: bytes, belief: Belief | None, time: float
    ) -> None:
        self.id = id
        self.time = time
        self.arm = arm
        self._offer = offer
        # 4n + 2 numbers: the target, the favourite, then every arm's mean, std, estimate and
        # radius; NaN for first pulls. Empty in a large batch.
        self.seen = seen
        self._belief = belief  # if the agent keeps beliefs

    def __repr__(self) -> str:
        return f"Decision(id={self.id!r}, arm={self.arm!r})"

    def _repr_html_(self) -> str:
        line = html_table(["id", "arm"], [[self.id, str(self.arm)]])
        return line + (self.explain()._repr_html_() if self.seen else "")

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms that were available."""
        return self._offer.names

    @property
    def favourite(self) -> Arm:
        """The policy's own choice; `arm` is another one only if the floor drew it at random."""
        return self._offer.names[int(self._numbers()[1])]

    @property
    def probability(self) -> float:
        """The probability with which this arm was chosen; see `probabilities`."""
        return float(self._chances()[self._offer.names.index(self.arm)])

    @property
    def probabilities(self) -> dict[Arm, float]:
        """The probability with which each available arm was chosen.

        With a floor (`Agent(exploration=…)`) they are exact for every model and policy, given the
        policy's own draws: (1 − ε) [arm is the favourite] + ε / K. Without a floor they are the
        policy's probabilities given its belief, and known if the agent has `keep_beliefs=True`.
        Most of those are close to 0 or 1, so a log of them says little about other policies.
        """
        return dict(zip(self._offer.names, self._chances().tolist(), strict=True))

    def _chances(self) -> Floats:
        _, favourite, mean = self._numbers()[:3]
        share = share_of_floor(self._offer.policy)
        if share == 0.0 and not math.isnan(mean):
            if self._belief is None:
                raise ValueError(
                    "the probability is not known: make the agent with a floor, such as "
                    "exploration=0.05, or with keep_beliefs=True"
                )
            known: Floats = self._offer.policy.probabilities(self._belief)
            return known
        count = len(self._offer.names)
        chances = np.full(count, share / count)
        chances[int(favourite)] += 1 - share
        return chances

    def explain(self) -> "Explanation":
        """Return what the policy saw of every available arm when it decided.

        >>> import tsucb
        >>> agent = tsucb.Agent(["red", "blue"], features=1, seed=0)
        >>> agent.choose([1.0]).explain().arms
        ('red', 'blue')
        """
        names, _, policy, changes = self._offer
        target_name = getattr(policy, "target_name", "target")
        seen = self._numbers().tobytes()
        made = Explanation.of(names, self.arm, str(policy), target_name, seen)
        return replace(made, changes=changes)

    def _numbers(self) -> Floats:
        """Return the numbers in `seen`; raise ValueError if it was not kept."""
        if not self.seen:
            raise ValueError(
                "for a batch of this size, what the policy saw of every arm is not kept; decide "
                "for fewer contexts at a time, or use `DecisionBatch.probabilities`"
            )
        return np.frombuffer(self.seen)


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a policy saw when it decided; prints as a table.

    Parameters
    ----------
    arms, chosen
        The n arms that were available, and the index of the chosen one.
    policy
        The policy's name.
    mean, std, estimate, radius
        The belief about every arm's mean reward (n,); see `tsucb.beliefs`. NaN for first pulls,
        which a model asks for before it has beliefs.
    target, target_name
        The number that the arms were compared with, and its name: f̃ for TS-UCB, the sampled mean
        reward of the best arm; NaN for policies that have none.
    favourite
        The index of the policy's own choice, by default the chosen arm: another one if a floor
        played an arm at random.
    changes
        Changes of rewards that the model had noticed before.
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
    favourite: int | None = None
    changes: tuple[NoticedChange, ...] = ()

    _verb = "chose"

    @classmethod
    def of(
        cls, arms: tuple[Arm, ...], arm: Arm, policy: str, target_name: str, seen: bytes
    ) -> "Explanation":
        """Return the explanation of a decision from its `Decision.seen`."""
        numbers = np.frombuffer(seen)
        mean, std, estimate, radius = numbers[2:].reshape(4, -1)
        target, favourite = float(numbers[0]), int(numbers[1])
        chosen = arms.index(arm)
        return cls(
            arms, chosen, policy, mean, std, estimate, radius, target, target_name, favourite
        )

    @property
    def _own(self) -> int:
        """The index of the policy's own choice."""
        return self.chosen if self.favourite is None else self.favourite

    @property
    def _by_ratio(self) -> bool:
        return self.target_name == TSUCB.target_name

    @property
    def ratio(self) -> Floats:
        """Ψ(a) = (f̃ − estimate) / radius of every arm (n,); TS-UCB plays the smallest.

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
        """α_t, the UCB factor of this decision: its arm maximises estimate + α_t · radius.

        Equation (3) of Baek and Farias (2023): the ratio of the chosen arm, or of the favourite if
        the floor played another arm.
        """
        return float(self.ratio[self._own])

    def table(self) -> "pd.DataFrame":
        """Return a data frame with mean, std, estimate, radius, ratio of every arm, and a mark."""
        require("tables", "pandas")
        import pandas as pd

        table = pd.DataFrame(self._columns(), index=pd.Index(self.arms, name="arm"))
        table["chosen"] = ["<" if i == self.chosen else "" for i in range(len(self.arms))]
        return table

    def _columns(self) -> dict[str, Floats]:
        names = ["mean", "std", "estimate", "radius", *["ratio"] * self._by_ratio]
        return {name: getattr(self, name) for name in names}

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """Return the header and the rows of the table, as text."""
        columns = self._columns()
        rows = [
            [str(arm), *(f"{values[i]:.4g}" for values in columns.values()), ""]
            for i, arm in enumerate(self.arms)
        ]
        rows[self.chosen][-1] = "<"
        return ["arm", *columns, "chosen"], rows

    def _title(self) -> str:
        """Return the first line of the explanation; all of it for first pulls."""
        arm, own = self.arms[self.chosen], self._own
        if np.isnan(self.mean).any():
            reason = "its model asks for first pulls"
            if own != self.chosen:
                reason = f"the floor of {self.policy} took it at random"
            return f"{arm!r} was pulled because {reason}"
        line = f"{self.policy} {self._verb} {arm!r}"
        if own != self.chosen:
            line += f" at random, instead of {self.arms[own]!r}"
        if not math.isnan(self.target):
            line += f": {self.target_name} = {self.target:.4g}"
        return line + (f", α_t = {self.alpha:.4g}" if self._by_ratio else "")

    def __str__(self) -> str:
        first_pull = np.isnan(self.mean).any()
        table = "" if first_pull else "\n" + text_table(*self._rows())
        return "\n".join([self._title() + table, *map(str, self.changes)])

    def _repr_html_(self) -> str:
        return html_table(*self._rows(), self._title(), self.chosen)


class ArmEstimates(Explanation):
    """What an agent believes now; `chosen` is the arm that it would choose next."""

    _verb = "would choose"


class Ranking:
    """Arms in an order, best first, and the id under which to report their rewards.

    The places are filled one after the other: the policy chooses among all arms offered, then among
    those that are left, and so on, without learning in between. So the list of TS-UCB is its rule
    applied without replacement; each place has its own draw of f̃, over the arms that were left.
    Each place counts as a decision; all have one id.

    `id` is a string, `arms` are the names in their order, `time` is the time by the agent's clock.
    `explain(place)` says why an arm has this place, counted from 0.
    """

    __slots__ = ("_offer", "_seen", "arms", "id", "places", "time")

    def __init__(self, id: str, offer: Offer, places: Integers, seen: Floats) -> None:
        self.id, self.time = id, 0.0
        self.places = tuple(places.tolist())  # the index of each arm among those offered
        self.arms: tuple[Arm, ...] = tuple(offer.names[place] for place in self.places)
        # A row for each place: what the policy saw of the arms that were left.
        self._offer, self._seen = offer, seen

    def __repr__(self) -> str:
        return f"Ranking(id={self.id!r}, arms={self.arms!r})"

    def __len__(self) -> int:
        return len(self.arms)

    @property
    def offered(self) -> tuple[Arm, ...]:
        """The arms that the list was made from."""
        return self._offer.names

    def decision(self, place: int) -> Decision:
        """Return the decision that filled this place, among the arms that were left.

        >>> import tsucb
        >>> ranking = tsucb.Agent(["red", "blue", "green"], features=1, seed=0).rank([1.0], 2)
        >>> ranking.decision(1).arm == ranking.arms[1]
        True
        """
        if not 0 <= place < len(self.places):
            raise IndexError(f"the list has the places 0 to {len(self.places) - 1}, not {place}")
        left = [i for i in range(len(self._offer.names)) if i not in self.places[:place]]
        names = tuple(self._offer.names[i] for i in left)
        seen = self._seen[place, : 4 * len(left) + 2].tobytes()
        arm, id = self.arms[place], f"{self.id}#{place}"  # as in `ids_in_log`
        offer = self._offer._replace(names=names, columns=self._offer.columns[left])
        return Decision(id, arm, offer, seen, None, self.time)

    def explain(self, place: int) -> Explanation:
        """Return what the policy saw of every arm that was left when it filled this place.

        >>> import tsucb
        >>> ranking = tsucb.Agent(["red", "blue", "green"], features=1, seed=0).rank([1.0], 2)
        >>> len(ranking.explain(1).arms)
        2
        """
        return self.decision(place).explain()


def share_of_floor(policy: Any) -> float:
    """Return ε, the share of decisions that a policy makes at random."""
    return policy.epsilon if isinstance(policy, Exploring) else 0.0


def ids_in_log(id: str, arm: Arm | tuple[Arm, ...]) -> list[str]:
    """Return the ids in a decision log: that of a decision, or one for each place of a list."""
    return [f"{id}#{place}" for place in range(len(arm))] if isinstance(arm, tuple) else [id]
