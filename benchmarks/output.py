"""Parts of the benchmarks' reports: the processor's name, Markdown tables, and pictures."""

import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tsucb.pages.figures import theme


def processor() -> str:
    """Return the name of this machine's processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> str:
    """Return the commit that is measured, for the column of that name in a file of results.

    The environment variable COMMIT says it where there is no Git.
    """
    if "COMMIT" in os.environ:
        return os.environ["COMMIT"]
    command = ["git", "describe", "--always", "--dirty", "--abbrev=7", "--exclude=*"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[Any]], text_columns: int | str = 1
) -> str:
    """Return a Markdown table; the first columns are text, the others numbers.

    A string says it for every column: "t" for text, "n" for numbers.
    """
    if isinstance(text_columns, int):
        text_columns = "t" * text_columns + "n" * (len(header) - text_columns)
    marks = ["---" if kind == "t" else "--:" for kind in text_columns]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in (header, marks, *rows))


def save_pictures(draw: Callable[[bool], Any], out: Path, name: str) -> None:
    """Save a figure as SVG for light and dark pages, wide and, by draw(True), for phones."""
    for palette in ("light", "dark"):
        with theme(palette):
            for form, narrow in ((name, False), (f"{name}-narrow", True)):
                path = out / f"{form}-{palette}.svg"
                draw(narrow).savefig(path, transparent=True, metadata={"Date": None})
