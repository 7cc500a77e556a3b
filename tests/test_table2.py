"""Table 2: its measurements, its tables, and the messages for bad input."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsucb
from tsucb import GaussianBelief
from tsucb.cli.commands import answer
from tsucb.paper import table2
from tsucb.paper.datasets.bandits import PortfolioBandit
from tsucb.paper.experiments import reproduce
from tsucb.paper.experiments.experiment import cell_seed
from tsucb.paper.experiments.measure import ordered
from tsucb.paper.table2 import PAPER, POLICIES, Table2, paper_entry

jax = pytest.importorskip("jax", reason="NeuralLinear trains with JAX: pip install 'tsucb[deep]'")

HEADER = (
    "experiment,dataset,features,arms,policy,runs,regret_mean,regret_se,regret_median,"
    "percent_of_ts,ci95_low,ci95_high,paper_percent"
)


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without datasets, but with what was compiled before."""
    monkeypatch.setenv("TSUCB_DATA", str(tmp_path / "no-data"))
    monkeypatch.setattr("tsucb.paper.datasets.files.cache_folder", lambda: tmp_path / "cache")
    return tmp_path


def made_up(experiment: Table2, factor: float = 1.0, seed: int = 0) -> pd.DataFrame:
    """Return rows in which every policy loses the paper's percentage of TS, times a factor."""
    rng = np.random.default_rng(seed)
    rows = []
    for dataset in experiment.datasets:
        for policy in experiment.policies:
            entry = paper_entry(dataset, policy)
            percent = factor * entry[0] if entry else 100.0
            for run in range(experiment.runs):
                regret = 10 * percent * (1 + 1e-4 * rng.normal())
                curve = np.linspace(0, regret, 20)
                rows.append((dataset, policy, run, regret, curve))
    return pd.DataFrame(rows, columns=["dataset", "policy", "run", "regret", "curve"])


def test_without_data_the_wheel_is_played_and_resumed(nowhere: Path) -> None:
    chosen: dict[str, Any] = {"policies": ("TS", "Greedy"), "runs": 2, "horizon": 60}
    experiment = Table2.at("quick", **chosen)
    assert experiment.datasets == ("wheel",)
    # First, so that the processes load from disk what this call compiles.
    alone = tsucb.simulate(
        tsucb.WheelBandit(),
        tsucb.NeuralLinear(2, training=tsucb.Training(memory=60)),
        [tsucb.Thompson(), tsucb.Greedy()],
        horizon=60,
        runs=2,
        seed=cell_seed(0, "wheel"),
    )
    result = reproduce(experiment, nowhere / "out", workers=2)
    assert ",".join(result.summary.columns) == HEADER
    assert result.summary[["features", "arms", "runs"]].to_numpy().tolist() == [[2, 5, 2]] * 2
    # Two processes with one run after the other, or all four in this one: the numbers are the same.
    assert list(result.rows.regret) == [*alone.final("TS"), *alone.final("Greedy")]
    before = (nowhere / "out" / "summary.csv").read_bytes()
    times = (nowhere / "out" / "times.csv").read_bytes()
    reproduce(experiment, nowhere / "out")
    assert (nowhere / "out" / "summary.csv").read_bytes() == before
    assert (nowhere / "out" / "times.csv").read_bytes() == times  # nothing was measured again
    assert any("wheel" in note for note in experiment.notes())


def test_tasks_share_the_machine_and_begin_with_one_of_each_dataset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    experiment = Table2.at("full", runs=2)
    order = ordered(experiment, experiment.tasks())
    assert sorted(order) == sorted(experiment.tasks())
    assert {task.cell for task in order[:7]} == set(experiment.cells())
    costs = [experiment.cost(task) for task in order]
    assert costs[:7] == sorted(costs[:7], reverse=True)
    assert costs[7:] == sorted(costs[7:], reverse=True)
    monkeypatch.setattr(table2, "cores", lambda: 16)
    assert experiment.workers() == (16 if jax.default_backend() == "cpu" else 8)
    assert [experiment.beside(workers).threads for workers in (1, 8, 40)] == [16, 2, 1]
    assert experiment.beside(8) == experiment  # which is no other experiment


def test_full_scale_is_the_papers() -> None:
    experiment = Table2.at("full")
    assert experiment.cells() == [(name,) for name in PAPER]
    assert {experiment.steps(cell) for cell in experiment.cells()} == {10_000, 3_000}
    assert experiment.steps(("financial",)) == 3_000
    assert len(experiment.tasks()) == 42
    assert all(len(task.runs) == 200 for task in experiment.tasks())
    assert experiment.comparable
    assert [note.split(";")[0] for note in experiment.notes()] == ["Greedy breaks ties at random"]


