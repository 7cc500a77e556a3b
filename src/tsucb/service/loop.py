"""A loop: what it knows is a fold of its events, and deciding is looking at it."""

import hashlib
import heapq
import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tsucb.agent.learner import Learner
from tsucb.agent.settings import MOST_CURVED_ARMS
from tsucb.models.adaptive_curves import CURVES
from tsucb.service import events
from tsucb.service.errors import TooLarge
from tsucb.service.events import AnyEvent, Decided, Features
from tsucb.service.settings import FREE_MODEL, PLAIN_MODELS, LoopSettings
from tsucb.service.state import (
    SNAPSHOT_VERSION,
    LoopCounts,
    LoopState,
    OpenDecision,
    Slot,
    Tally,
)

if TYPE_CHECKING:
    import pandas as pd

# What became of an event.
TAKEN, REPEATED, LATE, REFUSED = "taken", "repeated", "not waiting", "refused"

# Numbers that a model may hold, and from how many on its loop works in a thread always: to widen a
# model to 10,000,000 takes some 6 s. A smaller one only does so to train, which may take 0.3 s.
MOST_NUMBERS, SLOW = 10_000_000, 200_000


class Listener(Protocol):
    """Is told what the fold makes of decisions, in the place of the learner and the tally."""

    def played(self, event: Decided) -> None:
        """A decision counts: its arms are played."""

    def earned(self, id: str, slot: Slot, value: float | None, time: float) -> None:
        """A slot earned a reward, or what stands for it; None if nothing is to be learned."""


