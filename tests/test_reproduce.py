"""Experiments: finished tasks stay finished, and the numbers never depend on how they were run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import forgery
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import tsucb
from tsucb.pages.figures import (
    heat_map,
    new_figure,
    percent_colours,
    readable_on,
    regret_curves,
    theme,
)
from tsucb.paper.bounds import RidgeLinear, count_escapes, k_armed_escapes, linear_escapes
from tsucb.paper.experiments import Claim, Experiment, Figure, reproduce
from tsucb.paper.experiments.claims import (
    WORDS,
    Check,
    Count,
    Interval,
    Percentages,
    both,
    count_below,
    interval,
    relative_regret,
)
from tsucb.paper.experiments.experiment import Task
from tsucb.paper.experiments.folder import ASIDE, Folder, checksum_of, code_identity
from tsucb.paper.experiments.measure import Progress
from tsucb.paper.figure1 import CHECKS, INSTANCES, POLICIES, Figure1, parse_cell
from tsucb.paper.theorems import Theorems, section_3
from tsucb.policies.names import named_policy, usual_ucb

measured: list[tuple[Any, ...]] = []  # the tasks that Dice has measured
broken: set[tuple[Any, ...]] = set()  # the tasks in which it fails


@dataclass(frozen=True, kw_only=True)
class Dice(Experiment):
    """An experiment that costs nothing: dice with some sides, thrown a few times."""

    throws: int = 5

    name: ClassVar[str] = "dice"
    title: ClassVar[str] = "Dice & co"
    axes: ClassVar[tuple[str, ...]] = ("sides",)
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {"runs": 5, "policies": ("TS", "TS-UCB(1)")}
    }

    def cells(self):
        return [(2,), (6,)]

    def block(self, cell, policy):
        return 2

    def numbers(self, cell):
        return {"regret": 0, "curve": self.throws}

    def run(self, cell, policy, runs):
        if (cell, policy, runs.start) in broken:
            raise RuntimeError("the die fell off the table")
        measured.append((cell, policy, runs.start))
        throws = [
            np.random.default_rng((self.seed, r, cell[0], len(policy))).random(self.throws)
            for r in runs
        ]
        curves = np.cumsum(throws, axis=1)
        return pd.DataFrame({"run": list(runs), "regret": curves[:, -1], "curve": list(curves)})

    def summary(self, rows):
        return relative_regret(rows, ["sides"])

    def figures(self, rows, summary):
        def draw(narrow):
            figure = new_figure(4 if narrow else 8, 3)
            heat_map(figure.subplots(), np.array([[50.0, np.nan]]), ["a"], ["b", "c"], "throws")
            return figure

        return [Figure("throws", "Throws < 7", "One <grid>.", draw)]

    def claims(self, rows, summary):
        fair = Claim("Dice are fair & square", "1/6", "0.2", "< 1 & > 0", True)
        return [fair, Claim("b", "", "", "", None)]


@pytest.fixture(autouse=True)
def _clean():
    measured.clear()
    broken.clear()


DICE = Dice.at("quick")
TABLES = {"summary.csv", "claims.csv", "times.csv"}
FILES = TABLES | {
    "settings.json",
    "runs.parquet",
    "throws.png",
    "throws.svg",
    "report.html",
    "tasks",
}


def test_an_experiment_writes_its_folder(tmp_path):
    result = reproduce(DICE, tmp_path / "new" / "dice", workers=1)
    out = tmp_path / "new" / "dice"
    assert {p.name for p in out.iterdir()} == FILES
    settings = json.loads((out / "settings.json").read_text())
    assert settings["experiment"] == "dice"
    assert settings["policies"] == ["TS", "TS-UCB(1)"]
    runs = pd.read_parquet(out / "runs.parquet")
    assert list(runs.columns) == ["sides", "policy", "run", "regret", "curve"]
    assert len(runs) == 2 * 2 * 5
    assert list(result.summary.percent_of_ts[::2]) == [100, 100]
    assert len(pd.read_csv(out / "times.csv")) == len(DICE.tasks()) == 2 * 2 * 3


def test_the_summary_is_the_same_for_any_number_of_workers(tmp_path):
    for workers in (1, 3):
        reproduce(DICE, tmp_path / str(workers), workers=workers)
    for name in ("summary.csv", "runs.parquet", "throws.svg", "throws.png"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "3" / name).read_bytes()


def test_a_broken_run_goes_on_where_it_was(tmp_path):
    reproduce(DICE, tmp_path / "whole", workers=1)
    assert len(measured) == 12
    measured.clear()
    broken.add(((6,), "TS", 2))
    with pytest.raises(RuntimeError, match="fell off"):
        reproduce(DICE, tmp_path / "broken", workers=1)
    finished = list(measured)
    assert 0 < len(finished) < 12
    assert not (tmp_path / "broken" / "summary.csv").exists()
    stored = len(list((tmp_path / "broken" / "tasks").iterdir()))
    broken.clear()
    measured.clear()
    reproduce(DICE, tmp_path / "broken", workers=1)
    assert len(measured) == 12 - stored  # nothing finished is repeated
    whole, resumed = (tmp_path / x / "summary.csv" for x in ("whole", "broken"))
    assert whole.read_bytes() == resumed.read_bytes()


def test_a_finished_folder_is_reported_again_without_measuring(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    before = (tmp_path / "summary.csv").read_bytes()
    measured.clear()
    reproduce(DICE, tmp_path, workers=1)
    assert not measured
    assert (tmp_path / "summary.csv").read_bytes() == before


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@pytest.mark.parametrize(
    "other",
    [{"runs": 6}, {"seed": 1}, {"policies": ("TS",)}, {"throws": 6}],
    ids=["runs", "seed", "policies", "own"],
)
def test_a_folder_of_other_settings_is_refused_and_left_alone(tmp_path, other):
    reproduce(DICE, tmp_path, workers=1)
    before = everything(tmp_path)
    with pytest.raises(ValueError, match=next(iter(other))):
        reproduce(Dice.at("quick", **other), tmp_path)
    assert everything(tmp_path) == before


def half_measured(folder: Path) -> None:
    broken.add(((6,), "TS", 2))
    with pytest.raises(RuntimeError, match="fell off"):
        reproduce(DICE, folder, workers=1)
    broken.clear()


def with_other_code(monkeypatch):
    for module in ("folder", "measure"):
        monkeypatch.setattr(f"tsucb.paper.experiments.{module}.code_identity", lambda: "0" * 16)


def test_a_folder_half_measured_by_other_code_is_refused_and_left_alone(tmp_path, monkeypatch):
    half_measured(tmp_path)
    before = everything(tmp_path)
    with_other_code(monkeypatch)
    with pytest.raises(ValueError, match=r"other code of tsucb .* --continue-other-code"):
        reproduce(DICE, tmp_path)
    assert everything(tmp_path) == before
    reproduce(DICE, tmp_path, other_code=True)
    page = (tmp_path / "report.html").read_text()
    assert "Measured by 2 states of the code" in page
    assert "0" * 16 in page
    assert code_identity() in page


def test_a_folder_measured_by_other_code_can_be_reported(tmp_path, monkeypatch):
    reproduce(DICE, tmp_path, workers=1)
    before = (tmp_path / "summary.csv").read_bytes()
    measured.clear()
    with_other_code(monkeypatch)
    reproduce(DICE, tmp_path)
    assert not measured
    assert (tmp_path / "summary.csv").read_bytes() == before
    page = (tmp_path / "report.html").read_text()
    assert code_identity() in page  # the code that measured them
    assert "0" * 16 not in page


def test_a_folder_that_other_code_only_began_is_taken_over(tmp_path, monkeypatch):
    Folder(tmp_path, DICE).close()
    with_other_code(monkeypatch)
    reproduce(DICE, tmp_path)
    assert json.loads((tmp_path / "settings.json").read_text())["code"] == "0" * 16


def test_the_identity_of_the_code_is_that_of_its_sources(tmp_path, monkeypatch):
    package = tmp_path / "tsucb"
    shutil.copytree(Path(tsucb.__file__).parent, package)
    monkeypatch.setattr(tsucb, "__file__", str(package / "__init__.py"))
    same = code_identity.__wrapped__()
    assert same == code_identity()
    (package / "policies" / "ids.py").write_text("x = 1\n")
    assert code_identity.__wrapped__() != same


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", '"settings"', "[" * 100_000, " " * (1 << 21)],
    ids=["half", "list", "empty", "text", "deep", "long"],
)
def test_a_foreign_folder_is_refused_and_left_alone(tmp_path, content):
    (tmp_path / "settings.json").write_text(content)
    (tmp_path / "thesis.tex").write_text("years of work")
    before = everything(tmp_path)
    with pytest.raises(ValueError, match="new or empty folder"):
        reproduce(DICE, tmp_path)
    (tmp_path / "settings.json").unlink()
    with pytest.raises(ValueError, match="new or empty folder"):
        reproduce(DICE, tmp_path)
    assert not (tmp_path / "tasks").exists()
    assert before.items() >= everything(tmp_path).items()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(ValueError, match="is a file"):
        reproduce(DICE, tmp_path / "x")


def test_a_folder_is_used_by_one_process_at_a_time(tmp_path):
    holder = Folder(tmp_path, DICE)
    with pytest.raises(ValueError, match="in use by another process"):
        reproduce(DICE, tmp_path)
    holder.close()
    reproduce(DICE, tmp_path)


def test_what_a_crash_left_half_written_is_ignored_and_removed(tmp_path):
    leftovers = [tmp_path / f".settings.json.1{ASIDE}", tmp_path / "tasks" / f".a.parquet.1{ASIDE}"]
    leftovers[0].write_text('{"exper')
    reproduce(DICE, tmp_path, workers=1)
    leftovers[1].write_text("half")
    reproduce(DICE, tmp_path, workers=1)
    assert not any(p.exists() for p in leftovers)


@pytest.mark.parametrize(("owner", "name"), [(Path, "mkdir"), (os, "replace")])
def test_killed_while_the_folder_is_made_it_can_start_again(tmp_path, monkeypatch, owner, name):
    """Interrupted after a first call, it leaves a folder that the next run accepts."""
    original = getattr(owner, name)

    def last(*arguments, **options):
        original(*arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, name, last)
    with pytest.raises(KeyboardInterrupt):
        reproduce(DICE, tmp_path / "out", workers=1)
    monkeypatch.undo()
    reproduce(DICE, tmp_path / "out", workers=1)
    assert (tmp_path / "out" / "summary.csv").exists()


# Results that would change silently


def test_a_damaged_task_is_named_before_anything_is_measured(tmp_path):
    half_measured(tmp_path)
    measured.clear()
    path = next((tmp_path / "tasks").iterdir())
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=rf"{re.escape(path.name)} is damaged .*checksum differs"):
        reproduce(DICE, tmp_path)
    assert not measured
    path.unlink()
    reproduce(DICE, tmp_path, workers=1)


def test_no_flipped_bit_of_a_task_goes_unnoticed(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    path = sorted((tmp_path / "tasks").iterdir())[0]
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in [0, len(content) - 1, *rng.integers(len(content), size=20)]:
        spoilt = bytearray(content)
        spoilt[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(spoilt)
        with pytest.raises(ValueError, match="its checksum differs"):
            reproduce(DICE, tmp_path)
    path.write_bytes(content)
    reproduce(DICE, tmp_path)


def replaced(folder: Path, key: str, content: bytes) -> None:
    """Replace a task's file by another, with a matching checksum."""
    [path] = (folder / "tasks").glob(f"{key}.*.parquet")
    path.unlink()
    (folder / "tasks" / f"{key}.{checksum_of(content)}.parquet").write_bytes(content)


