"""All commands together, and what becomes of their errors."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

import tsucb
from tsucb.cli import INTERRUPTED, data, reproduce
from tsucb.cli.evaluate import evaluate
from tsucb.cli.news import make_news
from tsucb.cli.serve import serve
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
app.command()(serve)
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


def answer(arguments: list[str]) -> int:
    """Run a command; return its exit code, having said what is wrong if anything is."""
    try:
        return int(app(arguments, prog_name="tsucb", standalone_mode=False) or 0)
    except (ValueError, TypeError, OSError) as error:
        return refuse(sentence(error))
    except MemoryError as error:
        return refuse(f"not enough memory ({sentence(error) or 'none left'}); give smaller numbers")
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort as error:
        # The parser takes the end of a file for the end of an interview.
        if isinstance(error.__cause__, EOFError):
            return refuse(f"a file ended too early: {error.__cause__}")
        return INTERRUPTED
    except Exception as error:
        # The parser's own errors; their class has moved between releases of typer and click.
        if not hasattr(error, "format_message"):
            raise
        return refuse(error.format_message())


def sentence(error: Exception) -> str:
    """What went wrong, on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def refuse(message: str) -> int:
    """Say what was wrong; the exit code of bad input."""
    print(f"tsucb: {message}", file=sys.stderr)
    return 2
