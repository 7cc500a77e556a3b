"""What a policy saw of n arms when it decided, as 4n + 2 numbers in a row.

In this order: the target; the policy's favourite, which is another arm than the one played if a
floor took it; then every arm's mean, std, estimate and radius. First pulls have the favourite and
NaN for all else.
"""

import numpy as np

from tsucb.compiler import shared
from tsucb.policies.policy import choose
from tsucb.step import beliefs, first_pull


@shared
def next_arm_seen(player, context, available, step, rng, seen):  # type: ignore[no-untyped-def]
    """Return what `tsucb.step.next_arm` returns, and write what the policy saw into `seen`."""
    choice = first_pull_seen(player, available, rng, seen)
    if choice.arm < 0:
        belief = beliefs(player, context, available, step, rng)
        choice = choose_seen(player.policy, belief, rng, seen)
    return choice


@shared
def first_pull_seen(player, available, rng, seen):  # type: ignore[no-untyped-def]
    """Return what `tsucb.step.first_pull` returns; write its favourite, and NaN, into `seen`."""
    choice = first_pull(player, available, rng)
    if choice.arm >= 0:
        seen[:] = np.nan
        seen[1] = choice.favourite
    return choice


@shared
def choose_seen(policy, belief, rng, seen):  # type: ignore[no-untyped-def]
    """Return the policy's choice, and write the reason and the belief into `seen`."""
    choice, n = choose(policy, belief, rng), belief.mean.size
    write_reason(seen, choice)
    for a in range(n):
        seen[2 + a] = belief.mean[a]
        seen[2 + n + a] = belief.std[a]
        seen[2 + 2 * n + a] = belief.estimate[a]
        seen[2 + 3 * n + a] = belief.radius[a]
    return choice


@shared
def write_reason(seen, choice):  # type: ignore[no-untyped-def]
    """Write the first two entries: target and favourite."""
    seen[0] = choice.target
    seen[1] = choice.favourite
