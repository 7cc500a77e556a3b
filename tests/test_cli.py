"""The command line: real calls, exit codes, and what bad input prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tsucb.cli import answer

COMMAND = [sys.executable, "-m", "tsucb"]
FIGURE1 = ["reproduce", "figure1"]


def test_help_names_the_commands(capsys):
    assert answer(["--help"]) == 0
    out = capsys.readouterr().out
    for command in ("reproduce", "simulate", "data", "evaluate"):
        assert command in out
    assert answer([*FIGURE1, "--help"]) == 0
    out = capsys.readouterr().out
    for option in ("scale", "runs", "seed", "workers", "out", "cells", "policies", "prior"):
        assert f"--{option}" in out


def test_the_version_is_printed(capsys):
    import tsucb

    assert answer(["--version"]) == 0
    assert capsys.readouterr().out == f"tsucb {tsucb.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*FIGURE1, "--cells", "4:0.05"], "unknown cell 4:0.05"),
        ([*FIGURE1, "--cells", "x"], "unknown cell 'x'"),
        ([*FIGURE1, "--cells", ""], "at least one cell"),
        ([*FIGURE1, "--runs", "-3"], "runs must be at least 1"),
        ([*FIGURE1, "--runs", "many"], "--runs"),
        ([*FIGURE1, "--seed", "-1"], "seed"),
        ([*FIGURE1, "--policies", "Foo"], "unknown policy 'Foo'"),
        ([*FIGURE1, "--policies", ","], "at least one policy"),
        ([*FIGURE1, "--scale", "huge"], "huge"),
        ([*FIGURE1, "--workers", "0"], "workers must be at least 1"),
        ([*FIGURE1, "--out", os.devnull], "is a file"),
        ([*FIGURE1, "--out", "/proc/nowhere/x"], "/proc/nowhere"),
        (["reproduce", "figure7"], "figure7"),
        (["simulate", "mars"], "unknown environment 'mars'"),
        (["simulate", "linear", "--model", "nig-linear"], "NIGLinear expects"),
        (["simulate", "bernoulli", "--out", "figure.docx"], "must end in"),
        (["simulate", "bernoulli", "--horizon", "2"], "horizon of 2"),
        (["simulate", "bernoulli", "--policies", "TS,TS"], "two policies"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert answer(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("tsucb: ")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_a_bug_is_not_dressed_up_as_bad_input(monkeypatch, tmp_path):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("tsucb.experiments.paper.figure1.Figure1.run", broken)
    with pytest.raises(ZeroDivisionError):
        answer([*FIGURE1, "--cells", "3:1", "--policies", "TS", "--out", str(tmp_path / "out")])


def test_simulate_prints_a_summary_and_saves_a_figure(tmp_path, capsys):
    out = tmp_path / "new" / "regret.svg"
    options = ["--policies", "TS,TS-UCB(1)", "--horizon", "50", "--runs", "2", "--out", str(out)]
    assert answer(["simulate", "contextual-linear", *options]) == 0
    printed = capsys.readouterr().out
    assert "TS-UCB(1)" in printed
    assert "100.0" in printed
    assert out.read_text().startswith("<?xml")


def test_killed_at_any_moment_it_goes_on_and_ends_with_the_same_bytes(tmp_path):
    """kill -9 twice, at two moments, then to the end; and the same without being killed."""
    work = ["--cells=3:0.05,5:1", "--policies=TS", "--runs=60", "--workers=1", "--out"]
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    finished = 0
    for _ in range(2):
        process = subprocess.Popen([*COMMAND, *FIGURE1, *work, killed], stdout=subprocess.DEVNULL)
        before = set(killed.glob("tasks/*.parquet"))
        while set(killed.glob("tasks/*.parquet")) == before:
            assert process.poll() is None, "ended before it could be killed"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not (killed / "summary.csv").exists()
        assert (killed / "settings.json").exists()
        now = len(list(killed.glob("tasks/*.parquet")))
        assert now > finished
        finished = now
    assert finished < 6
    kept = {p: p.stat().st_mtime_ns for p in killed.glob("tasks/*.parquet")}
    end = subprocess.run([*COMMAND, *FIGURE1, *work, killed], capture_output=True, check=True)
    assert f"{finished} of 6 tasks are finished already" in end.stdout.decode()
    assert {p: p.stat().st_mtime_ns for p in kept} == kept  # nothing was done again
    assert not list(killed.rglob("*.aside"))
    assert answer([*FIGURE1, *work, str(whole)]) == 0
    assert (killed / "summary.csv").read_bytes() == (whole / "summary.csv").read_bytes()


def test_an_interrupt_is_answered_at_once(tmp_path):
    out = tmp_path / "out"
    work = ["--cells=60:2", "--policies=IDS(1000)", "--workers=1", "--out", out]
    process = subprocess.Popen(
        [*COMMAND, *FIGURE1, *work], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    while not (out / "settings.json").exists():
        assert process.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "continues" in error.decode()
    assert "Traceback" not in error.decode()
