"""The values of f̃ at which TS-UCB changes its arm: the lower envelope of straight lines.

The ratio (f̃ − estimate) / radius of an arm is a line in f̃, the flatter the wider the radius.
TS-UCB plays the arm with the lowest line.
"""

import numpy as np

from tsucb.compiler import compiled


@compiled
def breakpoints(estimate, radius, low, high):  # type: ignore[no-untyped-def]
    """Return the values from `low` to `high`, both included, between which one arm wins.

    As f̃ grows, so does the winner's radius: the next winner is the wider arm whose line crosses
    first. A certain arm (radius zero) wins below its estimate and nowhere else.
    """
    arms = estimate.size
    points = np.empty(2 * arms + 2)
    points[0] = low
    count = 1
    winner = -1
    lowest = np.inf
    for a in range(arms):
        if radius[a] == 0.0:
            if low < estimate[a] < high:
                points[count] = estimate[a]
                count += 1
        elif radius[a] < np.inf:
            psi = (low - estimate[a]) / radius[a]
            if winner < 0 or psi < lowest or (psi == lowest and radius[a] > radius[winner]):
                winner, lowest = a, psi
    while winner >= 0:
        following = -1
        nearest = high
        for a in range(arms):
            if radius[winner] < radius[a] < np.inf:
                slope = radius[winner] / (radius[a] - radius[winner])
                crossing = estimate[winner] + (estimate[winner] - estimate[a]) * slope
                if crossing < nearest or (
                    crossing == nearest and following >= 0 and radius[a] > radius[following]
                ):
                    nearest, following = crossing, a
        winner = following
        if winner >= 0:
            points[count] = max(nearest, low)
            count += 1
    points[count] = high
    return np.sort(points[: count + 1])
