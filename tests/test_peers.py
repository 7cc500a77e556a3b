"""The benchmark of other libraries: its problem, its measuring, and its report of a cut-off run."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # benchmarks are run from the repository, not installed

from benchmarks.peers import measure, report  # noqa: E402
from benchmarks.peers.problem import (  # noqa: E402
    Learner,
    Policy,
    Problem,
    draw,
    play,
    pull_each_arm_once,
    regret,
)


def oracle(problem: Problem, seed: int) -> Learner:
    """Play the best arm, and check that rewards are those of the problem."""

    def update(t: int, arm: int, reward: float) -> None:
        assert reward == problem.rewards[t][arm]

    return Learner(lambda t: int(problem.means[t].argmax()), update)


def test_the_problem_is_the_papers_in_units_of_its_noise() -> None:
    """Means have standard deviation √d·s with s = 1/(dσ); 2 % is 5 standard errors of 20,000."""
    problem = draw(arms=20, features=10, steps=20_000, seed=3)
    assert problem.arms == 20
    assert problem.features == 10
    assert problem.contexts.std() == pytest.approx(1 / (10 * 0.5), rel=0.02)
    noise = problem.rewards - problem.means
    assert noise.std() == pytest.approx(1.0, rel=0.03)
    assert noise == pytest.approx(noise[:, :1].repeat(20, axis=1))  # the same for all arms
    assert (draw(20, 10, 20_000, seed=3).means == problem.means).all()


def test_regret_counts_what_was_lost() -> None:
    problem = draw(arms=4, features=3, steps=50, seed=0)
    learner = oracle(problem, 0)
    first = pull_each_arm_once(learner, problem)
    assert first == [0, 1, 2, 3]
    chosen = play(learner, problem, range(50))
    assert regret(problem, chosen) == 0
    worst = [int(a) for a in problem.means.argmin(axis=1)]
    spread = problem.means.max(axis=1) - problem.means.min(axis=1)
    assert regret(problem, worst) == pytest.approx(spread.sum())


def test_a_library_that_fails_is_noted_and_not_tried_at_larger_sizes() -> None:
    def broken(problem: Problem, seed: int) -> Learner:
        raise MemoryError("too large")

    rows = list(measure.timed(Policy("x", "other", broken), [(2, 2), (4, 2)], "growth with K"))
    assert [row["count"] for row in rows] == [0, 0]
    assert all("failed at K = 2, d = 2: MemoryError" in row["note"] for row in rows)


def test_regret_is_compared_on_the_same_runs(tmp_path: Path) -> None:
    """A library with two runs is compared with the first two of the reference."""
    common = {"version": "1", "kind": "other", "measure": "regret", "arms": 2, "features": 2}
    rows = [
        {
            **common,
            "library": "tsucb",
            "policy": "Agent, TS",
            "note": "",
            "totals": [10.0, 20.0, 99.0],
        },
        {**common, "library": "coba", "policy": "LinTS", "note": "", "totals": [5.0, 10.0]},
    ]
    table = report.summarise(rows).set_index(["library", "measure"])
    assert table.value["coba", "regret, % of TS"] == 50
    assert table["count"]["coba", "regret, % of TS"] == 2
    assert table.value["tsucb", "regret"] == pytest.approx(43)
    assert table.ci95_low["coba", "regret, % of TS"] == pytest.approx(50)
    # A run that is cut off before the growth was measured still gives a report.
    report.write(rows, report.About("machine", {"coba": "1"}, {"coba": "cut off"}, 1.0), tmp_path)
    assert "- **coba**: cut off." in (tmp_path / "peers.md").read_text()
    assert (tmp_path / "growth-light.svg").exists()
