"""Processes in which tasks are measured: none is left behind, whatever ends the work."""

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
    # It returns when all have closed their output.
    parent = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert parent.returncode == -signal.SIGKILL
