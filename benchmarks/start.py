"""The time of a first decision with an empty and with a filled cache, and of the command line.

`python benchmarks/start.py` prints seconds of processor time, which other programs on the machine
disturb less than the clock; each line is a process of its own, or a call in one. Python's own
bytecode is there, as it is wherever pip has installed the package.
"""

import compileall
import os
import resource
import subprocess
import sys
import tempfile

import tsucb

DEFAULT = """
import time
begin = time.process_time()
import tsucb
agent = tsucb.Agent(["article", "video", "quiz"])
visitor = {"age": 34, "city": "Rome", "premium": True, "visits": None}
decision = agent.choose(visitor)
chosen = time.process_time()
agent.reward(decision.id, 1.0)
print(f"import and first decision {chosen - begin:.2f} s, first reward "
      f"{time.process_time() - chosen:.2f} s")
"""
FURTHER = """
for policy in (tsucb.Thompson(), tsucb.Greedy(), tsucb.OFUL(), tsucb.BayesUCB(), tsucb.IDS(10)):
    begin = time.process_time()
    agent = tsucb.Agent(["article", "video", "quiz"], policy=policy)
    agent.reward(agent.choose(visitor).id, 1.0)
    print(f"  then {policy.name}: {time.process_time() - begin:.2f} s")
"""


def spent(command: list[str], cache: str) -> tuple[str, float]:
    """Return what a command prints, and the processor time of its process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | {"TSUCB_CACHE": cache}
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout.rstrip(), seconds


def main() -> None:
    """Print the times."""
    compileall.compile_dir(os.path.dirname(tsucb.__file__), quiet=1)
    with tempfile.TemporaryDirectory() as cache:
        printed, _ = spent([sys.executable, "-c", DEFAULT + FURTHER], cache)
        print(f"Empty cache: {printed}")
        for _ in range(3):
            printed, seconds = spent([sys.executable, "-c", DEFAULT], cache)
            print(f"Filled cache: {printed}; the whole process {seconds:.2f} s")
        for _ in range(3):
            _, seconds = spent([sys.executable, "-m", "tsucb", "--help"], cache)
            print(f"tsucb --help: {seconds:.2f} s")


if __name__ == "__main__":
    main()
