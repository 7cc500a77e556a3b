"""The time of a first decision with an empty and with a filled cache, and of the command line.

`python benchmarks/start.py docs/results/start.csv` measures seconds of processor time, which other
programs on the machine disturb less than the clock, twice each, with the accelerator of the
compiler and without it. Each part is a process of its own, or a call in one. Python's bytecode
is compiled before, as pip does when it installs the package.
"""

import compileall
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1]))  # run from the repository, not installed

import tsucb
from benchmarks.output import commit

RUNS = 2
FIRST = "import, first decision and reward"
DEFAULT = f"""
import json, time
begin = time.process_time()
import tsucb
agent = tsucb.Agent(["article", "video", "quiz"])
visitor = {{"age": 34, "city": "Rome", "premium": True, "visits": None}}
agent.reward(agent.choose(visitor).id, 1.0)
spent = {{{FIRST!r}: time.process_time() - begin}}
"""
FURTHER = """
for policy in (tsucb.Thompson(), tsucb.Greedy(), tsucb.OFUL(), tsucb.BayesUCB(), tsucb.IDS(10)):
    begin = time.process_time()
    agent = tsucb.Agent(["article", "video", "quiz"], policy=policy)
    agent.reward(agent.choose(visitor).id, 1.0)
    spent["then an agent with " + policy.name] = time.process_time() - begin
"""
TELL = "print(json.dumps(spent))"


def measured(command: list[str], cache: str, compiler: str) -> tuple[str, float]:
    """Return what a command prints, and the processor time of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    settings = {"TSUCB_CACHE": cache, "TSUCB_COMPILER": compiler}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | settings
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, seconds


def one_run(compiler: str) -> list[tuple[str, str, str, float]]:
    """Return compiler, cache, part and seconds of everything, once."""
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        further = FURTHER if compiler != "public" else ""
        for state, code in (("empty", DEFAULT + further), ("filled", DEFAULT)):
            command = [sys.executable, "-c", code + TELL]
            printed, _ = measured(command, cache, compiler)
            spent = json.loads(printed)
            rows += [(compiler, state, part, seconds) for part, seconds in spent.items()]
        _, seconds = measured([sys.executable, "-m", "tsucb", "--help"], cache, compiler)
        rows.append((compiler, "filled", "tsucb --help", seconds))
    return rows


def main() -> None:
    """Measure, print, and write the file that is named."""
    compileall.compile_dir(os.path.dirname(tsucb.__file__), quiet=1)
    compilers = ("accelerated", "public")
    rows = [row for _ in range(RUNS) for compiler in compilers for row in one_run(compiler)]
    table = pd.DataFrame(rows, columns=["compiler", "cache", "what", "seconds"])
    grouped = table.groupby(["compiler", "cache", "what"], sort=False).seconds
    found = grouped.agg(least="min", most="max").reset_index().assign(commit=commit())
    print(found.round(2).to_string(index=False))
    found.to_csv(sys.argv[1], index=False, float_format="%.2f")


if __name__ == "__main__":
    main()
