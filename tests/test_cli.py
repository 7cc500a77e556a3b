"""The command line: real calls, exit codes, and what bad input prints."""

from __future__ import annotations

import gzip
import importlib
import os
import signal
import subprocess
import sys
import time

import pytest

import tsucb
from tsucb.cli.commands import answer

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
    assert answer(["--version"]) == 0
    assert capsys.readouterr().out == f"tsucb {tsucb.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
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
        ([*FIGURE1, "--workers", "0"], "workers must be a whole number of at least 1"),
        ([*FIGURE1, "--out", os.devnull], "is a file"),
        ([*FIGURE1, "--out", "/proc/nowhere/x"], "/proc/nowhere"),
        (["reproduce", "figure7"], "figure7"),
        (["simulate", "mars"], "unknown environment 'mars'"),
        (["simulate", "linear", "--model", "nig-linear"], "NIGLinear expects"),
        (["simulate", "bernoulli", "--out", "figure.docx"], "must end in"),
        (["simulate", "bernoulli", "--horizon", "2"], "horizon of 2"),
        (["simulate", "bernoulli", "--policies", "TS,TS"], "two policies"),
        (["simulate", "bernoulli", "--policies", f"TS-UCB({'9' * 20})"], "at most 10,000,000"),
        ([*FIGURE1, "--policies", "IDS(99999999999999999999)"], "at most 10,000,000"),
        ([*FIGURE1, "--runs", "99999999999"], "at most 1,000,000"),
        (["simulate", "bernoulli", "--runs", "9999999999999"], "value for '--runs'"),
        (["simulate", "bernoulli", "--horizon", "9" * 20], "value for '--horizon'"),
        (["simulate", "bernoulli", "--arms", "9" * 20], "value for '--arms'"),
        (["simulate", "bernoulli", "--arms", "0"], "value for '--arms'"),
        (["simulate", "bernoulli", "--workers", "0"], "value for '--workers'"),
        (["simulate", "contextual-linear", "--features", "100000"], "GiB of memory"),
        (["simulate", "linear", "--features", "1000000"], "GiB of memory"),
        (["simulate", "linear", "--features", "9" * 20], "value for '--features'"),
        (["reproduce", "table2", "--horizon", "9" * 20], "at most 1,000,000"),
        (["data", "make-news", "news", "--lines", "9" * 20], "1 to 1,000,000,000 lines"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(
    arguments, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert answer(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("tsucb: ")
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []  # nothing is left behind


def test_a_bug_is_not_dressed_up_as_bad_input(monkeypatch, tmp_path):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("tsucb.paper.figure1.Figure1.run", broken)
    with pytest.raises(ZeroDivisionError):
        answer([*FIGURE1, "--cells", "3:1", "--policies", "TS", "--out", str(tmp_path / "out")])


def test_what_the_memory_cannot_hold_is_one_sentence(monkeypatch, capsys):
    def simulate(*_, **__):
        raise MemoryError("Unable to allocate 74.5 GiB")

    monkeypatch.setattr("tsucb.simulate", simulate)
    assert answer(["simulate", "bernoulli"]) == 2
    error = capsys.readouterr().err
    assert error == (
        "tsucb: not enough memory (Unable to allocate 74.5 GiB); give smaller numbers\n"
    )


def test_table2_without_jax_says_what_to_install(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "jax", None)
    out = tmp_path / "out"
    assert answer(["reproduce", "table2", "--datasets", "wheel", "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert "pip install 'tsucb[deep]'" in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_truncated_log_is_no_interrupt(tmp_path, capsys):
    path = tmp_path / "log.csv.gz"
    whole = gzip.compress(b"arm,reward\n" + b"a,1\nb,0\n" * 1000)
    for content in (whole[: len(whole) // 2], whole[:40] + b"????" + whole[44:]):
        path.write_bytes(content)
        assert answer(["evaluate", str(path), "--uniform"]) == 2
        error = capsys.readouterr().err
        assert "log.csv.gz" in error
        assert error.count("\n") == 1


def test_a_log_with_nothing_but_a_header_is_one_sentence(tmp_path, capsys):
    path = tmp_path / "log.csv"
    path.write_text("arm,reward\n")
    assert answer(["evaluate", str(path), "--uniform"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_output_that_is_not_utf_8_loses_signs_and_nothing_else(tmp_path):
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "LC_ALL": "C"}
    work = ["--cells=3:0.05", "--policies=TS", "--runs=2", "--out", tmp_path / "out"]
    for _ in range(2):  # the second time settings are compared
        done = subprocess.run([*COMMAND, *FIGURE1, *work], capture_output=True, env=environment)
        assert done.returncode == 0, done.stderr.decode()
        assert b"claim of the paper" in done.stdout
        assert done.stdout.isascii()
    assert (tmp_path / "out" / "report.html").exists()


def test_a_reader_that_has_seen_enough_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "data", "list"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert done.returncode == 1  # as the parser has it
    assert done.stderr == b""


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
    assert not list(killed.rglob("*.part"))
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


@pytest.mark.parametrize(
    "arguments",
    [
        ["simulate", "--horizon=1000000", "--runs=100", "--out=figure.png"],
        ["evaluate", "log.csv", "--uniform", "--policy=TS,IDS(1000)", "--out=table.csv"],
        ["data", "make-news", "news", "--days=20", "--workers=2"],
        ["warm", "--workers=2"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_ends_every_command_and_leaves_nothing_half_written(arguments, tmp_path):
    """As a terminal sends it, to the process and its children."""
    rows = "".join(f"{'abc'[i % 3]},{i % 2},{i % 5}\n" for i in range(500_000))
    (tmp_path / "log.csv").write_text("arm,reward,x\n" + rows)
    environment = os.environ | {"TSUCB_CACHE": str(tmp_path / "cache")}  # so there is a lot to do
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    time.sleep(4)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert process.returncode == 130
    assert error.decode() == "tsucb: interrupted\n"
    assert not list(tmp_path.rglob("*.part"))
    assert not (tmp_path / "figure.png").exists()
    assert not (tmp_path / "table.csv").exists()


def test_help_loads_nothing_heavy():
    code = (
        "import sys; from tsucb.cli.commands import answer; answer(['--help']); "
        "print([m for m in ('numpy', 'numba', 'pandas', 'matplotlib', 'jax', 'sklearn', 'pyarrow', "
        "'distributed', 'scipy', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().splitlines()[-1] == "[]"


def test_an_interrupt_while_the_commands_load_is_answered():
    """Before `main` runs, nothing can catch it; `main` loads everything else."""
    code = """if True:
        import builtins, os, signal, sys
        from tsucb import cli
        original = builtins.__import__
        def importing(name, *arguments):
            if name == "typer":
                os.kill(os.getpid(), signal.SIGINT)
            return original(name, *arguments)
        builtins.__import__ = importing
        cli.main()
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == 130
    assert done.stderr.decode() == "tsucb: interrupted\n"


@pytest.mark.parametrize("moment", [0.0, 0.1, 0.2, 0.3, 0.5])
def test_an_interrupt_in_the_first_half_second_is_answered(moment, tmp_path):
    """From when `main` has begun, which on a busy machine takes a while."""
    code = f"""if True:
        import io, sys
        from tsucb.cli import main
        class Errors(io.TextIOWrapper):
            def reconfigure(self, **settings):  # the first thing that it does
                sys.stdout.write(".")
                sys.stdout.flush()
        sys.stderr = Errors(sys.stderr.buffer)
        sys.argv[1:] = {[*FIGURE1, "--out", str(tmp_path)]}
        main()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.read(1) == b"."
    time.sleep(moment)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in error.decode()


def test_the_help_has_the_first_line_of_every_command():
    from tsucb.cli import commands

    for name, line in commands.COMMANDS.items():
        module = importlib.import_module(f"tsucb.cli.{name}")
        if not hasattr(module, "app"):  # which has no line of its own
            assert getattr(module, name).__doc__.splitlines()[0] == line


def test_warm_refuses_a_model_that_there_is_not(capsys):
    assert answer(["warm", "--only", "Nonsense"]) == 2
    assert "give one of AdaptiveLinear, NIGLinear" in capsys.readouterr().err


def test_warm_goes_through_models_and_policies(monkeypatch):
    from tsucb.cli import warm

    monkeypatch.setattr(warm, "policies", lambda: iter([tsucb.Greedy()]))
    assert warm.compile_all("GaussianArms") == 1
    assert set(warm.models()) > {"Linear", "AdaptiveLinear with 50 features"}
