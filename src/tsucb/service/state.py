"""What a loop knows, as a snapshot has it: decisions that wait, counts, and sums over time."""

import bisect
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from tsucb.service.events import Decided
from tsucb.service.settings import LoopSettings

SNAPSHOT_VERSION = 2
MOST_SPANS = 200  # of time; when there are more, each becomes twice as long
MOST_ARMS = 100  # counted by name in a span; the rest of them together, as OTHERS
OTHERS = ""  # a name that no arm has


class Slot(msgspec.Struct, array_like=True, gc=False):
    """One pick of a decision that waits: its arm, and what it earned so far.

    `weight` is 1 / (K p); see `Span`. `imitated`: whether the policy would have played it too.
    `held`: whether it was played as the baseline, in the holdout.
    `row` is what the learner read of it when it was played; None if it is not to be learned.
    """

    name: str
    arm: str
    weight: float
    imitated: bool
    row: bytes | None = None
    total: float | None = None
    learned: bool = False
    held: bool = False


class OpenDecision(msgspec.Struct, array_like=True, gc=False):
    """A decision that waits for its rewards.

    `position` is where it is in the log; `deferred` is the decision itself, until it is activated.
    """

    position: int
    time: float
    deadline: float
    slots: list[Slot]
    deferred: Decided | None = None


class LoopCounts(msgspec.Struct, array_like=True):
    """What happened so far."""

    decisions: int = 0
    rewards: int = 0  # that came in time
    learned: int = 0  # rewards, defaults included
    defaults: int = 0  # decisions, or slots, for which none came
    late: int = 0
    repeated: int = 0
    never_activated: int = 0
    refused: int = 0  # what the model could not learn from


class Span(msgspec.Struct, array_like=True):
    """Counts and sums over a stretch of time.

    Rewards are summed with their weights w = 1 / (K p), p being the probability of the arm and K
    the number of arms: the mean of w · reward is what choosing at random would have earned. Where
    some arm had no chance, nothing is known of random choice: w is 0, and the reward is left out.
    """

    start: float
    decisions: int = 0
    rewards: int = 0
    total: float = 0.0
    squares: float = 0.0
    weights: float = 0.0
    random: float = 0.0  # Σ w · reward
    lift: float = 0.0  # Σ (1 − w) · reward
    lift_squares: float = 0.0
    arms: dict[str, int] = {}
    imitated: int = 0
    imitated_total: float = 0.0
    came: int = 0  # rewards that came, and were not the default
    held: int = 0  # rewards of the holdout
    held_total: float = 0.0
    held_squares: float = 0.0
    control: int = 0  # rewards with w > 0

    def add(self, other: "Span") -> None:
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for arm, count in list(other.arms.items()):  # to which a decision may add meanwhile
            self.played(arm, count)

    @classmethod
    def together(cls, spans: "Sequence[Span]") -> "Span":
        everything = cls(spans[0].start if spans else 0.0, arms={})
        for span in spans:
            everything.add(span)
        return everything

    def played(self, arm: str, count: int = 1) -> None:
        """Count plays of an arm; where arms come and go, only those played most by their names."""
        self.arms[arm] = self.arms.get(arm, 0) + count
        if len(self.arms) > 2 * MOST_ARMS:
            most = sorted(self.arms, key=lambda a: (a == OTHERS, -self.arms[a], a))[:MOST_ARMS]
            named = {arm: self.arms[arm] for arm in most}
            self.arms = {OTHERS: sum(self.arms.values()) - sum(named.values()), **named}

    def over_holdout(self) -> tuple[float, float, float]:
        """Return how much more a decision earned than one of the holdout, with a 95 % interval."""
        mean, _, high = self.group(held=False)
        control, _, control_high = self.group(held=True)
        half = math.hypot(high - mean, control_high - control)
        return mean - control, mean - control - half, mean - control + half

    def group(self, held: bool) -> tuple[float, float, float]:
        """Return the mean reward of the holdout, or of all others, with a 95 % interval."""
        count, total, squares = self.held, self.held_total, self.held_squares
        if held:
            return interval(count, total, squares)
        return interval(self.rewards - count, self.total - total, self.squares - squares)

    def interval(self) -> tuple[float, float, float]:
        """Return how much more a decision earned than choosing at random, and its 95 % interval."""
        return interval(self.control, self.lift, self.lift_squares)


