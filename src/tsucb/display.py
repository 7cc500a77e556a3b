"""Times as text, and small tables for a terminal and for a notebook, without pandas."""

from collections.abc import Iterable, Sequence
from html import escape

# Inherit the notebook's colours and fonts, so that tables look right on light and dark pages.
STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:0.4em 0"
CELL = "padding:0.2em 0.9em;border-bottom:1px solid #8884;text-align:"


def text_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows as columns of text: the first aligned to the left, the others to the right.

    >>> print(text_table(["arm", "mean"], [["red", "0.5"], ["blue", "12"]]))
    arm   mean
    red    0.5
    blue    12
    """
    lines = [list(header), *map(list, rows)]
    first, *others = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        [line[0].ljust(first), *(cell.rjust(n) for cell, n in zip(line[1:], others, strict=True))]
        for line in lines
    ]
    return "\n".join("  ".join(line).rstrip() for line in padded)


def html_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", marked: int = -1
) -> str:
    """Return rows as an HTML table, escaped; the row at index `marked` is bold."""

    def line(cells: Sequence[str], tag: str) -> str:
        sides = ["left", *["right"] * (len(cells) - 1)]
        parts = [
            f'<{tag} style="{CELL}{side}">{escape(text)}</{tag}>'
            for side, text in zip(sides, cells, strict=True)
        ]
        return f"<tr>{''.join(parts)}</tr>"

    body = "".join(line(row, "th" if i == marked else "td") for i, row in enumerate(rows))
    title = f'<caption style="text-align:left">{escape(caption)}</caption>' if caption else ""
    return f'<table style="{STYLE}">{title}<thead>{line(header, "th")}</thead>{body}</table>'


def time_span(seconds: float) -> str:
    """Return a time as text, in days, hours, minutes or seconds.

    >>> time_span(90.0), time_span(7200.0), time_span(0.02)
    ('1.5 min', '2 h', '0.02 s')
    """
    for unit, size in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
