"""Play streams, inside a library's own environment: `python -m benchmarks.defaults.play LIBRARY`.

Reads one line of JSON for each run from its input and answers with one line, so that a library is
imported once. It says its version first.
"""

import hashlib
import json
import math
import os
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from benchmarks.defaults.contestants import NAMED, Contestant, Floats

GRACE = 5.0  # seconds more, for imports and compiling at the first steps
MEMORY = 12 * 2**30
CUT = "too slow"  # beginning of the note of a run that was cut off


def run(
    contestant: Contestant,
    contexts: Floats,
    rewards: Floats,
    *,
    scale: tuple[float, float],
    steps: Sequence[int],
    seed: int,
    milliseconds: float = math.inf,
) -> dict[str, Any]:
    """Play a stream; return the totals after these numbers of steps, and why one is missing.

    A run is cut off as soon as it takes more CPU time than `milliseconds` a decision. The learner
    gets factor · reward + shift, and the totals are of the rewards themselves.
    """
    factor, shift = scale
    given = factor * rewards + shift
    out: dict[str, Any] = {"totals": {}, "seconds": 0.0, "note": ""}
    if contestant.binary and not np.isin(given, (0, 1)).all():
        return out | {"note": "takes rewards 0 and 1 only"}
    begin, t = time.process_time(), 0
    try:
        learner = contestant.make(rewards.shape[1], contexts.shape[1], seed)
        total = 0.0
        for t in range(max(steps)):
            arm = learner.choose(contexts[t])
            learner.learn(contexts[t], arm, float(given[t, arm]))
            total += float(rewards[t, arm])
            elapsed = time.process_time() - begin
            if t + 1 in steps:
                out["totals"][t + 1] = total
            if elapsed > GRACE + 1e-3 * milliseconds * (t + 1):
                out["note"] = f"{CUT}: more than {milliseconds:g} ms a decision"
                break
    except Exception as error:  # an error of a library is its result
        reason = " ".join(str(error).split())[:120]
        out["note"] = f"failed at step {t + 1:,}: {type(error).__name__}: {reason}"
    return out | {"seconds": round(time.process_time() - begin, 3)}


def version_of(library: str) -> str:
    """Return the installed version; of this library also a hash of its sources."""
    if library == "tsucb":
        import tsucb

        digest = hashlib.sha256()
        for path in sorted(Path(tsucb.__file__).parent.rglob("*.py")):
            digest.update(path.read_bytes())
        return f"{tsucb.__version__}+{digest.hexdigest()[:8]}"
    try:
        return version(library)
    except PackageNotFoundError:
        return "unknown"


def answer(line: str) -> dict[str, Any]:
    """Play the run that a line of JSON describes."""
    asked = json.loads(line)
    contexts, rewards = (
        np.load(f"{asked['stream']}.{part}.npy", mmap_mode="r") for part in ("contexts", "rewards")
    )
    return run(
        NAMED[asked["contestant"]],
        np.array(contexts[: max(asked["steps"])]),
        np.array(rewards[: max(asked["steps"])]),
        scale=tuple(asked["scale"]),
        steps=asked["steps"],
        seed=asked["seed"],
        milliseconds=asked["milliseconds"],
    )


def main(library: str, lines: TextIO, answers: TextIO) -> None:
    """Answer every line; suppress the library's warnings."""
    warnings.simplefilter("ignore")
    print(json.dumps({"version": version_of(library)}), file=answers, flush=True)
    for line in lines:
        print(json.dumps(answer(line)), file=answers, flush=True)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    # Send what a library prints to the error output, apart from the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main(sys.argv[1], sys.stdin, answers)
