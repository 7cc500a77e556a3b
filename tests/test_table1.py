"""The news bandit, and Table 1 from log to report."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from by_hand import click_rates

import tsucb
from tsucb.cli.commands import answer
from tsucb.paper.experiments import reproduce
from tsucb.paper.news.bandit import NewsBandit
from tsucb.paper.news.clicks import ClickModel
from tsucb.paper.news.day import Day, log_files
from tsucb.paper.news.generate import make_news
from tsucb.paper.news.parser import read_day
from tsucb.paper.table1 import DAYS, OVERALL, PAPER, POLICIES, Table1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("news")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tsucb.paper.table1.cache_folder", lambda: path / "cache")
        make_news(path, days=2, lines=20_000, seed=5)
        yield path


@pytest.fixture(scope="module")
def day(folder: Path) -> Day:
    return read_day(log_files(folder)[0])


@pytest.fixture(scope="module")
def truth(folder: Path) -> ClickModel:
    return ClickModel.load(folder / "truth.npz")


def test_steps_are_visits_of_the_log_with_its_users_and_rates(day: Day, truth: ClickModel) -> None:
    bandit = NewsBandit.of(day, truth, fraction=0.05)
    assert bandit.steps == 1_000
    assert bandit.context_shape == (136,)
    rates = click_rates(truth, day)
    rng = np.random.default_rng(0)
    world = bandit.begin(rng)
    assert (np.diff(world.parameters) > 0).all()  # in the order of the day, none twice
    assert len(world.parameters) == 1_000
    for step in range(1, 1_001, 37):
        context, means, available = bandit.advance(world, step, rng)
        visit = world.parameters[step - 1]
        on = day.features[day.ends[visit] : day.ends[visit + 1]]
        assert np.flatnonzero(context).tolist() == sorted(on.tolist())
        articles = bandit.articles[available]
        assert articles.tolist() == day.pools[day.pool[visit]][:10].tolist()
        expected = rates[visit, np.searchsorted(truth.articles, articles)]
        assert means[available] == pytest.approx(expected)
        world.noise[0] = expected[3] * 0.999
        assert bandit.reward(world, available[3]) == 1.0
        world.noise[0] = expected[3] * 1.001
        assert bandit.reward(world, available[3]) == 0.0


def test_every_run_draws_its_own_visits_evenly(day: Day, truth: ClickModel) -> None:
    bandit = NewsBandit.of(day, truth, fraction=0.1)
    drawn = [bandit.begin(np.random.default_rng(seed)).parameters for seed in range(20)]
    assert drawn[0].tolist() != drawn[1].tolist()
    # 40,000 draws over four quarters of the day: mean 10,000, standard deviation < 87;
    # 4.5 of them, false alarm 3e-5
    counts = np.histogram(np.concatenate(drawn), bins=4, range=(0, len(day)))[0]
    assert np.abs(counts - 10_000).max() < 4.5 * 87


def test_articles_are_alphabetical_and_known_to_the_click_model() -> None:
    model = ClickModel(np.array([7, 10, 500, 999_999], np.int32), np.zeros(4), np.zeros((4, 136)))
    small = Day(
        name="x",
        time=np.arange(3),
        article=np.array([7, 8, 500], np.int32),
        click=np.zeros(3, np.uint8),
        features=np.zeros(3, np.uint8),
        ends=np.arange(4),
        pool=np.array([0, 1, 2], np.int32),
        pools=tuple(np.array(p, np.int32) for p in ([7, 8, 10, 999_999], [8], [7, 500])),
        problems=(),
        generated=True,
    )
    bandit = NewsBandit.of(small, model, fraction=1.0, choices=2)
    names = [[bandit.articles[a] for a in row if a >= 0] for row in bandit.choices]
    assert names == [[10, 7], [], [500, 7]]  # as text, 10 < 7 and 500 < 7
    assert bandit.visits.tolist() == [0, 2]  # nothing can be played at the second visit
    with pytest.raises(ValueError, match="no step is left"):
        NewsBandit.of(small, model._replace(articles=np.arange(4, dtype=np.int32)))
    with pytest.raises(ValueError, match="fraction must be"):
        NewsBandit.of(small, model, fraction=0)


def test_horizon_longer_than_the_run_is_refused(day: Day, truth: ClickModel) -> None:
    bandit = NewsBandit.of(day, truth, fraction=0.001)
    with pytest.raises(ValueError, match="horizon is longer"):
        tsucb.simulate(bandit, bandit.model(), [tsucb.TSUCB(1)], horizon=21, runs=1)


def test_overall_line_of_the_paper_is_the_mean_of_its_days() -> None:
    assert set(PAPER) > set(POLICIES)
    for values in PAPER.values():
        assert len(values) == DAYS + 1
        assert np.mean(values[:DAYS]) == pytest.approx(values[DAYS], abs=0.07)  # all are rounded


SIZE = {"days": 2, "fraction": 0.05, "impressions": 300, "policies": ("TS", "TS-UCB(1)")}


def test_experiment_from_log_to_report(folder: Path, tmp_path: Path) -> None:
    experiment = Table1.at("quick", log=str(folder), runs=3, **SIZE)
    rows, summary, claims = reproduce(experiment, tmp_path / "out")
    assert len(rows) == 2 * 2 * 3
    written = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert ",".join(written.columns) == (
        "experiment,day,policy,runs,regret_mean,regret_se,percent_of_ts,ci95_low,ci95_high,"
        "paper_percent"
    )
    assert written.day.astype(str).tolist() == ["1", "1", "2", "2", OVERALL, OVERALL]
    assert written.experiment.unique().tolist() == ["table1 (generated log)"]
    assert written.paper_percent.tolist() == [100, 91.0, 100, 86.3, 100, 89.9]
    pairs = rows.pivot(index=["day", "run"], columns="policy", values="regret")
    ratio = 100 * pairs["TS-UCB(1)"] / pairs["TS"]
    by_policy = summary[summary.day == OVERALL].set_index("policy")
    assert by_policy.percent_of_ts["TS-UCB(1)"] == pytest.approx(ratio.mean())
    assert by_policy.runs["TS-UCB(1)"] == 6
    report = (tmp_path / "out" / "report.html").read_text()
    assert "GENERATED LOG" in report
    numbers = [claim for claim in claims if claim.statement.startswith("Overall")]
    assert {claim.agrees for claim in numbers} == {None}  # only the licensed log can tell

    one = experiment.run((2,), "TS-UCB(1)", range(2, 3))  # a run alone is that run in a batch
    here = rows[(rows.day == 2) & (rows.policy == "TS-UCB(1)") & (rows.run == 2)]
    assert one.regret.tolist() == here.regret.tolist()


def test_settings_know_the_log(folder: Path, tmp_path: Path) -> None:
    first = Table1.at("full", log=str(folder), **SIZE)
    assert first.settings()["generated"] is True
    assert "20111003.gz" in first.settings()["log"]
    assert "bytes" in first.settings()["log"]
    other = Table1.at("full", runs=1, days=1, policies=("TS",))
    assert other.settings()["log"] == "generated, 200000 lines a day"


def test_bad_requests(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="has a log of 2 days, but 10 are asked for"):
        Table1.at("full", log=str(folder))
    with pytest.raises(ValueError, match="days must be 1 to 10"):
        Table1.at("full", days=11)
    with pytest.raises(ValueError, match="unknown policy 'XY'"):
        Table1.at("quick", policies=("XY",))
    assert answer(["reproduce", "table1", "--log", str(tmp_path)]) == 2
    assert "holds no news log" in capsys.readouterr().err


def test_strict_refuses_and_notes_count_malformed_lines(folder: Path, tmp_path: Path) -> None:
    import gzip

    source = log_files(folder)[0]
    text = gzip.decompress(source.read_bytes()).splitlines(keepends=True)
    text[6] = text[6].replace(b"|user", b"|usr")
    (tmp_path / source.name).write_bytes(gzip.compress(b"".join(text), 1))
    size = SIZE | {"days": 1}
    with pytest.raises(ValueError, match=r"1 × wrong field \(first at line 7\)"):
        Table1.at("quick", log=str(tmp_path), strict=True, **size).prepare()
    lenient = Table1.at("quick", log=str(tmp_path), **size)
    assert "first at line 7" in lenient.notes()[0]
    assert not lenient.generated  # gzip again: the label in the header is gone


def test_make_news_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "made"
    assert answer(["data", "make-news", str(folder), "--days", "1", "--lines", "50"]) == 0
    assert "20111002.gz" in capsys.readouterr().out
    assert len(log_files(folder)) == 1
    assert (folder / "truth.npz").exists()
    assert answer(["data", "make-news", str(folder), "--days", "0"]) == 2
    assert "expected 1 to 365 days" in capsys.readouterr().err
