"""Experiments on a Dask cluster of real processes, one of them killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tsucb.cli.commands import answer
from tsucb.paper.experiments import reproduce
from tsucb.paper.experiments.measure import measure
from tsucb.paper.figure1 import Figure1

pytest.importorskip("distributed")

WORK = ["reproduce", "figure1", "--cells=3:0.05,5:1", "--policies=TS", "--runs=100"]


@pytest.fixture
def dask(tmp_path):
    """Starts processes of the `dask` command; ends them after the test."""
    processes = []
    # They must find this module too, for the experiment that is defined here.
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"dask-{len(processes)}.log").open("wb") as log:
            command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
            environment = os.environ | {"PYTHONPATH": path}
            processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path, env=environment)
            )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def address_in(path: Path) -> str:
    """Return the scheduler's address, from the file that it writes when it is ready."""
    while True:
        try:
            return str(json.loads(path.read_text())["address"])
        except (FileNotFoundError, json.JSONDecodeError):
            time.sleep(0.05)


def test_a_killed_worker_costs_nothing_but_time(dask, tmp_path):
    place = ["--scheduler-file", str(tmp_path / "scheduler.json")]
    dask("scheduler", "--host", "127.0.0.1", "--port", "0", *place)
    address = address_in(tmp_path / "scheduler.json")
    workers = [dask("worker", address, "--nthreads", "1", "--no-nanny") for _ in range(2)]
    cluster, local = tmp_path / "cluster", tmp_path / "local"
    command = [sys.executable, "-m", "tsucb", *WORK, f"--cluster={address}", f"--out={cluster}"]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    while len(list(cluster.glob("tasks/*.parquet"))) < 2:  # both workers are busy now
        assert run.poll() is None, run.stdout.read().decode()
        time.sleep(0.02)
    workers[0].send_signal(signal.SIGKILL)
    output, _ = run.communicate(timeout=300)
    assert run.returncode == 0, output.decode()
    assert workers[1].poll() is None  # the other did the rest
    assert answer([*WORK, f"--out={local}"]) == 0
    for name in ("summary.csv", "runs.parquet"):
        assert (cluster / name).read_bytes() == (local / name).read_bytes()


def test_a_cluster_that_does_not_answer_is_one_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("tsucb.paper.experiments.measure.PATIENCE", 1)
    out = tmp_path / "out"
    assert answer([*WORK, "--cluster=tcp://127.0.0.1:9", f"--out={out}"]) == 2
    error = capsys.readouterr().err
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in error
    assert error.count("\n") == 1
    assert not out.exists()
    assert answer([*WORK, "--cluster=nonsense://x", f"--out={out}"]) == 2


def test_a_worker_of_other_code_is_refused():
    experiment = Figure1.at("quick")
    with pytest.raises(ValueError, match=r"other code of tsucb .* install the same version"):
        measure(experiment, experiment.tasks()[0], "0.1.0")


@dataclass(frozen=True, kw_only=True)
class Deadly(Figure1):
    """An experiment whose tasks kill the worker that runs them."""

    def run(self, cell, policy, runs):
        os.kill(os.getpid(), signal.SIGKILL)


class Unknown(Figure1):
    """An experiment that the cluster's machines do not have."""


def test_a_scheduler_that_cannot_read_the_tasks_is_one_sentence(dask, tmp_path, monkeypatch):
    place = ["--scheduler-file", str(tmp_path / "scheduler.json")]
    dask("scheduler", "--host", "127.0.0.1", "--port", "0", *place)
    address = address_in(tmp_path / "scheduler.json")
    monkeypatch.setattr(Unknown, "__module__", "module_of_another_version")
    monkeypatch.setitem(sys.modules, "module_of_another_version", sys.modules[__name__])
    experiment = Unknown.at("quick", instances=((3, 0.05),), policies=("TS",), runs=1)
    with pytest.raises(ValueError, match="cannot read the tasks"):
        reproduce(experiment, tmp_path / "out", cluster=address)


def test_a_task_that_kills_every_worker_is_one_sentence(dask, tmp_path):
    place = ["--scheduler-file", str(tmp_path / "scheduler.json")]
    dask("scheduler", "--host", "127.0.0.1", "--port", "0", *place)
    address = address_in(tmp_path / "scheduler.json")
    for _ in range(4):  # a task is given to no more
        dask("worker", address, "--nthreads", "1", "--no-nanny")
    experiment = Deadly.at("quick", instances=((3, 0.05),), policies=("TS",), runs=1)
    with pytest.raises(ConnectionError, match=r"every worker of tcp://.* died.*continues"):
        reproduce(experiment, tmp_path / "out", cluster=address)