def test_numbers_like_the_papers_agree_with_it() -> None:
    experiment = Table2.at("full", runs=3)
    rows = made_up(experiment)
    summary = experiment.summary(rows)
    assert ",".join(summary.columns) == HEADER
    assert len(summary) == 42
    np.testing.assert_allclose(
        summary.percent_of_ts[summary.policy != "TS"],
        summary.paper_percent[summary.policy != "TS"],
        rtol=1e-3,
    )
    claims = experiment.claims(rows, summary)
    assert all(claim.agrees for claim in claims)
    counted = next(claim for claim in claims if claim.statement.startswith("Entries"))
    assert counted.measured == "35 of 35"
    for figure in experiment.figures(rows, summary):
        for narrow in (False, True):
            assert figure.draw(narrow).axes


def test_other_numbers_do_not_agree() -> None:
    experiment = Table2.at("full", runs=3)
    rows = made_up(experiment, factor=1.5)
    claims = experiment.claims(rows, experiment.summary(rows))
    entries = [claim for claim in claims if "regret in per cent" in claim.statement]
    assert len(entries) == 35
    assert not any(claim.agrees for claim in entries)


def test_a_shorter_horizon_is_not_compared_with_the_paper() -> None:
    experiment = Table2.at("full", runs=2, horizon=1_000)
    rows = made_up(experiment)
    assert all(c.agrees is None for c in experiment.claims(rows, experiment.summary(rows)))
    assert any("1,000 steps" in note for note in experiment.notes())


def test_what_was_left_out_is_said() -> None:
    experiment = Table2.at("full", runs=2, datasets=("statlog",), policies=("TS", "UCB"))
    rows = made_up(experiment)
    claims = experiment.claims(rows, experiment.summary(rows))
    assert [c.agrees for c in claims if c.statement.startswith("statlog, UCB")] == [True]
    assert any("not measured: Greedy" in claim.measured for claim in claims)
    assert experiment.figures(rows, experiment.summary(rows))[0].draw(False).axes


def test_mushroom_gets_medians() -> None:
    experiment = Table2.at("full", runs=3, datasets=("mushroom",))
    rows = made_up(experiment)
    # One run in which TS goes astray changes the mean of the ratios, not the medians.
    rows.loc[(rows.policy == "TS") & (rows.run == 0), "regret"] *= 100
    summary = experiment.summary(rows)
    claim = experiment.claims(rows, summary)[0]
    assert claim.statement.startswith("mushroom, TS-UCB(1)")
    assert "of medians 108.0" in claim.measured


def test_a_horizon_beyond_the_rows_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    small = PortfolioBandit(np.zeros((3_713, 21)))
    monkeypatch.setattr(table2, "bandit", lambda name, data_dir: small)
    Table2.at("full", datasets=("financial",), horizon=3_713).prepare()
    with pytest.raises(ValueError, match=r"financial has 3,713 rows.*cannot be 10,000"):
        Table2.at("full", datasets=("financial",), horizon=10_000).prepare()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--datasets", "iris"], "unknown dataset 'iris'; the datasets are adult, census"),
        (["--datasets", "wheel,wheel"], "name at least one dataset, and none twice"),
        (["--horizon", "0"], "horizon must be at least 1"),
        (["--runs", "0"], "runs must be at least 1"),
        (["--policies", "TS,LinUCB"], "unknown policy 'LinUCB'"),
        (["--datasets", "adult"], "tsucb data get adult"),
    ],
)
def test_bad_input_is_one_sentence(
    nowhere: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    assert answer(["reproduce", "table2", "--out", str(nowhere / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_the_papers_greedy_takes_the_first_of_equal_arms() -> None:
    experiment = Table2.at("full", runs=2, datasets=("statlog",), policies=("TS", "Greedy(first)"))
    policy = experiment.policy("Greedy(first)")
    assert policy.name == "Greedy(first)"
    belief = GaussianBelief(mean=[-1.0, 0.0, 0.0], std=[1.0, 1.0, 1.0])
    rng = np.random.default_rng(0)
    assert {policy.choose(belief, rng).arm for _ in range(20)} == {1}
    assert {experiment.policy("Greedy").choose(belief, rng).arm for _ in range(20)} == {1, 2}
    rows = made_up(experiment)
    claim = experiment.claims(rows, experiment.summary(rows))[0]
    assert (claim.paper, claim.agrees) == ("317.5 ± 27.8", True)


def test_policies_are_the_papers() -> None:
    experiment = Table2.at("full")
    assert [experiment.policy(name).name for name in POLICIES] == list(POLICIES)
    assert type(experiment.policy("UCB")).__name__ == "ChiSquaredUCB"
