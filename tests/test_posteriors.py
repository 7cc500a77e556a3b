"""Table 2's datasets with other posteriors: the tasks, the claims, and one tiny run."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsucb
from tsucb.cli.commands import answer
from tsucb.paper.experiments import reproduce
from tsucb.paper.experiments.experiment import cell_seed
from tsucb.paper.posteriors import ENSEMBLE, POSTERIORS, RIVALS, Posteriors, improves

pytest.importorskip("jax", reason="networks train with JAX: pip install 'tsucb[deep]'")


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without datasets."""
    monkeypatch.setenv("TSUCB_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no-cache"))
    return tmp_path


def made_up(experiment: Posteriors, percent: dict[str, float]) -> pd.DataFrame:
    """Return rows in which TS-UCB loses these percentages of TS, posterior by posterior."""
    rng = np.random.default_rng(0)
    rows = []
    for dataset, posterior in experiment.cells():
        for policy in experiment.policies:
            share = 100.0 if policy == "TS" else percent[str(posterior)]
            for run in range(experiment.runs):
                regret = share * (1 + 1e-3 * rng.normal())
                curve = np.linspace(0, regret, 20)
                rows.append((dataset, posterior, policy, run, regret, curve))
    names = ["dataset", "posterior", "policy", "run", "regret", "curve"]
    return pd.DataFrame(rows, columns=names)


def test_full_is_table_2_with_four_posteriors_in_pieces_that_can_be_resumed() -> None:
    experiment = Posteriors.at("full")
    assert (experiment.runs, experiment.batches) == (200, 100)
    assert len(experiment.cells()) == 7 * 4
    assert experiment.steps(("financial", ENSEMBLE)) == 3_000
    assert experiment.steps(("adult", ENSEMBLE)) == 10_000
    sizes = {task.cell[1]: len(task.runs) for task in experiment.tasks()}
    assert sizes == {name: 100 if name == ENSEMBLE else 200 for name in POSTERIORS}
    assert not experiment.notes()
    assert len({task.key for task in experiment.tasks()}) == 7 * 3 * (3 + 2)


def test_claims_say_under_which_posterior_it_helps() -> None:
    experiment = Posteriors.at("full", runs=4, datasets=("adult", "statlog"))
    percent = dict(zip(POSTERIORS, (80.0, 90.0, 110.0, 100.0), strict=True))
    rows = made_up(experiment, percent)
    summary = experiment.summary(rows)
    found = {claim.statement: claim for claim in experiment.claims(rows, summary)}
    verdicts = [found[f"TS-UCB(1) improves upon TS with {name}"].agrees for name in percent]
    assert verdicts[:3] == [True, True, False]
    worst = found["TS-UCB(100) improves upon TS with every posterior"]
    assert worst.agrees is False
    assert "above in 2" in worst.measured
    assert [figure.name for figure in experiment.figures(rows, summary)] == ["posteriors", "curves"]
    for figure in experiment.figures(rows, summary):
        for narrow in (False, True):
            assert figure.draw(narrow).get_axes()


def test_what_cannot_be_told_from_100_is_open() -> None:
    columns = ["posterior", "policy", "percent_of_ts", "ci95_low", "ci95_high"]
    table = pd.DataFrame([["p", "x", 99.0, 90.0, 108.0]], columns=columns)
    assert improves("x", ["p"], table)[1] is None


def test_some_posteriors_leave_the_sentence_about_all_open() -> None:
    experiment = Posteriors.at("full", runs=4, datasets=("adult",), posteriors=(ENSEMBLE,))
    rows = made_up(experiment, {ENSEMBLE: 90.0})
    claims = experiment.claims(rows, experiment.summary(rows))
    decided = [claim for claim in claims if claim.agrees is not None]
    assert len(decided) == len(RIVALS)
    assert all(ENSEMBLE in claim.statement for claim in decided)


def test_without_data_the_wheel_is_played_and_resumed(nowhere: Path) -> None:
    chosen: dict[str, Any] = {
        "policies": ("TS",), "runs": 2, "horizon": 60, "posteriors": ("last-layer Laplace",),
        "batches": 3,
    }  # fmt: skip
    experiment = Posteriors.at("quick", **chosen)
    assert experiment.datasets == ("wheel",)
    assert any("Without statlog" in note for note in experiment.notes())
    # First, so that the processes load from disk what this call compiles.
    alone = tsucb.simulate(
        tsucb.WheelBandit(),
        tsucb.LastLayerLaplace(2, training=tsucb.Training(memory=60, batches=3)),
        [tsucb.Thompson()],
        horizon=60,
        runs=2,
        seed=cell_seed(0, "wheel"),
    )
    result = reproduce(experiment, nowhere / "out")
    assert list(result.rows.regret) == list(alone.final("TS"))
    times = (nowhere / "out" / "times.csv").read_bytes()
    reproduce(experiment, nowhere / "out")
    assert (nowhere / "out" / "times.csv").read_bytes() == times  # nothing was measured again


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--posteriors", "dropout"], "unknown posterior 'dropout'; the posteriors are Neural-"),
        (["--posteriors", ","], "name at least one posterior, and none twice"),
        (["--datasets", "iris"], "unknown dataset 'iris'"),
        (["--datasets", "adult"], "dataset adult is not in"),
    ],
)
def test_bad_input_is_one_sentence(
    options: list[str], message: str, nowhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert answer(["reproduce", "posteriors", "--out", str(nowhere / "out"), *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
