"""The command line: `tsucb reproduce`, `tsucb simulate`, `tsucb data`, `tsucb evaluate`.

Bad input is answered with one sentence and exit code 2. Heavy imports wait inside the commands,
so that `tsucb --help` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec

import typer

from tsucb.cli.reproduce import app as reproduce_app

app = typer.Typer(
    name="tsucb",
    help="TS-UCB: bandits that improve on Thompson sampling at no extra cost.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(reproduce_app, name="reproduce")
for _name in ("simulate", "evaluate"):
    if find_spec(f"tsucb.cli.{_name}"):
        _module = importlib.import_module(f"tsucb.cli.{_name}")
        app.command(_name)(getattr(_module, _name))
if find_spec("tsucb.cli.data"):
    _data = importlib.import_module("tsucb.cli.data")
    app.add_typer(_data.app, name="data")
    if find_spec("tsucb.cli.news"):
        _data.app.command("make-news")(importlib.import_module("tsucb.cli.news").make_news)


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    sys.exit(answer(sys.argv[1:]))


def answer(arguments: list[str]) -> int:
    """Run a command; return its exit code, having said what is wrong if anything is."""
    try:
        code = app(arguments, prog_name="tsucb", standalone_mode=False)
    except (ValueError, TypeError, OSError) as error:
        return refuse(sentence(error))
    except Exception as error:
        # The parser's own errors; their class has moved between releases of typer and click.
        if not hasattr(error, "format_message"):
            raise
        return refuse(error.format_message())
    if code == 130:
        print(
            "\ntsucb: interrupted; the same command continues where this one stopped",
            file=sys.stderr,
            flush=True,
        )
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
