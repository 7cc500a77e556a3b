"""How figures look: one colour and one line style per policy, the same in every figure."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from tsucb.numeric.arrays import Floats, Integers

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
    "IDS(∞)": ("#CC79A7", "--"),
    "Random": ("#999999", ":"),
}
_SPARE = [
    ("#E69F00", "-"),
    ("#56B4E9", ":"),
    ("#E69F00", "--"),
    ("#D55E00", "--"),
    ("#009E73", "--"),
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


def regret_curves(
    steps: Integers, curves: Mapping[str, Floats], ax: "Axes | None" = None
) -> "Axes":
    """Mean cumulative regret of each policy (R, C) over the steps (C,), with 95 % bands."""
    import matplotlib.pyplot as plt

    if ax is None:
        ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")[1]
    styles = line_styles(curves)
    for policy, regret in curves.items():
        mean = regret.mean(axis=0)
        color, line = styles[policy]["color"], styles[policy]["linestyle"]
        ax.plot(steps, mean, label=policy, linewidth=1.8, color=color, linestyle=line)
        if len(regret) > 1:
            width = 1.96 * regret.std(axis=0, ddof=1) / np.sqrt(len(regret))
            ax.fill_between(steps, mean - width, mean + width, color=color, alpha=0.15, linewidth=0)
    ax.set(xlabel="step", ylabel="cumulative regret", xlim=(0, int(steps[-1])))
    ax.set_ylim(bottom=0)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False)
    return ax