def test_a_task_in_place_of_another_is_refused(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    [other] = (tmp_path / "tasks").glob("2_TS_0-1.*")
    replaced(tmp_path, "6_TS_0-1", other.read_bytes())
    with pytest.raises(ValueError, match=r"6_TS_0-1.* is damaged \(it is another task's\)"):
        reproduce(DICE, tmp_path)


def test_a_task_with_other_runs_is_refused(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    [path] = (tmp_path / "tasks").glob("2_TS_0-1.*")
    table = pq.read_table(path)
    for rows in (table.slice(0, 1), pa.concat_tables([table, table])):
        pq.write_table(rows, tmp_path / "part")
        replaced(tmp_path, "2_TS_0-1", (tmp_path / "part").read_bytes())
        with pytest.raises(ValueError, match="its runs are not the task's"):
            reproduce(DICE, tmp_path)


def test_a_task_without_numbers_is_refused(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    [path] = (tmp_path / "tasks").glob("2_TS_0-1.*")
    table = pq.read_table(path)
    place, sides = table.schema.get_field_index("regret"), pa.array([2, 2])
    for forged in (
        table.set_column(place, "regret", pa.array(["many", "few"])),
        table.set_column(place, "regret", pa.array([np.nan, 1.0])),
        table.append_column("sides", sides),
        table.set_column(place, "regret", pa.array([1e300, 1.0])),
        table.set_column(place, "regret", pa.array([True, False])),
        table.set_column(place, "regret", pa.array([[1.0], [2.0]])),
        table.set_column(place + 1, "curve", pa.array([[1.0], [2.0]])),
        table.set_column(place + 1, "curve", pa.array([[1.0] * 5, [np.nan] * 5])),
        table.set_column(place + 1, "curve", pa.array([[1.0] * 4, [2.0] * 6])),
        table.set_column(place + 1, "curve", pa.array([[1.0] * 1_000_000] * 2)),
        table.drop_columns("run"),
        table.drop_columns("regret"),
        pa.table({f"c{i}": sides for i in range(20_000)}),
    ):
        pq.write_table(forged, tmp_path / "part")
        replaced(tmp_path, "2_TS_0-1", (tmp_path / "part").read_bytes())
        with pytest.raises(ValueError, match=r"2_TS_0-1.* is damaged") as raised:
            reproduce(DICE, tmp_path)
        assert len(str(raised.value)) < 600


def test_what_a_task_says_of_itself_may_be_anything(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    [path] = (tmp_path / "tasks").glob("2_TS_0-1.*")
    table, before = pq.read_table(path), everything(tmp_path)
    said = json.loads(table.schema.metadata[b"PANDAS_ATTRS"])
    for wrong in (
        "x", "[" * 100_000, "5", json.dumps({"task": said["task"]}),
        json.dumps(said | {"seconds": 10**400}), json.dumps(said | {"seconds": np.inf}),
        json.dumps(said | {"seconds": "1"}), json.dumps(said | {"code": ["x"]}),
        json.dumps(said | {"code": "x" * 1_000_000}), json.dumps(said | {"task": {}}),
    ):  # fmt: skip
        forged = {b"PANDAS_ATTRS": wrong.encode()}
        pq.write_table(table.replace_schema_metadata(forged), tmp_path / "part")
        replaced(tmp_path, "2_TS_0-1", (tmp_path / "part").read_bytes())
        with pytest.raises(ValueError, match=r"2_TS_0-1.* is damaged") as raised:
            reproduce(DICE, tmp_path)
        assert len(str(raised.value)) < 600
    (tmp_path / "part").unlink()
    forged = {**table.schema.metadata, b"pandas": b'{"index_columns": 5}'}
    pq.write_table(table.replace_schema_metadata(forged), tmp_path / "part")
    replaced(tmp_path, "2_TS_0-1", (tmp_path / "part").read_bytes())
    reproduce(DICE, tmp_path)  # pandas need not be told
    after = everything(tmp_path)
    assert all(after[str(tmp_path / name)] == before[str(tmp_path / name)] for name in TABLES)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="Windows has no named pipes")
def test_what_is_no_file_is_not_waited_for(tmp_path):
    reproduce(DICE, tmp_path / "out", workers=1)
    os.mkfifo(tmp_path / "out" / "tasks" / f"2_TS_0-1.{'0' * 16}.parquet")
    with pytest.raises(ValueError, match=r"is damaged \(it is no file of up to"):
        reproduce(DICE, tmp_path / "out")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "settings.json")
    with pytest.raises(ValueError, match="is not the settings of an experiment"):
        reproduce(DICE, tmp_path / "pipe")


def test_folders_that_lie_are_refused_or_harmless():
    """A few of `python tests/forgery.py folders 5000`."""
    counts, failures = forgery.fuzz_folders(30)
    assert not failures
    assert min(counts.values()) > 0


def test_unfinished_files_of_others_are_not_removed(tmp_path):
    download = tmp_path / f"film.mkv{ASIDE}"
    download.write_bytes(b"half")
    with pytest.raises(ValueError, match="holds other files"):
        reproduce(DICE, tmp_path)
    download.unlink()
    reproduce(DICE, tmp_path, workers=1)
    download.write_bytes(b"half")
    reproduce(DICE, tmp_path, workers=1)
    assert download.exists()


def test_settings_of_a_stranger_make_no_long_message(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    file = tmp_path / "settings.json"
    settings = json.loads(file.read_text())
    for wrong in (
        settings | {f"x{i}": i for i in range(1_000)},
        settings | {"x" * 100_000: 1},
        settings | {"code": ["x" * 100_000], "runs": 3},
    ):
        file.write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match="of other settings") as raised:
            reproduce(DICE, tmp_path)
        assert len(str(raised.value)) < 1_000


def test_two_files_of_one_task_are_refused(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    [path] = (tmp_path / "tasks").glob("2_TS_0-1.*")
    pq.write_table(pq.read_table(path).slice(0, 1), tmp_path / "part")
    content = (tmp_path / "part").read_bytes()
    (tmp_path / "tasks" / f"2_TS_0-1.{checksum_of(content)}.parquet").write_bytes(content)
    with pytest.raises(ValueError, match="is of the same task"):
        reproduce(DICE, tmp_path)


def test_a_worker_that_brings_back_too_few_runs_is_noticed(tmp_path, monkeypatch):
    run = Dice.run
    monkeypatch.setattr(Dice, "run", lambda self, *task: run(self, *task)[:1])
    with pytest.raises(ValueError, match="brought back other rows: its runs"):
        reproduce(DICE, tmp_path, workers=1)


def test_keys_of_tasks_are_distinct_file_names():
    for experiment in (DICE, Figure1.at("full"), Theorems.at("full")):
        keys = [task.key for task in experiment.tasks()]
        assert len(set(keys)) == len(keys)
        assert not any(set(key) & set('/\\:*?"<>| ') for key in keys)


def test_tasks_cover_every_run_once():
    experiment = Figure1.at("full", runs=43)
    for policy in POLICIES:
        blocks = [t for t in experiment.tasks() if t.cell == (60, 2.0) and t.policy == policy]
        assert [run for block in blocks for run in block.runs] == list(range(43))


def test_settings_are_checked():
    for wrong in ({"runs": 0}, {"seed": -1}, {"policies": ()}, {"policies": ("TS", "TS")}):
        with pytest.raises(ValueError, match=r"runs|seed|policy"):
            Dice.at("quick", **wrong)
    with pytest.raises(ValueError, match="unknown scale"):
        Dice.at("huge")
    with pytest.raises(ValueError, match="workers"):
        reproduce(DICE, "nowhere", workers=0)
    assert not Path("nowhere").exists()


def test_progress_counts_cells_and_weighs_what_is_left():
    progress = Progress(DICE, DICE.tasks(), Console(quiet=True))
    assert "0/2 cells · 0/12 tasks" in progress.line()
    for task in DICE.tasks()[:6]:
        progress.done(task)
    line = progress.line()
    assert "1/2 cells · 6/12 tasks" in line
    assert line.startswith("━" * 10 + "╌" * 10)


# Summaries


def test_relative_regret_is_the_mean_of_paired_ratios():
    rows = pd.DataFrame(
        {
            "day": 1,
            "policy": ["UCB", "UCB", "TS", "TS"],
            "run": [0, 1, 1, 0],
            "regret": [1.0, 6.0, 4.0, 2.0],
        }
    )
    ucb = relative_regret(rows, ["day"]).iloc[0]
    assert ucb.percent_of_ts == pytest.approx((50 + 150) / 2)  # not 7/6
    # Student's quantile with one degree of freedom is 12.706; the standard error is 50.
    assert ucb.ci95_high == pytest.approx(100 + 12.7062 * 50, rel=1e-5)
    assert ucb.regret_se == pytest.approx(2.5)
    alone = relative_regret(rows[rows.policy == "UCB"], ["day"]).iloc[0]
    assert np.isnan(alone.percent_of_ts)
    assert alone.regret_mean == 3.5


def test_a_baseline_without_regret_gives_no_percentage_anywhere():
    """Not infinite here and NaN there."""
    regret = np.array([[[0.0], [2.0]], [[1.0], [1.0]]])
    simulation = tsucb.Simulation(("TS", "UCB"), (0, 1), np.array([10]), regret)
    rows = pd.DataFrame(
        {"day": 1, "policy": ["TS", "TS", "UCB", "UCB"], "run": [0, 1, 0, 1],
         "regret": regret[:, :, 0].ravel()}
    )  # fmt: skip
    table = relative_regret(rows, ["day"]).set_index("policy")
    assert np.isnan(table.percent_of_ts["UCB"])
    assert np.isnan(simulation.summary(baseline="TS").percent["UCB"])
    rows = invented_rows({"TS": 0, "TS-UCB(1)": 1})
    assert np.isnan(Percentages(rows, ["arms", "noise"]).of("TS-UCB(1)")).all()


# Names


def test_policies_are_found_by_the_names_they_print():
    sampled = (tsucb.TSUCB(7), tsucb.IDS(20), tsucb.TSUCB(np.inf), tsucb.IDS(np.inf))
    sampled += (tsucb.GridIDS(1000), tsucb.GridIDS(np.inf))
    plain = (tsucb.Thompson(), tsucb.Greedy(), tsucb.Greedy(first=True), tsucb.Random())
    for policy in (*sampled, *plain):
        assert named_policy(policy.name) == policy
    assert named_policy("UCB", UCB=tsucb.OFUL()) == tsucb.OFUL()
    for wrong in ("UCB", "ts", "TS-UCB", "TS-UCB(٣)", "IDS(-1)", "", 10_000 * "x"):
        with pytest.raises(ValueError, match="unknown policy") as error:
            named_policy(wrong)
        assert len(str(error.value)) < 300


@pytest.mark.parametrize("number", ["0", "10000001", "9" * 20, "9" * 100_000])
@pytest.mark.parametrize("kind", ["TS-UCB", "IDS", "IDS-grid"])
def test_absurd_numbers_of_samples_are_one_sentence(kind, number):
    with pytest.raises(ValueError, match=r"at least 1 and at most 10,000,000, or ∞") as error:
        named_policy(f"{kind}({number})")
    assert len(str(error.value)) < 200
    assert named_policy(f"{kind}(10000000)").samples == 10_000_000


def test_the_usual_ucb_of_a_model_is_the_papers():
    for model in (tsucb.BernoulliArms(), tsucb.GaussianArms(1.0)):
        assert usual_ucb(model, 100) == tsucb.HoeffdingUCB(100)
    for model in (tsucb.Linear(3, 1.0), tsucb.ContextualLinear(3, 1.0)):
        assert usual_ucb(model, 100) == tsucb.OFUL()
    for model in (tsucb.NIGLinear(3), tsucb.Forgetting(tsucb.NIGLinear(3), 0.9)):
        assert usual_ucb(model, 100) == tsucb.ChiSquaredUCB()
    for model in (tsucb.NeuralLinear(3),):
        assert usual_ucb(model, 100) == tsucb.ChiSquaredUCB()


# Claims


def test_a_check_without_what_it_needs_or_with_a_doubt_is_undecided():
    def found(*policies):
        def find(p):
            means = [p.interval(policy).mean for policy in policies]
            return f"{means[0]:.1f}", bool(means[0] > 1)

        return find

    percentages = Percentages(invented_rows({"TS": 100, "a": 2}), ["arms", "noise"])
    checks = [
        Check("a is more", "> 1", "above 1", found("a")),
        Check("b is more", "> 1", "above 1", found("a", "b", "c")),
        Check("a is 2.5", "2.5", "above 1", found("a"), exact=True),
    ]
    assert percentages.claims(checks, lambda check: "too short" * check.exact) == [
        Claim("a is more", "> 1", "2.0", "above 1", True),
        Claim("b is more", "> 1", "not measured: b, c", "above 1", None),
        Claim("a is 2.5", "2.5", "2.0; too short", "above 1", None),
    ]
    [alone] = Percentages(invented_rows({"a": 2}), ["arms", "noise"]).claims(checks[:1])
    assert (alone.measured, alone.agrees) == ("not measured: TS", None)


def test_the_results_in_the_documentation_are_of_these_claims():
    folder = Path(__file__).parents[1] / "docs" / "results"
    written = pd.read_csv(folder / "figure1-claims.csv")
    columns = [[check.statement, check.paper, check.rule] for check in CHECKS]
    assert written[["statement", "paper", "rule"]].to_numpy().tolist() == columns
    written = pd.read_csv(folder / "theorems-claims.csv")
    frames = [pd.read_csv(folder / f"theorems{x}.csv") for x in ("", "-exponents", "-escapes")]
    claims = section_3(*frames, 100_000)
    assert written.to_numpy().tolist() == [[*claim[:4], WORDS[claim.agrees]] for claim in claims]
    # An exponent of 0.74 (0.18 to 0.88) beside the bound's 0.54 is neither above nor below it.
    [growth] = [c for c in claims if c.statement.startswith("Theorem 1: the regret")]
    assert growth.agrees is None


def test_verdicts_have_three_values():
    below, above, unsure = (Interval(0, *ends) for ends in ((0, 1), (2, 3), (0.5, 2)))
    assert [each.is_below(1.0) for each in (below, above, unsure)] == [True, False, None]
    assert [each.is_above(1.5) for each in (below, above, unsure)] == [False, True, None]
    assert Interval(0, np.nan, np.nan).is_below(1.0) is None
    near = [Interval(0, *ends).is_near(5, 1) for ends in ((4.5, 6), (7, 9), (4, 7))]
    assert near == [True, False, None]
    assert [both(True, x) for x in (True, False, None)] == [True, False, None]
    assert both(False, None) is False


def test_cells_are_counted_with_their_doubt():
    rng = np.random.default_rng(0)
    sure = np.r_[np.full(10, 90.0), np.full(5, 110.0)][:, None] + rng.normal(size=(15, 20))
    assert count_below(sure, 100) == Count(10, 10, 10, 15)
    # Ten more cells around the bound: with normal errors, between 0 and all of them.
    unsure = np.vstack([sure, 100 + rng.normal(size=(10, 20))])
    count = count_below(unsure, 100)
    assert count.total == 25
    assert 10 <= count.low < count.mean < count.high <= 20
    assert count_below(sure[:, :1], 100) == Count(10, 0, 15, 15)  # one run cannot tell
    whole = interval(sure)
    assert whole.low < sure.mean() < whole.high
    assert interval(sure[:, :1]).half_width == np.inf


# Figure 1


def test_cells_of_figure_1():
    assert len(INSTANCES) == 25
    assert parse_cell("5:2") in INSTANCES
    for wrong in ("4:0.05", "3:0.07", "3", "three:1", "3:1:1"):
        with pytest.raises(ValueError, match="unknown cell"):
            Figure1.at("quick", instances=(parse_cell(wrong),))


def test_a_block_of_runs_equals_those_runs_in_a_larger_block():
    experiment = Figure1.at("quick", horizon=60)
    whole = experiment.run((5, 0.5), "TS", range(4))
    parts = [experiment.run((5, 0.5), "TS", block) for block in (range(3), range(3, 4))]
    assert list(whole.regret) == [x for part in parts for x in part.regret]
    assert whole.curve[0].size == 50
    assert whole.curve[2][-1] == pytest.approx(whole.regret[2], rel=1e-6)


def test_cells_priors_and_seeds_change_the_numbers():
    base = {"cell": (5, 0.5), "prior": "code", "seed": 0}
    regrets = set()
    for change in ({}, {"cell": (5, 1.0)}, {"prior": "text"}, {"seed": 1}):
        at = base | change
        experiment = Figure1.at("quick", horizon=60, prior=at["prior"], seed=at["seed"])
        regrets.add(float(experiment.run(at["cell"], "TS", range(1)).regret[0]))
    assert len(regrets) == 4


def invented_rows(percent: dict[str, float], runs: int = 3) -> pd.DataFrame:
    """Return rows in which every policy has the given share of the regret of TS in all 25 cells."""
    rng = np.random.default_rng(0)
    rows = []
    for arms, noise in INSTANCES:
        for run in range(runs):
            ts = 100 * arms * noise * (1 + rng.random())
            rows += [
                {"arms": arms, "noise": noise, "run": run, "policy": p, "regret": ts * x / 100}
                for p, x in percent.items()
            ]
    return pd.DataFrame(rows)


def section_4_1_1(rows, cells, policies):
    """Return the claims of Figure 1 for the first cells."""
    experiment = Figure1(runs=2, policies=policies, instances=INSTANCES[:cells])
    return experiment.claims(rows, rows)


def test_claims_of_section_4_1_1_agree_where_they_should():
    percent = {"TS": 100, "TS-UCB(1)": 67.9, "TS-UCB(100)": 66.6, "IDS(1000)": 70.3}
    claims = section_4_1_1(invented_rows(percent), 25, tuple(percent))
    verdicts = {claim.statement: claim for claim in claims}
    assert verdicts["Over the 25 instances, regret of TS-UCB(1) in % of that of TS"].agrees is True
    assert verdicts["On average, excess regret of IDS over TS-UCB(100)"].agrees is True
    assert verdicts["On average, excess regret of IDS over TS-UCB(100)"].measured == "+5.6 ± 0.0 %"
    # The same ratio everywhere does not halve regret; it neither falls nor grows with σ.
    assert verdicts["TS-UCB almost halves regret in many instances"].agrees is False
    assert verdicts["TS-UCB improves more on TS when σ is higher"].agrees is None
    assert verdicts["UCB is inconsistent relative to TS"].agrees is None
    assert "not measured: UCB" in verdicts["UCB is inconsistent relative to TS"].measured


def test_claims_of_section_4_1_1_disagree_where_they_should():
    percent = {"TS": 100, "TS-UCB(1)": 80, "TS-UCB(100)": 101, "Greedy": 90, "UCB": 90}
    claims = section_4_1_1(invented_rows(percent), 25, tuple(percent))
    assert not any(claim.agrees for claim in claims if "TS-UCB(100)" in claim.statement)
    assert sum(claim.agrees is False for claim in claims) >= 10


def test_claims_pair_runs_whatever_order_they_come_in():
    percent = {"TS": 100, "TS-UCB(1)": 67.9, "TS-UCB(100)": 66.6}
    rows = invented_rows(percent, runs=5)
    mixed = section_4_1_1(rows.sample(frac=1, random_state=1), 25, tuple(percent))
    assert mixed == section_4_1_1(rows, 25, tuple(percent))


def test_claims_need_all_cells_and_the_papers_ids():
    rows = invented_rows({"TS": 100, "TS-UCB(1)": 67.9, "IDS(100)": 70.3})
    some = section_4_1_1(rows, 3, ("TS", "TS-UCB(1)", "IDS(100)"))
    assert all(claim.agrees is None for claim in some)
    every = section_4_1_1(rows, 25, ("TS", "TS-UCB(1)", "IDS(100)"))
    ids = next(c for c in every if c.statement == "On average, excess regret of IDS over TS-UCB(1)")
    assert ids.agrees is None
    assert "IDS(100)" in ids.measured


def test_claims_about_the_authors_search_come_with_it():
    percent = {"TS": 100, "TS-UCB(1)": 67.9, "TS-UCB(100)": 66.6, "IDS(1000)": 66.6}
    percent["IDS-grid(1000)"] = 66.6 * 1.056
    claims = section_4_1_1(invented_rows(percent), 25, tuple(percent))
    ours, theirs = (c for c in claims if c.paper == "+5.6 %")
    assert ours.agrees is False
    assert theirs.agrees is True
    assert theirs.measured == "+5.6 ± 0.0 %"
    fewer = {
        "IDS-grid(100)" if name == "IDS-grid(1000)" else name: x for name, x in percent.items()
    }
    claims = section_4_1_1(invented_rows(fewer), 25, tuple(fewer))
    assert [c.agrees for c in claims if "as the authors searched it" in c.statement] == [None, None]


def test_two_kinds_of_ids_are_kept_apart():
    """The checks say IDS, and mean that of the paper's 1,000 samples if it was measured."""
    percent = {"TS": 100, "TS-UCB(100)": 66.6, "IDS(1000)": 66.6 * 1.056, "IDS(10)": 90}
    claims = section_4_1_1(invented_rows(percent), 25, tuple(percent))
    [ids] = [c for c in claims if c.paper == "+5.6 %"]
    assert (ids.measured, ids.agrees) == ("+5.6 ± 0.0 %", True)
    [well] = [c for c in claims if c.statement.startswith("IDS performs well")]
    assert "highest 70.3 %" in well.measured


def test_figure_1_from_end_to_end(tmp_path):
    experiment = Figure1.at(
        "quick",
        runs=2,
        horizon=50,
        instances=INSTANCES[:2],
        policies=("TS", "TS-UCB(1)"),
    )
    result = reproduce(experiment, tmp_path, workers=2)
    columns = "experiment,arms,noise,policy,runs,regret_mean,regret_se,percent_of_ts"
    header = (tmp_path / "summary.csv").read_text().splitlines()[0]
    assert header == columns + ",ci95_low,ci95_high"
    assert len(result.summary) == 4
    for name in ("figure1.png", "figure1.svg", "curves.png", "curves.svg"):
        assert (tmp_path / name).stat().st_size > 10_000
    assert "2 of the paper&#39;s 25 cells" in (tmp_path / "report.html").read_text()


# Theorems


def test_ridge_bounds_are_those_of_the_paper():
    rng = np.random.default_rng(0)
    d, arms = 3, 4
    model = RidgeLinear(tsucb.Linear(d, noise=1.0, prior_covariance=1 / (16 * d)))
    state = model.start(arms)
    V, total = np.eye(d), np.zeros(d)
    for _ in range(20):
        X = rng.standard_normal((arms, d))
        a, reward = int(rng.integers(arms)), float(rng.standard_normal())
        model.update(state, X, a, reward)
        V += np.outer(X[a], X[a])
        total += reward * X[a]
    belief = model.belief(state, X, rng=rng)
    np.testing.assert_allclose(belief.estimate, X @ np.linalg.solve(V, total), rtol=1e-10)
    radius = np.sqrt(np.einsum("ai,ij,aj->a", X, np.linalg.inv(V), X))
    np.testing.assert_allclose(belief.radius, radius, rtol=1e-10)
    posterior = np.linalg.inv(V - np.eye(d) + 16 * d * np.eye(d))
    np.testing.assert_allclose(belief.mean, X @ posterior @ total, rtol=1e-10)


def test_escapes_are_counted_by_side():
    distances = np.array([[0.2, 1.5, -0.3], [-1.1, 0.0, -2.0], [0.9, -0.9, 0.0]])
    assert count_escapes(distances) == (3, 1, 1, 2.0)
    rng = np.random.default_rng(0)
    assert k_armed_escapes(10, 1000, rng)[:3] == (1000, 0, 0)
    escapes = linear_escapes(2, 10, 200, rng)
    assert escapes[:3] == (200, 0, 0)
    assert 0.1 < escapes.closest < 1


def test_theorems_from_end_to_end(tmp_path):
    experiment = Theorems.at(
        "quick",
        runs=2,
        horizon=1000,
        arms=(3,),
        features=(2,),
        ball_features=(2,),
        policies=("TS-UCB(1)",),
        short_horizons=(5,),
    )
    result = reproduce(experiment, tmp_path, workers=2)
    header = (tmp_path / "summary.csv").read_text().splitlines()[0]
    assert header == "experiment,setting,policy,horizon,bayes_regret,ci95_low,ci95_high,bound"
    assert set(result.summary.horizon) == {100, 147, 215, 316, 464, 681, 1000}
    assert len(result.summary) == 3 * 7
    lemma = [c for c in result.claims if c.statement.startswith("Lemma")]
    assert len(lemma) == 4
    assert all(c.agrees for c in lemma)
    assert len(pd.read_csv(tmp_path / "exponents.csv")) == 3
    assert (tmp_path / "escapes.csv").exists()
    assert (tmp_path / "theorems.svg").exists()


def test_theorems_can_be_measured_without_ts_ucb(tmp_path):
    experiment = Theorems.at(
        "quick", runs=2, horizon=1000, arms=(3,), features=(2,), ball_features=(),
        policies=("TS",), short_horizons=(5,),
    )  # fmt: skip
    claims = reproduce(experiment, tmp_path, workers=2).claims
    assert [c.agrees for c in claims if c.statement.startswith("Theorem")] == [None, None]
    assert "not measured: TS-UCB" in claims[0].measured


# Figures and pages


def test_regret_curves_begin_at_zero_and_tell_policies_apart():
    curves = {name: np.ones((3, 2)) for name in ("TS", "mine", "yours")}
    with theme("dark"):
        axes = regret_curves(np.array([10, 20]), curves, new_figure(4, 3).subplots(), labels=False)
    lines = axes.get_lines()
    assert [line.get_label() for line in lines] == list(curves)
    assert all((line.get_xdata()[0], line.get_ydata()[0]) == (0, 0) for line in lines)
    looks = {(line.get_color(), line.get_linestyle()) for line in lines}
    assert len(looks) == 3
    assert lines[0].get_color() != "#000000"  # black on dark would not be seen
    assert axes.get_legend() is None
    assert axes.get_xlabel() == ""


def test_heat_maps_are_readable_in_grey():
    percent = np.array([40.0, 60, 80, 100, 125, 160, 250])
    colours = percent_colours(percent)[:, :3]
    grey = colours @ (0.299, 0.587, 0.114)
    assert (np.diff(grey[:4]) > 0.05).all()  # darker with the distance from 100, on both sides
    assert (np.diff(grey[3:]) < -0.05).all()
    for colour in percent_colours(np.geomspace(20, 500, 50)):
        channels = np.where(
            colour[:3] <= 0.03928, colour[:3] / 12.92, ((colour[:3] + 0.055) / 1.055) ** 2.4
        )
        luminance = channels @ (0.2126, 0.7152, 0.0722)
        text = 0.0 if readable_on(colour) == "black" else 1.0
        contrast = (max(luminance, text) + 0.05) / (min(luminance, text) + 0.05)
        assert contrast > 4.5  # WCAG AA


def test_every_cell_of_a_heat_map_has_its_number():
    with theme("dark"):
        axes = new_figure(4, 3).subplots()
        heat_map(axes, np.array([[66.64, 1234.5], [np.nan, 100.0]]), [1, 2], [3, 4], "x")
    assert [t.get_text() for t in axes.texts] == ["66.6", "1234", "–", "100.0"]


def test_the_report_needs_nothing_from_outside(tmp_path):
    reproduce(DICE, tmp_path, workers=1)
    page = (tmp_path / "report.html").read_text()
    assert not re.search(r"""(src|href|srcset)=["'](?!data:)""", page)
    assert "http" not in re.sub(r"base64,[\w+/=]+", "", page)
    assert "<title>Dice &amp; co</title>" in page
    assert "Dice are fair &amp; square" in page
    assert "✓ yes" in page
    assert "– cannot tell" in page
    assert "&lt; 1 &amp; &gt; 0" in page  # the rule
    assert page.count("<source") == 4  # light and dark, wide and narrow
    assert "<grid>" not in page


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--allow-file-access-from-files",
    "--virtual-time-budget=5000",
    "--window-size=1400,900",
    "--dump-dom",
]


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_report_fits_a_laptop_and_a_phone_in_a_browser(tmp_path):
    reproduce(DICE, tmp_path / "out", workers=1)
    frames = "".join(
        f'<iframe src="out/report.html" width="{width}" height="900"></iframe>'
        for width in (390, 1280)
    )
    script = """
      addEventListener("load", () => {
        const seen = [...document.querySelectorAll("iframe")].map(frame => {
          const page = frame.contentDocument, image = page.querySelector("img");
          return [page.title, frame.clientWidth, page.documentElement.scrollWidth,
                  image.complete && image.naturalWidth > 0, image.currentSrc.length];
        });
        document.body.innerHTML = "<pre>" + JSON.stringify(seen) + "</pre>";
      });"""
    (tmp_path / "frames.html").write_text(f"<body>{frames}<script>{script}</script></body>")
    address = (tmp_path / "frames.html").as_uri()
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", address]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120).stdout
    (phone, laptop) = json.loads(re.search(r"<pre>(.*)</pre>", dom)[1].replace("&amp;", "&"))
    for title, width, content, drawn, _ in (phone, laptop):
        assert title == "Dice & co"
        assert content <= width  # nothing sticks out sideways
        assert drawn
    assert phone[4] != laptop[4]  # the phone gets a figure of its own


def test_a_task_is_named_like_a_file():
    assert Task(("a/b c", 0.5), "TS-UCB(1)", 0, 20).key == "a-b-c_0.5_TS-UCB(1)_0-19"
