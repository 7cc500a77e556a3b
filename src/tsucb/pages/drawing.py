"""How the figures look: one theme in light and dark, heat maps, panels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tsucb.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Paper, ink and lines, matched by the style sheet of the report.
PALETTES = {
    "light": {"paper": "#ffffff", "ink": "#1c2126", "line": "#c9ced4"},
    "dark": {"paper": "#15181c", "ink": "#e4e7ea", "line": "#454c54"},
}


@contextmanager
def theme(name: str) -> Iterator[None]:
    """Draw everything inside in the light or the dark palette."""
    require("plots", "matplotlib")
    import matplotlib

    colours = PALETTES[name]
    paper, ink, line = colours["paper"], colours["ink"], colours["line"]
    settings: Any = {
        "figure.facecolor": paper,
        "savefig.facecolor": paper,
        "axes.facecolor": paper,
        "axes.edgecolor": line,
        "axes.labelcolor": ink,
        "axes.grid": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "axes.labelsize": 9,
        "grid.color": line,
        "grid.linewidth": 0.5,
        "grid.alpha": 0.6,
        "text.color": ink,
        "xtick.color": ink,
        "ytick.color": ink,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "legend.frameon": False,
        "legend.fontsize": 8,
        "lines.linewidth": 1.5,
        "font.size": 9,
        "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
        "svg.hashsalt": "tsucb",  # the same file every time
        "svg.fonttype": "path",
    }
    with matplotlib.rc_context(settings):
        yield


def percent_colours(percent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Colours (…, 4) of percentages of a baseline: blue below 100, white at it, red above.

    The scale is logarithmic, so that half and twice the regret are equally far from white, and
    ends at 40 % and 250 %. Both sides grow darker with the distance: in grey, darkness is distance,
    and the number, bold above 100, says which side.
    """
    require("plots", "matplotlib")
    import matplotlib

    scaled = np.log(np.asarray(percent) / 100) / np.log(2.5)
    return np.asarray(matplotlib.colormaps["RdBu_r"](np.clip(0.5 + scaled / 2, 0.02, 0.98)))


def readable_on(colour: ArrayLike) -> str:
    """Black or white, whichever stands out more from the colour (relative luminance of WCAG).

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
    """A grid of percentages of a baseline, coloured by `percent_colours`, a number in each cell."""
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
    """The scale of the heat maps."""
    ticks = [40, 60, 80, 100, 125, 160, 250]
    values = np.geomspace(40, 250, 256)
    axes.imshow(percent_colours(values)[None, :, :3], aspect="auto", extent=(0, 1, 0, 1))
    places = np.log(np.array(ticks) / 40) / np.log(250 / 40)
    labels = [f"≤ {ticks[0]}", *map(str, ticks[1:-1]), f"≥ {ticks[-1]}"]
    axes.set_xticks(places, labels)
    axes.set_yticks([])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that lays itself out; needs no screen and no global state."""
    require("plots", "matplotlib")
    from matplotlib.figure import Figure as MatplotlibFigure

    return MatplotlibFigure(figsize=(width, height), layout="constrained")


def panel_for_each(
    names: Sequence[object], columns: int, narrow: bool, height: float
) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels side by side, one for each name; what is left over is hidden."""
    columns = min(len(names), columns)
    lines = -(-len(names) // columns)
    figure = new_figure(4.2 if narrow else 10.5, height * lines + 0.6)
    axes = list(figure.subplots(lines, columns, squeeze=False).ravel())
    for unused in axes[len(names) :]:
        unused.set_axis_off()
    return figure, axes[: len(names)]


def legend_above(figure: Figure, axes: Axes, narrow: bool) -> None:
    """The legend of one panel, which holds for all, above the figure."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3 if narrow else 6)
