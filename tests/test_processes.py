"""Processes in which tasks are measured: none survives, however the work ends."""

import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from tsucb.paper.experiments.processes import processes


def test_a_process_that_dies_is_one_sentence() -> None:
    with pytest.raises(ChildProcessError, match="the same command continues"), processes(1) as pool:
        pool.submit(os._exit, 1).result()
    assert not multiprocessing.active_children()


def test_processes_end_with_a_parent_that_is_killed() -> None:
    code = (
        "import os\n"
        "from tsucb.paper.experiments.processes import processes\n"
        "if __name__ == '__main__':\n"
        "    with processes(1) as pool:\n"
        "        pool.submit(os.getpid).result()\n"
        "        os.kill(os.getpid(), 9)\n"
    )
    # `run` returns when all processes have closed their output.
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert parent.returncode == -signal.SIGKILL


SUBINTERPRETER = """
import _xxsubinterpreters as interpreters
other = interpreters.create(isolated=False)
try:
    quiet = "import warnings; warnings.simplefilter('ignore');"
    interpreters.run_string(other, quiet + "import tsucb.agent")
except interpreters.RunFailedError as error:
    print(error)
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="interpreters are made in another way")
def test_a_subinterpreter_is_refused_in_one_sentence():
    done = subprocess.run(
        [sys.executable, "-c", SUBINTERPRETER], capture_output=True, text=True, timeout=120
    )
    assert "agents cannot run in a subinterpreter; start a process instead" in done.stdout


COMPILING = """
import sys
import numpy as np
import tsucb
from tsucb.compiler.dispatch import Compiled

agents, compiled = [], []
compile_all = Compiled._compile_all

def watched(self, signature):
    for agent in agents:  # in a thread of its own, so a lock that is held cannot be taken
        assert agent._guard.lock.acquire(timeout=1.0), self.py_func.__name__
        agent._guard.lock.release()
        compiled.append(self.py_func.__name__)
    return compile_all(self, signature)

Compiled._compile_all = watched
calls = {
    "choose": lambda a: a.choose(np.ones(2)),
    "choose_many": lambda a: a.choose_many(np.ones((3, 2))),
    "rank": lambda a: a.rank(np.ones(2), 2),
    "update": lambda a: a.update(np.ones(2), "a", 1.0),
    "record": lambda a: a.record("own", np.ones(2), "a"),
    "fit": lambda a: a.fit((np.ones((3, 2)), ["a", "b", "a"], [1.0, 2.0, 3.0])),
    "reward_many": lambda a: a.reward_many([a.choose(np.ones(2)).id], [1.0]),
}
agents.append(tsucb.Agent(["a", "b", "c"], model=tsucb.NIGLinear(2), policy=tsucb.TSUCB(3), seed=0))
calls[sys.argv[1]](agents[0])
assert compiled
"""


@pytest.mark.parametrize(
    "call", ["choose", "choose_many", "rank", "update", "record", "fit", "reward_many"]
)
def test_nothing_is_compiled_while_the_agent_is_locked(call):
    """In a process of its own, whose first call it is."""
    done = subprocess.run([sys.executable, "-c", COMPILING, call], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
