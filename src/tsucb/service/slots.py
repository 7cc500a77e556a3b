"""What a decision is asked to fill: one place, the places of a list, or slots of their own."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tsucb.service.events import Features, Pick
from tsucb.service.loop import Loop


class Wanted(NamedTuple):
    """A slot to be filled: its name, its features, and which arms it must not have."""

    name: str = ""
    features: Features | None = None
    excluded: Sequence[str] = ()
    baseline: str | None = None


ONE = (Wanted(),)


def fill(
    loop: Loop,
    context: Features | None,
    offered: list[str],
    excluded: set[str],
    slots: Sequence[Wanted],
    arm_features: dict[str, Features] | None,
) -> list[Pick]:
    """Choose an arm for every slot, none twice.

    Slots that are all alike are one list of the learner's. Those with features, exclusions or a
    baseline of their own are filled one after the other, by the same rule: each from what is left.
    """
    if is_list(loop, slots):
        left = [arm for arm in offered if arm not in excluded]
        if len(left) < len(slots):
            raise ValueError(
                f"there is no arm to choose for slot {slots[len(left)].name!r}; offer at least one"
            )
        return loop.propose_list(context, left, [slot.name for slot in slots], arm_features)
    picks: list[Pick] = []
    for slot in slots:
        taken = excluded.union(slot.excluded, (pick.arm for pick in picks))
        arms = [arm for arm in offered if arm not in taken]
        if not arms:
            where = f" for slot {slot.name!r}" if slot.name else ""
            raise ValueError(f"there is no arm to choose{where}; offer at least one")
        baseline = slot.baseline if slot.baseline in arms else None
        picks.append(
            loop.propose(
                context,
                arms,
                slot=slot.name,
                features=slot.features,
                baseline=baseline,
                arm_features=arm_features,
            )
        )
    return picks


def is_list(loop: Loop, slots: Sequence[Wanted]) -> bool:
    """Return whether the slots are the places of one list."""
    plain = all(slot == Wanted(slot.name) for slot in slots)
    return plain and len(slots) > 1 and loop.settings.mode == "online"


def ranked_arms(offered: Sequence[str], pick: Pick) -> list[str]:
    """Return all arms: the chosen one first, then its rivals; others keep their places."""
    means = np.frombuffer(pick.seen)[2 : 2 + len(pick.arms)]
    order = sorted(range(len(pick.arms)), key=lambda i: (pick.arms[i] != pick.arm, -means[i]))
    ranked = iter([pick.arms[i] for i in order])
    chosen_from = set(pick.arms)
    return [next(ranked) if arm in chosen_from else arm for arm in offered]
