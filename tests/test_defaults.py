"""The benchmark of defaults, on tables that stand in for the datasets."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # benchmarks are run from the repository, not installed

from benchmarks.defaults import cells, play, problems, report, scores  # noqa: E402
from benchmarks.defaults.__main__ import Benchmark, main, numbers, plan  # noqa: E402
from benchmarks.defaults.contestants import CONTESTANTS, NAMED, Contestant, Floats  # noqa: E402


def stand_in(name: str) -> problems.Table:
    """Return a small table with features of very different sizes and three labels."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, 3))
    labels = np.argmax(x @ rng.standard_normal((3, 3)), axis=1)
    return problems.Table(name, x * [1.0, 100.0, 0.01] + 5, labels, 3, problems.classify)


class Parrot:
    """Repeats the arm that paid last; remembers what it was told."""

    def __init__(self, arms: int, features: int, seed: int) -> None:
        self.arm, self.told = 0, list[float]()

    def choose(self, x: Floats) -> int:
        return self.arm

    def learn(self, x: Floats, arm: int, reward: float) -> None:
        self.told.append(reward)


def test_the_quick_mode_plays_writes_and_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["--quick", "--contestants", "tsucb,tsucb Greedy,NIGLinear 0.25", "--out"]
    command += [str(tmp_path), "--datasets", "statlog", "--steps", "100,300"]
    main(command, stand_in)
    table = pd.read_csv(tmp_path / "defaults.csv")
    # Five variants for two contestants and the constant arm, one for the fixed prior.
    assert len(table) == 2 * (5 * 3 + 1)
    assert set(table.seed) == {1000}
    assert not table.total.isna().any()
    whole = table[table.steps == 300].set_index(["contestant", "features", "rewards"]).total
    first = table[table.steps == 100].set_index(["contestant", "features", "rewards"]).total
    assert (first <= whole).all()
    best = whole["best constant arm"]
    assert (best == best.iloc[0]).all()  # equal streams
    assert whole["NIGLinear 0.25", "standardised", "as is"] > best.iloc[0]
    for name in ("defaults.md", "defaults-light.svg", "defaults-narrow-dark.svg"):
        assert (tmp_path / name).exists()
    assert "| 300 steps |" in (tmp_path / "defaults.md").read_text()

    # A finished cell is not played again; one that is not there, or half written, is.
    kept = cells.Cell("statlog", "raw", "as is", 300, "tsucb", 1000)
    cells.save(tmp_path, kept, total=-1.0, seconds=0, note="", version="")
    gone = cells.Cell("statlog", "raw", "as is", 300, "tsucb Greedy", 1000)
    gone.path(tmp_path).write_text('{"dataset": "stat')
    main(command, stand_in)
    again = pd.read_csv(tmp_path / "defaults.csv").set_index(["contestant", "steps"])
    raw = again[again.features == "raw"].total
    assert raw["tsucb", 300] == -1
    assert raw["tsucb Greedy", 300] == whole["tsucb Greedy", "raw", "as is"]

    # Several processes play the same.
    main([*command, "--again", "ours", "--processes", "3"], stand_in)
    at_once = pd.read_csv(tmp_path / "defaults.csv")
    assert at_once.total.equals(table.total)
    capsys.readouterr()


def test_what_one_seed_has_told_to_be_too_slow_is_not_played_with_another(tmp_path: Path) -> None:
    benchmark = Benchmark(tmp_path, [100, 300], 20.0, stand_in)
    told = cells.Cell("statlog", "raw", "as is", 100, "river LinUCB", 0)
    cells.save(tmp_path, told, total=None, seconds=9, note=f"{play.CUT}: indeed", version="")
    assert benchmark.slow(told._replace(seed=1))
    assert benchmark.slow(told._replace(seed=1, steps=300))
    assert not benchmark.slow(told._replace(seed=1, features="standardised"))
    assert not benchmark.slow(told._replace(seed=1, contestant="coba VW"))
    cells.save(tmp_path, told, total=1.0, seconds=9, note="", version="")
    assert not benchmark.slow(told._replace(seed=1))


def test_everybody_meets_the_same_stream_in_every_form() -> None:
    table = stand_in("statlog")
    raw = problems.draw(table, "raw", seed=3, steps=900)
    prepared = problems.draw(table, "standardised", seed=3, steps=900)
    assert (raw.rewards == prepared.rewards).all()
    assert (prepared.contexts[:, -1] == 1).all()
    spread = table.features.std(axis=0)
    back = prepared.contexts[:, :-1] * spread + table.features.mean(axis=0)
    assert back == pytest.approx(raw.contexts)
    short = problems.draw(table, "raw", seed=3, steps=100)
    assert (short.contexts == raw.contexts[:100]).all()
    # A longer run goes through all rows again, in another order.
    first, second = raw.contexts[:400], raw.contexts[400:800]
    assert sorted(first[:, 0]) == sorted(second[:, 0])
    assert (first != second).any()
    assert (problems.draw(table, "raw", seed=4, steps=100).contexts != short.contexts).any()


