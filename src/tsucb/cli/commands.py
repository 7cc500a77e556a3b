"""The list of commands, and the exit codes and messages of their errors."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated

import typer

import tsucb
from tsucb.cli import INTERRUPTED
from tsucb.extras import MissingExtra

# The line of each command in the help. Only the command that is called is loaded.
COMMANDS = {
    "reproduce": "Reproduce an experiment of the paper.",
    "simulate": "Play policies against a simulated environment.",
    "evaluate": "Estimate from a log what agents would have earned.",
    "data": "The datasets of the deep bandit benchmark: list, get, check.",
    "serve": "Serve decisions over HTTP; nothing acknowledged is lost.",
    "warm": "Compile agents ahead, so that no first decision has to wait.",
}


def application(arguments: list[str]) -> typer.Typer:
    """Return the command line; of its commands, only the one that the arguments call works."""
    app = typer.Typer(
        name="tsucb",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich takes longer to load than everything else
    )
    app.callback()(options)
    called = next((each for each in arguments if not each.startswith("-")), None)
    for name, line in COMMANDS.items():
        if name != called:
            app.command(name, help=line)(lambda: None)
            continue
        module = import_module(f"tsucb.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name, help=line)
        else:
            app.command(name)(getattr(module, name))
    return app


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        print(f"tsucb {tsucb.__version__}")
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True),
]


def options(version: Version = False) -> None:
    """Bayesian bandits that learn while they decide: TS-UCB, Thompson sampling and others."""


def answer(arguments: list[str]) -> int:
    """Run a command; print one sentence if it fails; return its exit code."""
    try:
        app = application(arguments)
        return int(app(arguments, prog_name="tsucb", standalone_mode=False) or 0)
    except (ValueError, TypeError, OSError, MissingExtra) as error:
        return refuse(sentence(error))
    except MemoryError as error:
        return refuse(f"not enough memory ({sentence(error) or 'none left'}); give smaller numbers")
    except KeyboardInterrupt:
        return INTERRUPTED
    except typer.Abort as error:
        # The parser turns an EOFError of a command into an Abort, as if a prompt had ended.
        if isinstance(error.__cause__, EOFError):
            return refuse(f"a file ended too early: {error.__cause__}")
        return INTERRUPTED
    except Exception as error:
        # Errors of the parser have this method; their class differs between releases.
        if not hasattr(error, "format_message"):
            raise
        message = error.format_message()
        if message.startswith("Usage: "):  # a command without arguments: the message is its help
            print(message, file=sys.stderr)
            return 2
        return refuse(message)


def sentence(error: Exception) -> str:
    """Return the message of an error on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def refuse(message: str) -> int:
    """Print what was wrong; return the exit code of bad input."""
    print(f"tsucb: {message}", file=sys.stderr)
    return 2
