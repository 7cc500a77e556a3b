"""How figures look: one colour and one line style per policy, the same in every figure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.extras import require
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.statistics import NORMAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The palette of Okabe and Ito, which colour-blind readers can tell apart; the line styles carry
# the same distinction into print.
_STYLES: dict[str, tuple[str, str]] = {
    "TS": ("#000000", "-"),
    "TS-UCB(1)": ("#0072B2", "-"),
    "TS-UCB(10)": ("#56B4E9", "-."),
    "TS-UCB(100)": ("#0072B2", "--"),
    "TS-UCB(∞)": ("#56B4E9", "-"),
    "UCB": ("#D55E00", "-"),
    "Greedy": ("#009E73", "-"),
    "IDS(1000)": ("#CC79A7", "-"),
    "IDS(100)": ("#CC79A7", "-."),
    "IDS-grid(1000)": ("#CC79A7", ":"),
    "IDS(∞)": ("#CC79A7", "--"),
    "Random": ("#999999", ":"),
    "at random": ("#999999", ":"),
}
_SPARE = [
    ("#E69F00", "-"),
    ("#56B4E9", ":"),
    ("#009E73", "--"),
    ("#D55E00", "--"),
    ("#E69F00", "--"),
]


def line_styles(policies: Iterable[str]) -> dict[str, dict[str, str]]:
    """Matplotlib's `color` and `linestyle` for each policy name.

    >>> line_styles(["TS"])
    {'TS': {'color': '#000000', 'linestyle': '-'}}
    """
    styles, spare = {}, 0
    for policy in policies:
        if policy in _STYLES:
            color, line = _STYLES[policy]
        else:
            color, line = _SPARE[spare % len(_SPARE)]
            spare += 1
        styles[policy] = {"color": color, "linestyle": line}
    return styles


def style(policy: str) -> dict[str, Any]:
    """Label, colour and dashes of a policy, the same in every figure; black becomes ink."""
    require("plots", "matplotlib")
    import matplotlib

    chosen: dict[str, Any] = {"label": policy, **line_styles([policy])[policy]}
    if chosen["color"] == "#000000":
        chosen["color"] = matplotlib.rcParams["text.color"]
    return chosen


def regret_curves(
    steps: Integers | Floats,
    curves: Mapping[str, Floats],
    ax: "Axes | None" = None,
    *,
    labels: bool = True,
) -> "Axes":
    """Mean cumulative regret from step 0 on, one line per policy, with a 95 % band for the mean.

    Parameters
    ----------
    steps : (n,)
    curves : of each policy the regret of every run at these steps, (runs, n)
    ax : where to draw; a new figure if None
    labels : whether the axes get their names and a legend
    """
    if ax is None:
        require("plots", "matplotlib")
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")[1]
    steps = np.append(0, steps)
    spare = line_styles(curves)
    for position, (policy, values) in enumerate(curves.items()):
        regret = np.pad(values, ((0, 0), (1, 0)))
        mean, look = regret.mean(axis=0), style(policy)
        if policy not in _STYLES:
            look |= spare[policy]  # policies without a style of their own are still told apart
        ax.plot(steps, mean, zorder=3 - 0.01 * position, **look)  # the first named on top
        if len(regret) > 1:
            width = NORMAL * regret.std(axis=0, ddof=1) / np.sqrt(len(regret))
            ax.fill_between(
                steps, mean - width, mean + width, color=look["color"], alpha=0.15, linewidth=0
            )
    ax.set_xlim(0, float(steps[-1]))
    ax.set_ylim(bottom=0)
    ax.spines[["top", "right"]].set_visible(False)
    if labels:
        ax.set(xlabel="step", ylabel="cumulative regret")
        ax.legend(frameon=False)
    return ax