def test_the_rules_of_the_datasets_without_labels() -> None:
    rng = np.random.default_rng(0)
    edible = rng.integers(0, 2, 500)
    x = rng.standard_normal((500, 4))
    mushrooms = problems.Table("mushroom", x, edible, 2, problems.forage, replace=True)
    rewards = problems.draw(mushrooms, "raw", 0, 4_000).rewards
    assert (rewards[:, 0] == 0).all()
    assert set(rewards[:, 1]) == {5.0, -35.0}
    # A quarter is poisonous and does harm; four standard errors of 4,000.
    assert (rewards[:, 1] < 0).mean() == pytest.approx((1 - edible.mean()) / 2, abs=0.03)

    ratings = rng.uniform(-10, 10, (50, 40))
    jester = problems.Table("jester", ratings, np.empty(0, np.int64), 8, problems.recommend)
    stream = problems.draw(jester, "raw", 0, 50)
    assert stream.contexts.shape == (50, 32)
    both = np.hstack([stream.contexts, stream.rewards])
    assert np.sort(both.sum(axis=1)) == pytest.approx(np.sort(ratings.sum(axis=1)))

    stocks = problems.Table("financial", x, np.empty(0, np.int64), 8, problems.invest)
    stream = problems.draw(stocks, "raw", 0, 500)
    weights, *_ = np.linalg.lstsq(stream.contexts, stream.rewards, rcond=None)
    assert np.linalg.norm(weights, axis=0) == pytest.approx(1, abs=0.02)


def test_totals_are_in_the_units_of_the_dataset() -> None:
    parrots: list[Parrot] = []

    def make(arms: int, features: int, seed: int) -> Parrot:
        parrots.append(Parrot(arms, features, seed))
        return parrots[-1]

    contestant = Contestant("parrot", "tsucb", "library", "", make)
    stream = problems.draw(stand_in("statlog"), "raw", 0, 50)
    for scale in problems.SCALES.values():
        result = play.run(contestant, *stream, scale=scale, steps=[20, 50], seed=0)
        told = np.array(parrots[-1].told)
        assert told == pytest.approx(scale[0] * stream.rewards[:, 0] + scale[1])
        assert result["totals"] == {n: stream.rewards[:n, 0].sum() for n in (20, 50)}


def test_what_a_library_cannot_do_is_noted() -> None:
    stream = problems.draw(stand_in("statlog"), "raw", 0, 50)
    binary = Contestant("x", "x", "library", "", Parrot, binary=True)
    assert play.run(binary, *stream, scale=(1, 0), steps=[50], seed=0)["totals"]
    refused = play.run(binary, *stream, scale=(100, 0), steps=[50], seed=0)
    assert refused["totals"] == {}
    assert refused["note"] == "takes rewards 0 and 1 only"

    class Fails(Parrot):
        def learn(self, x: Floats, arm: int, reward: float) -> None:
            raise OverflowError("too\nlarge")

    broken = Contestant("x", "x", "library", "", Fails)
    failed = play.run(broken, *stream, scale=(1, 0), steps=[50], seed=0)
    assert failed["note"] == "failed at step 1: OverflowError: too large"
    cut = play.run(binary, *stream, scale=(1, 0), steps=[20, 50], seed=0, milliseconds=-1e6)
    assert cut["totals"] == {}
    assert cut["note"].startswith(play.CUT)


def test_percentages_are_of_the_best_library_over_the_same_seeds() -> None:
    libraries = [c.name for c in CONTESTANTS if c.role == "library"]
    first, second, lone = libraries[:3]
    problem = ("statlog", "raw", "as is", 100)
    totals = {
        first: pd.Series({0: 90.0, 1: 110.0, 2: 130.0}),
        second: pd.Series({0: 80.0, 1: 80.0, 2: 80.0}),
        lone: pd.Series({1: 999.0}),  # cut off with most seeds: not the best of all
        "tsucb": pd.Series({0: 99.0, 1: 121.0}),
    }
    assert scores.references({problem: totals}) == {problem: first}
    found = scores.percentages({problem: totals})[problem]
    assert found["tsucb"].percent == pytest.approx(110)
    assert found["tsucb"].half == pytest.approx(0)
    assert found["tsucb"].runs == 2
    assert found[second].percent == pytest.approx(100 * 80 / 110)
    assert np.isnan(found[lone].half)


