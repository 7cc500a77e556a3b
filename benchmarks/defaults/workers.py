"""Processes that play runs: one for each library, in the library's own environment."""

import json
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.peers.__main__ import ONE_CORE, install, pin_to_one_core

ROOT = Path(__file__).parents[2]


class Worker:
    """A process that answers lines of JSON, started again if it ends."""

    def __init__(self, python: Path, library: str) -> None:
        self.python, self.library = python, library
        self.start()

    def start(self) -> None:
        """Start the process and learn the library's version."""
        # A file, because nobody reads a pipe during a run, and warnings would fill it.
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [str(self.python), "-m", "benchmarks.defaults.play", self.library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            cwd=ROOT,
            env=os.environ | ONE_CORE,
            preexec_fn=pin_to_one_core,
            start_new_session=True,  # an interrupt goes to the parent only
        )
        self.version = str(self.read().get("version", "unknown"))

    def read(self) -> dict[str, Any]:
        """Return the next answer, or the last line of the errors if the process has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line:
            return dict(json.loads(line))
        self.process.wait()
        self.errors.seek(0)
        lines = [x.strip() for x in self.errors.read().splitlines() if x.strip()]
        reason = lines[-1][:120] if lines else f"exit status {self.process.returncode}"
        return {"totals": {}, "seconds": 0.0, "note": f"ended: {reason}"}

    def ask(self, **question: Any) -> dict[str, Any]:
        """Play a run."""
        if self.process.poll() is not None:
            self.start()
        try:
            assert self.process.stdin is not None
            print(json.dumps(question), file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # the process has just ended, and read() says why
        return self.read()

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()
        self.errors.close()


def python_of(library: str) -> tuple[Path | None, str]:
    """Return the interpreter of a library's environment, installed on first use; or None and why.

    A library that this interpreter has already is not installed again.
    """
    here = library == "tsucb" or find_spec(library) is not None
    return (Path(sys.executable), "") if here else install(library)
