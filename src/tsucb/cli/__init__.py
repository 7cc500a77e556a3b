"""The command line: `tsucb reproduce`, `tsucb simulate`, `tsucb data`, `tsucb evaluate`.

Bad input is answered with one sentence and exit code 2. Heavy imports wait inside the commands,
so that `tsucb --help` answers at once.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

import tsucb
from tsucb.cli import data, reproduce
from tsucb.cli.evaluate import evaluate
from tsucb.cli.news import make_news
from tsucb.cli.simulate import simulate

app = typer.Typer(
    name="tsucb",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(reproduce.app, name="reproduce")
app.command()(simulate)
app.command()(evaluate)
app.add_typer(data.app, name="data")
data.app.command("make-news")(make_news)


def print_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        print(f"tsucb {tsucb.__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True),
]


@app.callback()
def options(version: Version = False) -> None:
    """TS-UCB: bandits that improve on Thompson sampling at no extra cost."""


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    sys.exit(answer(sys.argv[1:]))


def answer(arguments: list[str]) -> int:
    """Run a command; return its exit code, having said what is wrong if anything is."""
    try:
        code = app(arguments, prog_name="tsucb", standalone_mode=False)
    except (ValueError, TypeError, OSError) as error:
        return refuse(sentence(error))
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except Exception as error:
        # The parser's own errors; their class has moved between releases of typer and click.
        if not hasattr(error, "format_message"):
            raise
        return refuse(error.format_message())
    if code == 130:
        print("tsucb: interrupted", file=sys.stderr, flush=True)
        # Running tasks cannot be stopped from outside their threads, and nothing waits for them.
        os._exit(130)
    return int(code or 0)


def sentence(error: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def refuse(message: str) -> int:
    """Say what was wrong; the exit code of bad input."""
    print(f"tsucb: {message}", file=sys.stderr)
    return 2