def test_the_lead_is_averaged_over_the_variants_of_a_dataset_first() -> None:
    library = next(c.name for c in CONTESTANTS if c.role == "library")
    best = pd.Series({0: 100.0, 1: 100.0, 2: 100.0})
    ours = best + pd.Series({0: 1.0, 1: 2.0, 2: 3.0})
    runs = {
        (dataset, features, "as is", 100): {library: best, "tsucb": ours + shift}
        for dataset, features, shift in [("a", "raw", 0), ("a", "standardised", 0), ("b", "raw", 3)]
    }
    found = scores.lead(runs, library)
    assert found is not None
    assert found.percent == pytest.approx((2 + 2 + 5) / 3)
    # Two variants of one dataset are the same runs: its mean, 2, has the variance of one of them.
    error = np.sqrt((4 / 9 + 1 / 9) * 1 / 3)
    assert found.half == pytest.approx(stats.t.ppf(0.975, 4) * error)
    assert scores.lead(runs, "coba VW") is None


def test_the_documentation_is_made_of_the_table_alone(tmp_path: Path) -> None:
    for seed in range(2):
        for k, name in enumerate(["tsucb", "river LinUCB", "coba VW"]):
            for rewards in ("as is", "÷100"):
                cell = cells.Cell("statlog", "standardised", rewards, 100, name, seed)
                total = None if name == "coba VW" and seed else 100.0 - 10 * k + seed
                note = "" if total is not None else "failed: nobody knows"
                cells.save(tmp_path, cell, total=total, seconds=1, note=note, version="1")
    text = report.write(tmp_path, scores.Selection(["statlog"], [100], [0, 1]))
    table = report.read(tmp_path)
    again = "\n".join(f"## {report.heading(f)}\n\n{f(table)}" for f in report.SECTIONS.values())
    assert again == text == (tmp_path / "defaults.md").read_text()
    assert "| **tsucb** | 111.0 |" in text
    assert (
        "reached: 100 steps: first on average. Nearest is river LinUCB, 11.0 ± 0.0 behind" in text
    )
    assert "In 2 of 2 runs with raw features or rescaled rewards" in text
    assert "- coba VW: failed: nobody knows (statlog; 100 steps)" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--processes", "0"], "processes must be at least 1, not 0"),
        (["--datasets", "iris"], "unknown dataset 'iris'; choose from mushroom"),
        (["--contestants", "nobody"], "unknown contestant 'nobody'; choose from all"),
        (["--seeds", "1-x"], "seeds must be whole numbers of at least 0, not '1-x'"),
        (["--steps", "0"], "steps must be whole numbers of at least 1, not '0'"),
        (["--milliseconds", "0"], "milliseconds must be positive, not 0"),
        (["--rewards", "x3"], "unknown scale 'x3'; choose from as is"),
        (["--features", "x3"], "unknown features 'x3'; choose from raw, standardised"),
    ],
)
def test_bad_input_is_answered_in_a_sentence(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--out", str(tmp_path)], stand_in)
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_dataset_that_is_not_there_is_said_before_anything_is_played(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TSUCB_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing"))
    with pytest.raises(SystemExit) as left:
        main(["--quick", "--out", str(tmp_path / "out")])
    assert left.value.code == 2
    assert "dataset statlog is not in" in capsys.readouterr().err


def test_the_libraries_play_less_unless_all_is_asked_for() -> None:
    runs = set(plan(["statlog", "adult"], problems.VARIANTS, range(10), CONTESTANTS))
    library, default = NAMED["river LinUCB"], NAMED["tsucb"]
    assert (4, "adult", "raw", "as is", library) in runs
    assert (5, "adult", "raw", "as is", library) not in runs
    assert (0, "adult", "standardised", "÷100", library) not in runs
    assert (0, "statlog", "standardised", "÷100", library) in runs
    assert (9, "adult", "standardised", "÷100", default) in runs
    every = plan(["adult"], problems.VARIANTS, range(10), CONTESTANTS, thorough=True)
    assert (9, "adult", "standardised", "÷100", library) in set(every)


def test_runs_are_restored_from_their_table(tmp_path: Path) -> None:
    whole = cells.Cell("statlog", "raw", "as is", 100, "tsucb", 0)
    cut = whole._replace(contestant="VW bag")
    for cell, total, note in ((whole, 12.5, ""), (cut, None, "too slow")):
        cells.save(tmp_path / "first", cell, total=total, seconds=0.5, note=note, version="1")
    report.write(tmp_path / "first", scores.Selection(["statlog"], [100], [0]))
    cells.restore(tmp_path / "second", tmp_path / "first" / "defaults.csv")
    for cell in (whole, cut):
        assert cells.load(tmp_path / "second", cell) == cells.load(tmp_path / "first", cell)


def test_numbers_and_names() -> None:
    assert numbers("0-2,7", "seeds", 0) == [0, 1, 2, 7]
    paths = {cells.Cell("a", "raw", "as is", 1, name, 0).path(Path()) for name in NAMED}
    assert len(paths) == len(NAMED)
    assert all(str(path).isascii() for path in paths)
    assert json.dumps([c.setting for c in CONTESTANTS])
