"""The command line: `tsucb COMMAND`, one module for each command; see `commands`.

Bad input gets one sentence and exit code 2, an interrupt exit code 130. Nothing heavy is imported
here, so that `main` also catches an interrupt while a command is loaded.
"""

import os
import sys

from tsucb.extras import MissingExtra, require

INTERRUPTED = 130  # the exit code that shells use


def main() -> None:
    """Run the command of this process and leave with its exit code."""
    try:
        for stream in (sys.stdout, sys.stderr):
            # Print a question mark for a character that the terminal cannot show.
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="replace")
        require("cli", "typer", "rich")
        from tsucb.cli.commands import answer

        code = answer(sys.argv[1:])
    except MissingExtra as error:
        print(f"tsucb: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        code = INTERRUPTED
    if code == INTERRUPTED:
        print("tsucb: interrupted", file=sys.stderr, flush=True)
        # Threads with running tasks cannot be stopped, so do not wait for them.
        os._exit(INTERRUPTED)
    sys.exit(code)
