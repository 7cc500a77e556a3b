"""The command line: `tsucb reproduce`, `tsucb simulate`, `tsucb data`, `tsucb evaluate`.

Bad input is answered with one sentence and exit code 2. Nothing heavy is imported here, so that
even an interrupt while the commands are still loading is answered by `main`.
"""

import os
import sys
from typing import Any

INTERRUPTED = 130  # the exit code that shells use


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    try:
        for stream in (sys.stdout, sys.stderr):
            # A sign that the terminal cannot show becomes a question mark, and no error.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        from tsucb.cli.commands import answer

        code = answer(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("tsucb: interrupted", file=sys.stderr, flush=True)
        # Running tasks cannot be stopped from outside their threads, and nothing waits for them.
        os._exit(INTERRUPTED)
    sys.exit(code)


def __getattr__(name: str) -> Any:
    """`answer`, loaded when it is asked for."""
    if name == "answer":
        from tsucb.cli import commands

        return getattr(commands, name)
    raise AttributeError(f"module 'tsucb.cli' has no attribute {name!r}")
