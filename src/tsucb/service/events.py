"""What can happen to a loop, and how the log holds it: MessagePack, one event each."""

from typing import Any

import msgspec

from tsucb.agent.decision import Explanation
from tsucb.service.settings import LoopSettings

Features = dict[str, Any]  # names to numbers, strings, booleans or None


class Event(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True, gc=False):
    """Something that happened, at a time in seconds since 1970."""

    time: float


class Configured(Event, tag="configured", frozen=True):
    """The loop was made, if there is a `name`, or its settings changed.

    `relearn`: where the model is another one now, it learns from all events before this one; else
    it knows nothing yet.
    """

    settings: LoopSettings
    relearn: bool = False
    name: str = ""


class ArmsChanged(Event, tag="arms", frozen=True):
    """Arms were added, or removed."""

    add: list[str] = []
    remove: list[str] = []


class Pick(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One arm that was chosen: the only one of a decision, or the one of a slot.

    Parameters
    ----------
    arm : what is to be played
    arms : what it was chosen from, in the order of `chances` and `seen`
    chances : the probability of each
    seen : what the policy saw of each; see `tsucb.agent.decision.Decision.seen`
    favourite : what the policy would have played without floor and mode
    slot : the name of the place it is for; empty if the decision has only one
    features : of the slot, which are part of the context
    """

    arm: str
    arms: list[str]
    chances: list[float]
    seen: bytes
    favourite: str
    slot: str = ""
    features: Features | None = None

    def explanation(self, policy: str = "", target_name: str = "") -> Explanation:
        """Return what the policy saw when it chose; see `Decided`."""
        return Explanation.of(tuple(self.arms), self.arm, policy, target_name, self.seen)


class Decided(Event, tag="decided", frozen=True):
    """A decision was made.

    Parameters
    ----------
    id : by which its reward comes
    context : features, flat
    picks : the arms chosen
    policy, target_name : who chose, for explanations
    deferred : whether it only counts once it is activated
    key : of the request, by which a repeat of it is recognised
    person : whose decision it is, by which it can be deleted
    arm_features : of the arms, where they were given
    ranking : all arms in the order of the answer, where it has more than the picks
    held : whether it is in the holdout, which plays the baseline
    """

    id: str
    context: Features | None
    picks: list[Pick]
    policy: str
    target_name: str
    deferred: bool = False
    key: str | None = None
    person: str | None = None
    arm_features: dict[str, Features] | None = None
    ranking: list[str] | None = None
    held: bool = False

    def explanation(self, pick: Pick) -> Explanation:
        """Return what the policy saw when it made one of the picks."""
        return pick.explanation(self.policy, self.target_name)

    def described(self, pick: Pick) -> dict[str, Any]:
        """Return a pick and why it was made, for logs, protocols and pages."""
        seen = self.explanation(pick)
        names = "arm", "mean", "std", "estimate", "radius", "ratio", "probability"
        columns = seen.mean, seen.std, seen.estimate, seen.radius, seen.ratio, pick.chances
        rows = zip(pick.arms, *columns, strict=True)
        return {
            "place": pick.slot or None,
            "arm": pick.arm,
            "favourite": pick.favourite,
            "target": seen.target,
            "alpha": seen.alpha,
            "arms": [dict(zip(names, row, strict=True)) for row in rows],
        }


class Rewarded(Event, tag="rewarded", frozen=True):
    """A reward came, in time or not; `key` recognises a repeat of the same request."""

    id: str
    value: float
    slot: str = ""
    key: str | None = None


class Activated(Event, tag="activated", frozen=True):
    """A deferred decision was put to use."""

    id: str


class Passed(Event, tag="passed", frozen=True):
    """Time passed, and with it the wait of some decision."""


class Reset(Event, tag="reset", frozen=True):
    """What was learned is forgotten; arms and settings stay."""


class Imported(Event, tag="imported", frozen=True):
    """What another agent learned takes the place of what was learned, with its arms."""

    agent: bytes


class Compacted(Event, tag="compacted", frozen=True):
    """Written before a snapshot: every server drops spare capacity, so live state equals it."""


class Condensed(Event, tag="condensed", frozen=True):
    """All events up to this one were deleted: the snapshot that they led to stands for them."""

    state: bytes


class Forgot(Event, tag="forgot", frozen=True):
    """Events were deleted from the log: every server makes the loop from the log again."""


AnyEvent = (
    Configured
    | ArmsChanged
    | Decided
    | Rewarded
    | Activated
    | Passed
    | Reset
    | Imported
    | Compacted
    | Condensed
    | Forgot
)

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(AnyEvent).decode
