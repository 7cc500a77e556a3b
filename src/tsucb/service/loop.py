"""A loop: what it knows is a fold of its events, and deciding is looking at it."""

import contextlib
import heapq
import math
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any

from tsucb.agent import Agent, UnknownDecision
from tsucb.agent.decision import Decision
from tsucb.service.events import (
    Activated,
    AnyEvent,
    ArmsChanged,
    Compacted,
    Condensed,
    Configured,
    Decided,
    Features,
    Forgot,
    Imported,
    Passed,
    Pick,
    Reset,
    Rewarded,
)
from tsucb.service.settings import PLAIN_MODELS, LoopSettings
from tsucb.service.state import SNAPSHOT_VERSION, Counts, LoopHeld, Slot, State, Waiting, decoded
from tsucb.service.tally import Tally

# Numbers that a model may hold, and from how many on its loop works in a thread: to learn a prior
# again for 200,000 (10 arms, 140 columns) takes 15 ms, to widen it to 10,000,000 some 6 s.
MOST_NUMBERS, SLOW = 10_000_000, 200_000

# What became of an event.
TAKEN, REPEATED, LATE, REFUSED = "taken", "repeated", "not waiting", "refused"


class Loop:
    """A named decision problem.

    Parameters
    ----------
    name
        As in its address.
    seed
        Of the random draws of this process; they are not part of what the log determines.
    """

    def __init__(self, name: str, seed: int | None = None) -> None:
        self.name, self._seed = name, seed
        self.position = 0  # of the last event of this loop that was folded
        self.settings, self._rule = LoopSettings(), (LoopSettings(), LoopSettings().rule())
        self.arms: dict[str, str] = {}  # the names of those that are known, in their order
        self.agent: Agent | None = None  # None before the first arm
        self.now = self.created = 0.0
        self.counts, self.tally = Counts(), Tally(spans=[])
        self.relearned: list[int] = []  # positions of the events after which it learned again
        self.stale = False  # whether another that is being made will take its place
        self.growing = False  # whether a decision on its way to the log makes the model a slow one
        self.waiting: dict[str, Waiting] = {}
        self.by_key: dict[str, str] = {}  # ids of waiting decisions by the keys of their requests
        self._deadlines: list[tuple[float, int, str]] = []

    @property
    def rule(self) -> Any:
        """The policy with its floor."""
        if self._rule[0] is not self.settings:
            self._rule = self.settings, self.settings.rule()
        return self._rule[1]

    # Deciding

    def unknown(self, arms: Iterable[str]) -> list[str]:
        """Those of the arms that an `ArmsChanged` must add before they can be chosen."""
        if self.settings.arms_come:
            return []
        return [arm for arm in arms if arm not in self.arms]

    def propose(
        self,
        context: Features | None,
        arms: Sequence[str],
        *,
        slot: str = "",
        features: Features | None = None,
        baseline: str | None = None,
        arm_features: dict[str, Features] | None = None,
    ) -> Pick:
        """Choose one of the arms. Changes nothing."""
        assert self.agent is not None
        offered = self._offered(arms, arm_features)
        decision = self.agent.propose(self._read(context, features), offered)
        return self._pick(decision, arms, slot, features, baseline)

    def propose_list(
        self,
        context: Features | None,
        arms: Sequence[str],
        slots: Sequence[str],
        arm_features: dict[str, Features] | None = None,
    ) -> list[Pick]:
        """Choose an arm for each of several slots that are all alike, none twice."""
        assert self.agent is not None
        offered = self._offered(arms, arm_features)
        ranking = self.agent.propose_list(self._read(context, None), len(slots), offered)
        picks: list[Pick] = []
        left = list(arms)
        for place, slot in enumerate(slots):
            picks.append(self._pick(ranking.decision(place), left, slot))
            left.remove(str(ranking.arms[place]))
        return picks

    def _offered(self, arms: Sequence[str], arm_features: dict[str, Features] | None) -> Any:
        """Arms as the agent takes them."""
        if self.settings.arms_come:
            known = arm_features or {}
            return {arm: known.get(arm, {}) for arm in arms}
        return None if list(arms) == list(self.arms) else arms  # all of them is quicker

    def _pick(
        self,
        decision: Decision,
        arms: Sequence[str],
        slot: str,
        features: Features | None = None,
        baseline: str | None = None,
    ) -> Pick:
        """A decision with its probabilities, or what the mode makes of it."""
        favourite, share = str(decision.favourite), self.settings.exploration / len(arms)
        arm, chances = str(decision.arm), [share] * len(arms)
        if self.settings.mode == "online":
            chances[arms.index(favourite)] += 1.0 - self.settings.exploration
        else:
            arm = arms[0] if baseline is None else baseline
            chances = [float(each == arm) for each in arms]
        return Pick(arm, list(arms), chances, decision.seen, favourite, slot, features)

    def _read(self, context: Features | None, features: Features | None) -> Any:
        """The context as the agent takes it: with the features of the slot."""
        if self.settings.model in PLAIN_MODELS:
            return None
        if not features:
            return context or ({} if self.settings.arms_come else None)
        return self.with_slot(context, features)

    @staticmethod
    def with_slot(context: Features | None, features: Features | None) -> Features | None:
        """Return a context with the features of a slot."""
        if not features:
            return context
        return {**(context or {}), **{f"slot {name}": value for name, value in features.items()}}

    # How large the model is

    def numbers(self, width: int, more_arms: int = 0) -> int:
        """Return about how many numbers the model holds with this many columns."""
        if self.agent is None or self.settings.model in PLAIN_MODELS:
            return 0
        own = (len(self.agent.arms) + more_arms) * width**2
        if not self.settings.arms_come:
            return own
        shared = 1 + width + min(width**2 // 4, 1_000)  # with products of both kinds of features
        return int(own + shared**2)

    @property
    def width(self) -> int:
        """How many columns the model has."""
        shape = () if self.agent is None else self.agent.model.context_shape(1)
        return int(shape[-1]) if shape else 0

    @property
    def is_slow(self) -> bool:
        """Whether to fold or to decide may take more than some milliseconds."""
        return self.growing or self.numbers(self.width) > SLOW

    def width_after(self, context: Features | None, arm_features: Iterable[Features] = ()) -> int:
        """Return how many columns the model will have after a decision in this context."""
        if self.agent is None or self.settings.model in PLAIN_MODELS:
            return 0
        return self.agent.width_after(self._read(context, None), arm_features)

    @property
    def ripe(self) -> float:
        """Decisions made before this time have what they earned."""
        return self.now - self.settings.reward_wait

    @property
    def full(self) -> bool:
        """Whether no further decision can wait."""
        return len(self.waiting) >= self.settings.most_open

    @property
    def due(self) -> float:
        """When the next wait ends; infinite if none does."""
        return self._deadlines[0][0] if self._deadlines else math.inf

    # The fold

    def fold(self, event: AnyEvent, learned: "Loop | None" = None) -> str:
        """Take an event into account, and say what became of it.

        `learned` is for a change of the model after which it is to know what the log holds: the
        loop of a `Relearning` that has folded all events before this one.
        """
        self.now = max(self.now, event.time)
        while self._deadlines and self._deadlines[0][0] <= self.now:
            self._end_wait(heapq.heappop(self._deadlines)[2])
        if isinstance(event, Decided):
            return self._decided(event)
        if isinstance(event, Rewarded):
            return self._rewarded(event)
        if isinstance(event, Activated):
            return self._activated(event)
        if isinstance(event, ArmsChanged):
            self._arms_changed(event)
        elif isinstance(event, Configured):
            self._configured(event, learned)
        elif isinstance(event, Reset):
            self._start_anew()
        elif isinstance(event, Imported):
            self._imported(event)
        elif isinstance(event, Compacted):
            self._compacted()
        elif isinstance(event, Condensed):
            self._become(decoded(event.state))
        else:
            assert isinstance(event, Passed | Forgot)
        return TAKEN

    def _configured(self, event: Configured, learned: "Loop | None") -> None:
        before, self.settings = self.settings, event.settings
        self.created = self.created or event.time
        if self.agent is None:
            if self.settings.arms_come:
                self._start_anew()
            return
        if self.settings.learns_like(before):
            self.agent.follow(self.rule)
        elif event.relearn:
            assert learned is not None
            self._take_over(learned)
            self.relearned.append(self.position)
        else:
            self._start_anew()

    def _take_over(self, learned: "Loop") -> None:
        """Know what another loop learned; what waits here goes on waiting."""
        self.agent, self.arms = learned.agent, learned.arms
        if self.agent is None:
            return
        self.agent.follow(self.rule)
        for id in learned.waiting.keys() - self.waiting.keys():
            for slot in learned.waiting[id].slots:
                with contextlib.suppress(UnknownDecision):
                    self.agent.close(joined(id, slot.name))

    def _start_anew(self) -> None:
        known = self.arms or self.settings.arms_come
        self.agent = self.settings.agent(list(self.arms), self._seed) if known else None
        self.waiting, self.by_key, self._deadlines = {}, {}, []

    def _imported(self, event: Imported) -> None:
        agent = Agent.from_bytes(event.agent)
        agent.expire(-math.inf)  # what waited there has its rewards reported there
        agent.follow(self.rule)
        agent.reseed(self._seed, ids=False)
        self.agent, self.arms = agent, {str(arm): str(arm) for arm in agent.arms}
        self.waiting, self.by_key, self._deadlines = {}, {}, []

    def _compacted(self) -> None:
        """Become what a snapshot of this would be: an agent has more room in memory than in one."""
        if self.agent is not None:
            self.agent.compact()

    def _arms_changed(self, event: ArmsChanged) -> None:
        for arm in event.remove:
            if arm in self.arms and self.agent is not None:
                del self.arms[arm]
                if arm in self.agent.arms:
                    self.agent.remove_arm(arm)
        for arm in event.add:
            if arm in self.arms or len(self.arms) >= self.settings.most_arms:
                continue
            self.arms[arm] = arm
            if self.settings.arms_come:
                continue
            if self.agent is None:
                self.agent = self.settings.agent([arm], self._seed)
            else:
                self.agent.add_arm(arm)

    def _decided(self, event: Decided) -> str:
        if event.id in self.waiting or (event.key is not None and event.key in self.by_key):
            self.counts.repeated += 1
            return REPEATED
        slots = []
        for pick in event.picks:
            chance = pick.chances[pick.arms.index(pick.arm)]
            weight = 1.0 / (len(pick.arms) * chance)
            arm = self.arms.get(pick.arm, pick.arm)  # one string for all that wait
            slots.append(Slot(pick.slot, arm, weight, pick.arm == pick.favourite))
        deadline = event.time + self.settings.reward_wait
        waiting = Waiting(self.counts.decisions, event.time, deadline, slots, [], event.key)
        self.counts.decisions += 1
        self.waiting[event.id] = waiting
        if event.key is not None:
            self.by_key[event.key] = event.id
        heapq.heappush(self._deadlines, (waiting.deadline, waiting.number, event.id))
        if event.deferred:
            waiting.deferred = event
        else:
            self._put_to_use(event)
        return TAKEN

    def _put_to_use(self, event: Decided) -> None:
        """The decision counts from now on: its arms are played."""
        for pick in event.picks:
            self.tally.played(event.time, self.arms.get(pick.arm, pick.arm))
            if self.settings.mode == "logging" or self.agent is None:
                continue
            try:
                context = self._read(event.context, pick.features)
                given = None
                if self.settings.arms_come:
                    given = (event.arm_features or {}).get(pick.arm, {})
                id = joined(event.id, pick.slot)
                self.agent.record(id, context, pick.arm, given, time=self.now)
            except (ValueError, TypeError):  # an arm that was removed, a context it cannot read
                self.counts.refused += 1

    def _changed(self, id: str) -> Waiting | None:
        """A decision that waits and is about to change: another that takes its place."""
        old = self.waiting.get(id)
        if old is None:
            return None
        slots = [copy(slot) for slot in old.slots]
        new = self.waiting[id] = Waiting(
            old.number, old.time, old.deadline, slots, list(old.keys), old.key, old.deferred
        )
        return new

    def _rewarded(self, event: Rewarded) -> str:
        waiting = self._changed(event.id)
        if waiting is None:
            self.counts.late += 1
            return LATE
        slot = next((slot for slot in waiting.slots if slot.name == event.slot), None)
        if slot is None:
            self.counts.refused += 1
            return REFUSED
        first = self.settings.aggregation == "first"
        again = event.key is not None and joined(event.key, event.slot) in waiting.keys
        if again or (first and slot.total is not None):
            self.counts.repeated += 1
            return REPEATED
        if event.key is not None:
            waiting.keys.append(joined(event.key, event.slot))
        self.counts.rewards += 1
        slot.total = (slot.total or 0.0) + event.value
        if self.settings.learns_at_once and waiting.deferred is None:
            self._learn(event.id, waiting, slot, slot.total)
            self._close_if_done(event.id, waiting)
        return TAKEN

    def _activated(self, event: Activated) -> str:
        waiting = self._changed(event.id)
        if waiting is None:
            self.counts.late += 1
            return LATE
        if waiting.deferred is None:
            return REPEATED
        decided, waiting.deferred = waiting.deferred, None
        self._put_to_use(decided)
        if self.settings.learns_at_once:
            for slot in waiting.slots:
                if slot.total is not None:
                    self._learn(event.id, waiting, slot, slot.total)
            self._close_if_done(event.id, waiting)
        return TAKEN

    def _end_wait(self, id: str) -> None:
        """Learn what the decision earned, or is taken to have earned."""
        known = self.waiting.get(id)
        if known is None or known.deadline > self.now:  # closed before, or another by that id
            return
        waiting = self._changed(id)
        assert waiting is not None
        self._close(id, waiting)
        if waiting.deferred is not None:
            self.counts.never_activated += 1
            return
        for slot in waiting.slots:
            if slot.total is None:
                self.counts.defaults += 1
                self._learn(id, waiting, slot, self.settings.default_reward)
            elif not slot.learned:
                self._learn(id, waiting, slot, slot.total)

    def _close_if_done(self, id: str, waiting: Waiting) -> None:
        if all(slot.learned for slot in waiting.slots):
            self._close(id, waiting)
            if len(self._deadlines) > 2 * len(self.waiting) + 1_000:
                self._set_deadlines()

    def _close(self, id: str, waiting: Waiting) -> None:
        del self.waiting[id]
        if waiting.key is not None:
            self.by_key.pop(waiting.key, None)

    def _set_deadlines(self) -> None:
        """Forget the deadlines of decisions that do not wait any more."""
        self._deadlines = [(w.deadline, w.number, id) for id, w in self.waiting.items()]
        heapq.heapify(self._deadlines)

    def _learn(self, id: str, waiting: Waiting, slot: Slot, value: float | None) -> None:
        slot.learned = True
        if value is not None:
            self.tally.earned(waiting.time, value, slot.weight, slot.imitated)
        if self.settings.mode == "logging" or self.agent is None:
            return
        try:
            if value is None:
                self.agent.close(joined(id, slot.name))
            else:
                self.agent.reward(joined(id, slot.name), value)
                self.counts.learned += 1
        except UnknownDecision:  # never recorded
            self.counts.refused += 1
        except ValueError:  # a sum beyond what the model takes
            self.counts.refused += 1
            self.agent.close(joined(id, slot.name))

    # Snapshots

    def hold(self) -> LoopHeld:
        """Everything that the fold has led to; quick, however many decisions wait."""
        # Those are shared: `_changed` never changes one that may be held.
        state = State(
            SNAPSHOT_VERSION, self.settings, list(self.arms), self.now, self.created,
            copy(self.counts), self.tally.copied(), dict(self.waiting), None, list(self.relearned),
        )  # fmt: skip
        return LoopHeld(state, None if self.agent is None else self.agent.hold())

    def digest(self) -> str:
        """A hash of everything that the fold has led to: the same log gives the same."""
        return self.hold().digest()

    @classmethod
    def restored(cls, name: str, position: int, data: bytes, seed: int | None = None) -> "Loop":
        """The loop that a snapshot was taken of, or a ValueError."""
        loop = cls(name, seed)
        loop._become(decoded(data))
        loop.position = position
        return loop

    def _become(self, state: State) -> None:
        """Know what a snapshot holds, and nothing else."""
        self.settings, self.arms = state.settings, {arm: arm for arm in state.arms}
        self.now, self.created, self.relearned = state.now, state.created, state.relearned
        self.counts, self.tally, self.waiting = state.counts, state.tally, state.waiting
        self.by_key = {w.key: id for id, w in state.waiting.items() if w.key is not None}
        self._set_deadlines()
        self.agent = None
        if state.agent is not None:
            self.agent = Agent.from_bytes(state.agent)
            self.agent.reseed(self._seed, ids=False)


def joined(id: str, slot: str) -> str:
    """Join an id and the name of a slot, either of which may hold any character.

    >>> joined("a b", ""), joined("a", "b")
    ('3 a b', '1 ab')
    """
    return f"{len(id)} {id}{slot}"