SUMS = [name for name in Span.__struct_fields__ if name not in ("start", "arms")]


def interval(count: int, total: float, squares: float) -> tuple[float, float, float]:
    """Return the mean of `count` numbers with its 95 % interval; NaN where there are too few.

    >>> interval(100, 50.0, 50.0)
    (0.5, 0.40..., 0.59...)
    """
    if count < 2:
        return math.nan, math.nan, math.nan
    mean = total / count
    error = 1.96 * math.sqrt(max(squares / count - mean * mean, 0.0) / (count - 1))
    return mean, mean - error, mean + error


class Tally(msgspec.Struct, array_like=True):
    """The spans of a loop's life, all equally long.

    A decision and its reward count for the time of the decision: so a span is complete once all
    its waits are over, and does not show the quick rewards first.
    """

    length: float = 5.0
    spans: list[Span] = []

    def at(self, time: float) -> Span:
        """Return the span of a time: a new one, or one that was there."""
        start = math.floor(time / self.length) * self.length
        if self.spans and self.spans[-1].start >= start:
            place = bisect.bisect_right(self.spans, start, key=lambda span: span.start)
            return self.spans[max(place - 1, 0)]
        self.spans.append(Span(start, arms={}))
        if len(self.spans) > MOST_SPANS:
            self._double()
        return self.spans[-1]

    def _double(self) -> None:
        self.length *= 2
        old, self.spans = self.spans, []
        for span in old:
            self.at(span.start).add(span)

    def played(self, time: float, arm: str) -> None:
        """Count a decision."""
        span = self.at(time)
        span.decisions += 1
        span.played(arm)

    def earned(self, time: float, reward: float, slot: Slot) -> None:
        """Count the reward of a slot of a decision made then, or what stands for it."""
        span, weight = self.at(time), slot.weight
        span.rewards += 1
        span.total += reward
        span.squares += reward * reward
        if weight:
            span.control += 1
            span.weights += weight
            span.random += weight * reward
            extra = (1.0 - weight) * reward
            span.lift += extra
            span.lift_squares += extra * extra
        span.came += slot.total is not None
        if slot.imitated:
            span.imitated += 1
            span.imitated_total += reward
        if slot.held:
            span.held += 1
            span.held_total += reward
            span.held_squares += reward * reward

    def copied(self) -> "Tally":
        """Return a copy that counts by itself."""
        spans = [msgspec.structs.replace(span, arms=dict(span.arms)) for span in self.spans]
        return Tally(self.length, spans)

    def until(self, time: float) -> list[Span]:
        """Return the spans that ended by a time."""
        return [span for span in self.spans if span.start + self.length <= time]

    def whole(self, until: float = math.inf) -> Span:
        """Return everything together, or what ended by a time."""
        return Span.together(self.until(until))


class LoopState(msgspec.Struct, array_like=True):
    """Everything a loop knows, as a snapshot has it.

    The learner is what its `hold` returned, or its bytes: to write it down may take its time, in
    another thread.
    """

    version: int
    settings: LoopSettings
    arms: list[str]
    now: float
    created: float
    counts: LoopCounts
    tally: Tally
    open_decisions: dict[str, OpenDecision]
    learner: Any

    @property
    def ripe(self) -> float:
        """Decisions made before this time have what they earned."""
        return self.now - self.settings.reward_wait

    def to_bytes(self) -> bytes:
        """Return a snapshot, from which the loop can go on."""
        return self._encoded(self.learner and self.learner.to_bytes())

    def digest(self) -> str:
        learner = self.learner and self.learner.digest().encode()
        return hashlib.sha256(self._encoded(learner)).hexdigest()

    def _encoded(self, learner: bytes | None) -> bytes:
        return msgspec.msgpack.encode(msgspec.structs.replace(self, learner=learner))

    @classmethod
    def from_bytes(cls, data: bytes) -> "LoopState":
        """Return what a snapshot holds; raise ValueError if it is damaged or of another version."""
        try:
            state = msgspec.msgpack.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise ValueError(f"the snapshot is damaged: {error}") from None
        if state.version != SNAPSHOT_VERSION:
            raise ValueError(f"the snapshot has version {state.version}, not {SNAPSHOT_VERSION}")
        return state