class Loop:
    """A named decision problem; the log knows it by its number, which no other loop ever has.

    The seed is for the draws of this process, which the log does not determine. Where there is a
    listener, the loop learns nothing itself.
    """

    def __init__(
        self, name: str, number: int = 0, seed: int | None = None, listener: Listener | None = None
    ) -> None:
        self.name, self.number, self.seed, self._listener = name, number, seed, listener
        self.position = 0  # of the last event of this loop that was folded
        self.folded = 0  # events, by this process
        self.saved = 0, 0.0  # how many of these the last snapshot knows, and when it was taken
        self.settings = LoopSettings()
        self.arms: dict[str, str] = {}  # the names of those that are known, in their order
        self.learner: Learner | None = None  # None before the first arm
        self.now = self.created = 0.0
        self.counts, self.tally = LoopCounts(), Tally(spans=[])
        # The position up to which the log is known that it was made from; see `Ledger.is_outdated`.
        self.made = 0
        self.next_settings: LoopSettings | None = None  # of the one that will take its place
        self.open_decisions: dict[str, OpenDecision] = {}
        self._random = random.Random(seed)  # draws the holdout
        self.growing = False  # whether a decision on its way to the log makes the model a slow one
        self._deadlines: list[tuple[float, int, str]] = []

    # Deciding

    def is_held(self, person: str | None) -> bool:
        """Return whether a decision belongs to the holdout; the same for all of a person's."""
        share = self.settings.holdout
        if not share or self.settings.mode != "online":
            return False
        if person is None:
            return self._random.random() < share
        secret = self.number.to_bytes(8, "big")
        found = hashlib.blake2b(person.encode(), digest_size=8, key=secret).digest()
        return int.from_bytes(found, "big") < share * 2.0**64

    def unknown(self, arms: Iterable[str]) -> list[str]:
        """Return those of the arms that an `ArmsChanged` must add before they can be chosen."""
        if self.settings.arms_come:
            return []
        return [arm for arm in arms if arm not in self.arms]

    def offer(self, arms: Sequence[str], arm_features: dict[str, Features] | None) -> Any:
        """Return arms to choose from as the learner takes them."""
        if self.settings.arms_come:
            known = arm_features or {}
            return {arm: known.get(arm, {}) for arm in arms}
        return None if list(arms) == list(self.arms) else arms  # all of them is quicker

    def context(self, context: Features | None, slot: Features | None = None) -> Any:
        """Return the context as the learner takes it: with the features of the slot."""
        if self.settings.model in PLAIN_MODELS:
            return None
        return self.with_slot(context, slot) or ({} if self.settings.arms_come else None)

    @staticmethod
    def with_slot(context: Features | None, features: Features | None) -> Features | None:
        if not features:
            return context
        return {**(context or {}), **{f"slot {name}": value for name, value in features.items()}}

    # How large the model is

    def numbers(self, width: int, more_arms: int = 0) -> int:
        """Return about how many numbers the model holds with this many columns."""
        if self.learner is None or self.settings.model in PLAIN_MODELS:
            return 0
        arms = len(self.learner.arms) + more_arms
        if self.settings.model == FREE_MODEL and arms <= MOST_CURVED_ARMS:
            width += CURVES
        own = arms * width**2
        if not self.settings.arms_come:
            return own
        shared = 1 + width + min(width**2 // 4, 1_000)  # with products of both kinds of features
        return int(own + shared**2)

    @property
    def width(self) -> int:
        return 0 if self.learner is None else self.learner.known.width

    @property
    def is_slow(self) -> bool:
        """Whether to fold or to decide may take more than some milliseconds."""
        training = self.learner is not None and self.learner.is_training_due
        return training or self.growing or self.numbers(self.width) > SLOW

    def admit(
        self, context: Features | None, arm_features: Collection[Features] = (), new_arms: int = 0
    ) -> None:
        """Raise TooLarge before a decision makes the model larger than fits; note if it is slow."""
        # A feature has one new column at most, and there is room made for half as many again.
        longest = max(map(len, arm_features), default=0)
        width = 32 + 3 * (self.width + len(context or ()) + longest) // 2
        if self.numbers(width, new_arms) <= min(SLOW, MOST_NUMBERS):
            return
        width = self.width
        if self.learner is not None and (context or arm_features):
            arms = {str(n): features for n, features in enumerate(arm_features)} or {"": {}}
            offered = arms if self.settings.arms_come else None
            width = self.learner.width_after(self.context(context), offered)
        after = self.numbers(width, new_arms)
        if after > MOST_NUMBERS and (new_arms or width > self.width):
            raise TooLarge(
                f"with {width:,} columns of features for {len(self.arms) + new_arms:,} arms the "
                "model would be too large; use fewer names of features, fewer categories or fewer "
                "arms"
            )
        self.growing = self.growing or after > SLOW

    def noticed_changes(self) -> list[Any]:
        """Return the last changes of rewards that the model noticed, the oldest first."""
        return [] if self.learner is None else list(self.learner.known.noticed)

    def arms_summary(self) -> "pd.DataFrame":
        """Return one row per arm: pulls, open decisions, mean reward; needs a learner."""
        assert self.learner is not None
        open = Counter(
            slot.arm for each in self.open_decisions.values() for slot in each.slots
            if not slot.learned and each.deferred is None
        )  # fmt: skip
        table = self.learner.arms_summary()
        table.insert(1, "open", [open[arm] for arm in table.index])
        return table

    @property
    def ripe(self) -> float:
        """Decisions made before this time have what they earned."""
        return self.now - self.settings.reward_wait

    @property
    def full(self) -> bool:
        return len(self.open_decisions) >= self.settings.most_open

    @property
    def due(self) -> float:
        """When the next wait ends; infinite if none does."""
        return self._deadlines[0][0] if self._deadlines else math.inf

    # The fold

    def fold(self, event: AnyEvent, position: int) -> str:
        """Take the event at a position into account, and say what became of it."""
        self.now = max(self.now, event.time)
        while self._deadlines and self._deadlines[0][0] <= self.now:
            self._end_wait(heapq.heappop(self._deadlines)[2])
        result = TAKEN
        match event:
            case Decided():
                result = self._decided(event, position)
            case events.Rewarded() | events.Activated() if event.id not in self.open_decisions:
                self.counts.late += 1
                result = LATE
            case events.Rewarded():
                result = self._rewarded(event)
            case events.Activated():
                result = self._activated(event)
            case events.ArmsChanged():
                self._arms_changed(event)
            case events.Configured():
                self._configured(event)
            case events.Reset():
                self._start_again()
            case events.Imported():
                self._imported(event)
            case events.Compacted():
                if self.learner is not None:
                    self.learner.compact()
            case events.Condensed():
                self.restore(event.state, position)
        self.position = position
        self.folded += 1
        return result

    def _configured(self, event: events.Configured) -> None:
        before, self.settings = self.settings, event.settings
        self.created = self.created or event.time
        # Whoever folds a change to a model that relearns has had that model from the start.
        goes_on = event.relearn or self.settings.learns_like(before)
        if not goes_on or (self.learner is None and self._listener is None):
            self._start_again()
        elif self.learner is not None:
            self.learner.follow(self.settings.rule())

    def _start_again(self) -> None:
        self.open_decisions, self._deadlines = {}, []
        self.learner = self._new_learner()

    def _new_learner(self) -> Learner | None:
        """Return a learner of the arms that are known; None if there is nothing to be learned."""
        if self._listener is not None or not (self.arms or self.settings.arms_come):
            return None
        return self.settings.learner(list(self.arms), self.seed)

    def _imported(self, event: events.Imported) -> None:
        self.open_decisions, self._deadlines = {}, []
        if self._listener is None:
            self.learner = Learner.from_bytes(event.agent)
            self.learner.follow(self.settings.rule())
            self.learner.reseed(self.seed)
            self.arms = {str(arm): str(arm) for arm in self.learner.arms}

    def _arms_changed(self, event: events.ArmsChanged) -> None:
        gone = [arm for arm in event.remove if arm in self.arms]
        for arm in gone:
            del self.arms[arm]
            if self.learner is not None and arm in self.learner.arms:
                self.learner.remove_arm(arm)
        for id, each in self.open_decisions.items() if gone else ():
            if any(slot.arm in gone for slot in each.slots):
                for slot in self._changed(id).slots:  # an arm of that name later is another
                    slot.row = None if slot.arm in gone else slot.row
        for arm in event.add:
            if arm in self.arms or len(self.arms) >= self.settings.most_arms:
                continue
            self.arms[arm] = arm
            if self.learner is None:
                self.learner = self._new_learner()
            elif not self.settings.arms_come:
                self.learner.add_arm(arm)

    def _decided(self, event: Decided, position: int) -> str:
        if event.id in self.open_decisions:
            self.counts.repeated += 1
            return REPEATED
        slots = []
        for pick in event.picks:
            chance = pick.chances[pick.arms.index(pick.arm)]
            weight = 1.0 / (len(pick.arms) * chance) if min(pick.chances) > 0 else 0.0
            arm = self.arms.get(pick.arm, pick.arm)  # one string for all that wait
            imitated = pick.arm == pick.favourite
            slots.append(Slot(pick.slot, arm, weight, imitated, held=event.held))
        # The wait counts from the later of the log's time and the event's.
        open = OpenDecision(position, event.time, self.now + self.settings.reward_wait, slots)
        self.counts.decisions += 1
        self.open_decisions[event.id] = open
        heapq.heappush(self._deadlines, (open.deadline, position, event.id))
        if event.deferred:
            open.deferred = event
        else:
            self._put_to_use(event, open)
        return TAKEN

    def _put_to_use(self, event: Decided, open: OpenDecision) -> None:
        """The decision counts from now on: its arms are played."""
        if self._listener is not None:
            self._listener.played(event)
            return
        for pick, slot in zip(event.picks, open.slots, strict=True):
            self.tally.played(event.time, slot.arm)
            if self.settings.mode == "logging" or self.learner is None:
                continue
            known = event.arm_features or {}
            given = known.get(pick.arm, {}) if self.settings.arms_come else None
            try:
                context = self.context(event.context, pick.features)
                slot.row = self.learner.read(context, pick.arm, given)
                self.learner.count(pick.arm)
            except (ValueError, TypeError):  # an arm that was removed, a context it cannot read
                slot.row = None
                self.counts.refused += 1

    def _changed(self, id: str) -> OpenDecision:
        """Return a copy of an open decision that takes its place: the old one may be held."""
        old = self.open_decisions[id]
        slots = [copy(slot) for slot in old.slots]
        new = self.open_decisions[id] = msgspec.structs.replace(old, slots=slots)
        return new

    def _rewarded(self, event: events.Rewarded) -> str:
        open = self._changed(event.id)
        slot = next((slot for slot in open.slots if slot.name == event.slot), None)
        if slot is None:
            self.counts.refused += 1
            return REFUSED
        if self.settings.aggregation == "first" and slot.total is not None:
            self.counts.repeated += 1
            return REPEATED
        self.counts.rewards += 1
        slot.total = (slot.total or 0.0) + event.value
        self._learn_early(event.id, open, [slot])
        return TAKEN

    def _activated(self, event: events.Activated) -> str:
        open = self._changed(event.id)
        if open.deferred is None:
            return REPEATED
        decided, open.deferred = open.deferred, None
        self._put_to_use(decided, open)
        self._learn_early(event.id, open, open.slots)
        return TAKEN

    def _end_wait(self, id: str) -> None:
        """Learn what the decision earned, or is taken to have earned."""
        known = self.open_decisions.get(id)
        if known is None or known.deadline > self.now:  # closed before, or another by that id
            return
        open = self._changed(id)
        del self.open_decisions[id]
        if open.deferred is not None:
            self.counts.never_activated += 1
            return
        for slot in open.slots:
            self.counts.defaults += slot.total is None
            if not slot.learned:
                value = self.settings.default_reward if slot.total is None else slot.total
                self._learn(id, open, slot, value)

    def _learn_early(self, id: str, open: OpenDecision, slots: Iterable[Slot]) -> None:
        """Learn what came for some slots, unless that is for the end of the wait."""
        if not self.settings.learns_at_once or open.deferred is not None:
            return
        for slot in slots:
            if slot.total is not None:
                self._learn(id, open, slot, slot.total)
        if all(slot.learned for slot in open.slots):
            del self.open_decisions[id]
            if len(self._deadlines) > 2 * len(self.open_decisions) + 1_000:
                self._set_deadlines()

    def _set_deadlines(self) -> None:
        """Forget the deadlines of decisions that do not wait any more."""
        self._deadlines = [(w.deadline, w.position, id) for id, w in self.open_decisions.items()]
        heapq.heapify(self._deadlines)

    def _learn(self, id: str, open: OpenDecision, slot: Slot, value: float | None) -> None:
        slot.learned = True
        if self._listener is not None:
            self._listener.earned(id, slot, value, min(self.now, open.deadline))
            return
        if value is None:
            return
        self.tally.earned(open.time, value, slot)
        if self.settings.mode == "logging" or self.learner is None or slot.row is None:
            return
        try:
            learned = self.learner.learn(slot.arm, slot.row, value)
        except ValueError:  # a sum beyond what the model takes
            learned = False
        self.counts.learned += learned
        self.counts.refused += not learned

    # Snapshots

    def hold(self) -> LoopState:
        """Return everything that the fold has led to; quick, however many decisions wait."""
        # Those are shared: `_changed` never changes one that may be held.
        return LoopState(
            SNAPSHOT_VERSION, self.settings, list(self.arms), self.now, self.created,
            copy(self.counts), self.tally.copied(), dict(self.open_decisions),
            None if self.learner is None else self.learner.hold(),
        )  # fmt: skip

    def digest(self) -> str:
        """Return a hash of everything that the fold has led to: the same log gives the same."""
        return self.hold().digest()

    def restore(self, snapshot: bytes, position: int) -> None:
        """Become what a snapshot was taken of; raise ValueError if it cannot be read."""
        state = LoopState.from_bytes(snapshot)
        self.settings, self.arms = state.settings, {arm: arm for arm in state.arms}
        self.now, self.created = state.now, state.created
        self.counts, self.tally, self.open_decisions = (
            state.counts,
            state.tally,
            state.open_decisions,
        )
        self._set_deadlines()
        self.learner, self.position = None, position
        if state.learner is not None and self._listener is None:
            self.learner = Learner.from_bytes(state.learner)
            self.learner.reseed(self.seed)


def is_remaking(event: AnyEvent) -> bool:
    """Return whether every server must make the loop from the log again after this event."""
    return isinstance(event, events.Forgot) or (
        isinstance(event, events.Configured) and event.relearn
    )
