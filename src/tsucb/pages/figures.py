"""Figures drawn with matplotlib: their style, and their files in light and dark."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsucb.extras import require
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.statistics import NORMAL

if TYPE_CHECKING:
    import matplotlib.figure
    from matplotlib.axes import Axes

# Colours of paper, ink and lines, the same as in `style.css`.
PALETTES = {
    "light": ("#ffffff", "#1c2126", "#c9ced4"),
    "dark": ("#15181c", "#e4e7ea", "#454c54"),
}
# The palette of Okabe and Ito, whose colours colour-blind readers can tell apart; line styles tell
# policies apart in black and white.
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


class Figure(NamedTuple):
    """A picture of the report: file name without ending, heading, caption, and how to draw it.

    `draw(narrow)` returns a matplotlib Figure; a narrow one is for the width of a phone.
    """

    name: str
    title: str
    caption: str
    draw: Callable[[bool], matplotlib.figure.Figure]


def picture(figure: Figure, palette: str, narrow: bool, ending: str) -> bytes:
    """Return the bytes of a figure as a file, the same bytes every time."""
    sink, metadata = io.BytesIO(), {"Date": None} if ending == "svg" else None
    with theme(palette):
        figure.draw(narrow).savefig(sink, format=ending, dpi=160, metadata=metadata)
    return sink.getvalue()


def drawings(figure: Figure) -> dict[tuple[str, bool], bytes]:
    """Return a figure in light and dark, narrow and wide."""
    return {
        (palette, narrow): picture(figure, palette, narrow, "svg")
        for narrow in (True, False)
        for palette in ("dark", "light")
    }


@contextmanager
def theme(name: str) -> Iterator[None]:
    """Draw the figures of a `with` block in the light or the dark palette."""
    require("plots", "matplotlib")
    import matplotlib

    paper, ink, line = PALETTES[name]
    settings: Any = {
        **dict.fromkeys(("figure.facecolor", "savefig.facecolor", "axes.facecolor"), paper),
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), ink),
        **dict.fromkeys(("axes.edgecolor", "grid.color"), line),
        **dict.fromkeys(("axes.labelsize", "font.size"), 9),
        **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), 8),
        "axes.grid": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "grid.linewidth": 0.5,
        "grid.alpha": 0.6,
        "legend.frameon": False,
        "lines.linewidth": 1.5,
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
        "svg.hashsalt": "tsucb",  # the same file every time
        "svg.fonttype": "path",
    }
    with matplotlib.rc_context(settings):
        yield


def percent_colours(percent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return colours (…, 4) for percentages of a baseline: blue below 100, white at it, red above.

    The scale is logarithmic, so half and twice the regret are equally far from white; it ends at
    40 % and 250 %. Colours get darker with the distance from 100 on both sides, so in black and
    white only the number, which is bold above 100, tells the side.
    """
    require("plots", "matplotlib")
    import matplotlib

    scaled = np.log(np.asarray(percent) / 100) / np.log(2.5)
    return np.asarray(matplotlib.colormaps["RdBu_r"](np.clip(0.5 + scaled / 2, 0.02, 0.98)))


def readable_on(colour: ArrayLike) -> str:
    """Return black or white, whichever has more contrast to a colour (relative luminance of WCAG).

    >>> readable_on((1.0, 1.0, 1.0)), readable_on((0.0, 0.1, 0.4))
    ('black', 'white')
    """
    channels = np.asarray(colour)[:3]
    linear = np.where(channels <= 0.03928, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    return "black" if linear @ (0.2126, 0.7152, 0.0722) > 0.179 else "white"


def heat_map(
    axes: Axes,
    percent: NDArray[np.float64],
    rows: Sequence[object],
    columns: Sequence[object],
    title: str,
) -> None:
    """Draw a grid of percentages of a baseline: a colour and a number in each cell."""
    colours = percent_colours(np.where(np.isnan(percent), 100, percent))
    axes.imshow(colours[..., :3], aspect="auto")
    for i, j in np.ndindex(percent.shape):
        value = percent[i, j]
        text = "–" if np.isnan(value) else f"{value:.0f}" if value >= 999.5 else f"{value:.1f}"
        weight = "bold" if value > 100 else "normal"
        look: Any = {"color": readable_on(colours[i, j]), "fontweight": weight, "fontsize": 9}
        axes.text(j, i, text, ha="center", va="center", **look)
    axes.set_xticks(range(len(columns)), [str(c) for c in columns])
    axes.set_yticks(range(len(rows)), [str(r) for r in rows])
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(title)


def colour_key(axes: Axes) -> None:
    """Draw the colour scale of the heat maps."""
    ticks = [40, 60, 80, 100, 125, 160, 250]
    values = np.geomspace(40, 250, 256)
    axes.imshow(percent_colours(values)[None, :, :3], aspect="auto", extent=(0, 1, 0, 1))
    places = np.log(np.array(ticks) / 40) / np.log(250 / 40)
    labels = [f"≤ {ticks[0]}", *map(str, ticks[1:-1]), f"≥ {ticks[-1]}"]
    axes.set_xticks(places, labels)
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def new_figure(width: float, height: float) -> matplotlib.figure.Figure:
    """Return an empty figure of a size in inches; needs no screen and no global state."""
    require("plots", "matplotlib")
    from matplotlib.figure import Figure as Empty

    return Empty(figsize=(width, height), layout="constrained")


def panel_for_each(
    names: Sequence[object], columns: int, narrow: bool, height: float
) -> tuple[matplotlib.figure.Figure, list[Axes]]:
    """Return a figure with one panel per name, side by side, and hide unused panels."""
    columns = min(len(names), columns)
    lines = -(-len(names) // columns)
    figure = new_figure(4.2 if narrow else 10.5, height * lines + 0.6)
    axes = list(figure.subplots(lines, columns, squeeze=False).ravel())
    for unused in axes[len(names) :]:
        unused.set_axis_off()
    return figure, axes[: len(names)]


def legend_above(figure: matplotlib.figure.Figure, axes: Axes, narrow: bool) -> None:
    """Draw one legend for all panels above the figure, with the entries of one panel."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3 if narrow else 6)


def style(policy: str, number: int = 0) -> dict[str, Any]:
    """Return matplotlib's label, color and linestyle of a policy, the same in every figure.

    `number` selects the style of a policy that has none of its own. Black becomes the theme's ink.

    >>> style("Greedy")
    {'label': 'Greedy', 'color': '#009E73', 'linestyle': '-'}
    """
    require("plots", "matplotlib")
    import matplotlib

    colour, line = _STYLES.get(policy, _SPARE[number % len(_SPARE)])
    if colour == "#000000":
        colour = matplotlib.rcParams["text.color"]
    return {"label": policy, "color": colour, "linestyle": line}


def regret_curves(
    steps: Integers | Floats,
    curves: Mapping[str, Floats],
    ax: Axes | None = None,
    *,
    labels: bool = True,
) -> Axes:
    """Draw the mean cumulative regret from step 0 on, a line per policy with a 95 % band.

    Parameters
    ----------
    steps : (n,)
    curves : for each policy, the regret of every run at these steps, (runs, n)
    ax : where to draw; a new figure if None
    labels : whether to label the axes and add a legend
    """
    if ax is None:
        require("plots", "matplotlib")
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")[1]
    steps, unknown = np.append(0, steps), count()
    for position, (policy, values) in enumerate(curves.items()):
        regret = np.pad(values, ((0, 0), (1, 0)))
        mean = regret.mean(axis=0)
        look = style(policy, 0 if policy in _STYLES else next(unknown))
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
