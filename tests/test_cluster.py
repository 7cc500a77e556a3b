"""Experiments on a Dask cluster of real processes, one of them killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tsucb.cli import answer

pytest.importorskip("distributed")

WORK = ["reproduce", "figure1", "--cells=3:0.05,5:1", "--policies=TS", "--runs=100"]


@pytest.fixture
def dask(tmp_path):
    """Starts processes of the `dask` command; ends them after the test."""
    processes = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"dask-{len(processes)}.log").open("wb") as log:
            command = [sys.executable, "-m", "dask", *arguments, "--no-dashboard"]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.wait()


def address_in(path: Path) -> str:
    """The scheduler's address, from the file that it writes when it is ready."""
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


def test_a_cluster_that_does_not_answer_is_one_sentence(tmp_path, capsys):
    out = tmp_path / "out"
    assert answer([*WORK, "--cluster=tcp://127.0.0.1:9", f"--out={out}"]) == 2
    error = capsys.readouterr().err
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in error
    assert error.count("\n") == 1
    assert not out.exists()
    assert answer([*WORK, "--cluster=nonsense://x", f"--out={out}"]) == 2


def test_a_worker_of_another_version_is_refused():
    from tsucb.experiments.measure import measure
    from tsucb.experiments.paper.figure1 import Figure1

    experiment = Figure1.at("quick")
    with pytest.raises(ValueError, match="install the same version"):
        measure(experiment, experiment.tasks()[0], "0.0.0")
