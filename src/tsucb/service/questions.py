"""Questions that decisions answer: a context, arms, and slots to fill; features made flat."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from tsucb.service.events import Features, Pick
from tsucb.service.loop import Loop

DEEPEST = 8  # levels of objects within objects
MOST = 1_000  # features of one context, arm or slot
LONGEST = 1_000  # characters of the name or the text of a feature


class Wanted(NamedTuple):
    """A slot to fill: its name and features, the arms it must not have, and its baseline."""

    name: str = ""
    features: Features | None = None
    excluded: Sequence[str] = ()
    baseline: str | None = None


ONE = (Wanted(),)


class Question(msgspec.Struct, frozen=True, gc=False):
    """A question which arms to play; the same for all protocols.

    Parameters
    ----------
    context : features, flat
    arms : the arms to choose from, None for all of the loop
    arm_features : features, flat, of the arms that have some
    excluded : arms that must not be chosen
    slots : the slots to fill; no two get the same arm
    id : the id of the decision, None for a new one
    deferred : whether the decision only counts once it is activated
    key : identifies the request, so that a repeat of it gets the same decision
    person : the person whom the decision is for, by which it can be deleted
    ranked : whether the answer has all arms in order
    may_add : whether to add arms that the loop does not have
    """

    context: Features | None = None
    arms: Sequence[str] | None = None
    arm_features: dict[str, Features] | None = None
    excluded: Sequence[str] = ()
    slots: Sequence[Wanted] = ONE
    id: str | None = None
    deferred: bool = False
    key: str | None = None
    person: str | None = None
    ranked: bool = False
    may_add: bool = True

    def is_list(self, loop: Loop) -> bool:
        """Return whether the learner fills all slots together, as the places of one list."""
        slots = self.slots
        plain = len(slots) > 1 and all(slot == Wanted(slot.name) for slot in slots)
        return plain and loop.settings.mode == "online"

    def fill(self, loop: Loop, offered: Sequence[str], held: bool = False) -> list[Pick]:
        """Choose an arm for every slot, none twice, or with `held` the baseline; change nothing.

        The learner fills slots that are all alike as one list. Slots with features, exclusions or a
        baseline of their own, and slots of the holdout, are filled one after the other, each from
        the arms that are left.

        The probability of an arm is conditional on the slots before, over policy and holdout
        together: (h [arm is the baseline] + f p) / (h + f), where p is the policy's probability,
        and h and f are the probabilities of the picks so far with and without the holdout.
        """
        settings, learner = loop.settings, loop.learner
        online = settings.mode == "online"
        share = settings.holdout if online else 0.0
        h, f = share, 1.0 - share
        excluded = set(self.excluded)
        left, ranking = [arm for arm in offered if arm not in excluded], None
        if learner is not None and self.is_list(loop) and left and not held:
            length, offer = min(len(self.slots), len(left)), loop.offer(left, self.arm_features)
            ranking = learner.rank(loop.context(self.context), length, offer)
        picks: list[Pick] = []
        for place, slot in enumerate(self.slots):
            taken = {pick.arm for pick in picks}.union(slot.excluded)
            arms = [arm for arm in left if arm not in taken]
            if not arms:
                where = f" for slot {slot.name!r}" if slot.name else ""
                raise ValueError(f"there is no arm to choose{where}; offer at least one")
            assert learner is not None
            if ranking is None:
                offer = loop.offer(arms, self.arm_features)
                decision = learner.decide(loop.context(self.context, slot.features), offer)
            else:
                decision = ranking.decision(place)
            baseline = slot.baseline if slot.baseline in arms else arms[0]
            arm = str(decision.arm) if online and not held else baseline
            favourite = str(decision.favourite)
            chances = [settings.exploration / len(arms)] * len(arms)
            chances[arms.index(favourite)] += 1.0 - settings.exploration
            if not online:
                chances = [float(each == arm) for each in arms]
            own = chances[arms.index(arm)]
            if share:
                both = h + f
                pairs = zip(arms, chances, strict=True)
                chances = [(h * (each == baseline) + f * p) / both for each, p in pairs]
            f, h = f * own, h * (arm == baseline)
            picks.append(
                Pick(arm, arms, chances, decision.seen, favourite, slot.name, slot.features)
            )
        return picks


def ranked_arms(offered: Sequence[str], pick: Pick) -> list[str]:
    """Return all arms: the chosen arm first, then its rivals by mean; others keep their places."""
    means = pick.explanation().mean
    order = sorted(range(len(pick.arms)), key=lambda i: (pick.arms[i] != pick.arm, -means[i]))
    ranked = iter([pick.arms[i] for i in order])
    chosen_from = set(pick.arms)
    return [next(ranked) if arm in chosen_from else arm for arm in offered]


def flatten(given: dict[str, Any] | list[dict[str, Any]] | None) -> Features | None:
    """Return the features of one object, or of a list of objects together; None if there are none.

    Names of objects within objects are joined with dots; numbers in arrays are named by their
    index. Names that begin with _ are left out, as in Personalizer.

    >>> flatten([{"user": {"age": 31, "_internal": 1}}, {"size": [1.5, 2]}])
    {'user.age': 31, 'size.0': 1.5, 'size.1': 2}
    """
    if given is None:
        return None
    found: Features = {}
    for each in given if isinstance(given, list) else [given]:
        _add(found, "", each, 1)
    return found or None


def features_of_arms(given: Mapping[str, Any]) -> dict[str, Features] | None:
    """Return the features of the arms that have some; None if no arm has any."""
    found = {arm: features for arm, each in given.items() if (features := flatten(each))}
    return found or None


def _add(found: Features, prefix: str, given: dict[str, Any], depth: int) -> None:
    """Add the features of an object, and of the objects within it."""
    if depth > DEEPEST:
        raise ValueError(f"features are nested more than {DEEPEST} deep")
    for name, value in given.items():
        if name[:1] == "_":
            continue
        whole = prefix + name
        if len(whole) > LONGEST:
            raise ValueError(f"the name of a feature is longer than {LONGEST:,} characters")
        if isinstance(value, dict):
            _add(found, f"{whole}.", value, depth + 1)
        elif not isinstance(value, list):
            found[whole] = _checked(whole, value)
        elif all(type(each) in (int, float) for each in value):
            for place, each in enumerate(value[: MOST + 1]):
                found[f"{whole}.{place}"] = _checked(whole, each)
        elif all(isinstance(each, dict) for each in value):
            for each in value[: MOST + 1]:
                _add(found, f"{whole}.", each, depth + 1)
        else:
            raise ValueError(f"feature {whole[:60]!r} is an array, which may only hold numbers")
        if len(found) > MOST:
            raise ValueError(f"there are more than {MOST:,} features")


def _checked(name: str, value: Any) -> Any:
    """Return the value of a feature; raise ValueError if the log cannot hold it."""
    if value.__class__ is str and len(value) > LONGEST:
        raise ValueError(f"the text of feature {name[:60]!r} is longer than {LONGEST:,}")
    if value.__class__ is int and not -(2**63) <= value < 2**63:
        raise ValueError(
            f"the integer of feature {name[:60]!r} is beyond 64 bits; send a number with a point, "
            "or a text"
        )
    return value
