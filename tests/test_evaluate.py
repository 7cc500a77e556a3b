"""Replay: what a policy would have earned, from logged data."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from by_hand import click_rates

import tsucb
from tsucb.cli.commands import answer
from tsucb.logs import LoggedData, read_decisions, replay
from tsucb.numeric.statistics import rate_interval
from tsucb.paper.news.clicks import ClickModel
from tsucb.paper.news.generate import make_news
from tsucb.paper.news.parser import read_day

RATES = np.array([0.2, 0.5, 0.8])


def logged(events: int, chances: np.ndarray, seed: int) -> LoggedData:
    """Return events of three Bernoulli arms, logged with the given chances."""
    rng = np.random.default_rng(seed)
    arm = rng.choice(3, size=events, p=chances)
    return LoggedData(arm, rng.random(events) < RATES[arm], None, propensity=chances[arm])


def live(steps: int, seed: int) -> float:
    """Return mean reward of Thompson sampling played live on the three arms."""
    rng = np.random.default_rng(seed)
    model, policy = tsucb.BernoulliArms(empirical=False), tsucb.Thompson()
    state = model.start(3)
    total = 0.0
    for _ in range(steps):
        arm = policy.choose(model.belief(state, rng=rng), rng).arm
        reward = float(rng.random() < RATES[arm])
        model.update(state, None, arm, reward)
        total += reward
    return total / steps


@pytest.mark.parametrize("chances", [(1 / 3, 1 / 3, 1 / 3), (0.1, 0.2, 0.7), (0.7, 0.2, 0.1)])
def test_replay_of_a_learning_policy_equals_playing_it_live(chances: tuple[float, ...]) -> None:
    steps, runs = 15, 200
    replayed = []
    for seed in range(runs):
        data = logged(900, np.array(chances), seed)
        model = tsucb.BernoulliArms(empirical=False)
        found = replay(data, model, tsucb.Thompson(), seed=seed, lives=1)
        assert found.kept.size >= steps
        replayed.append(data.reward[found.kept[:steps]].mean())
    played = [live(steps, seed) for seed in range(runs)]
    error = np.sqrt((np.var(replayed) + np.var(played)) / runs)
    # 4 standard errors: false alarm 6e-5 each. With unequal chances, keeping all matches instead
    # errs by 7 and more.
    assert abs(np.mean(replayed) - np.mean(played)) < 4 * error


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoggedData, np.ndarray]:
    folder = tmp_path_factory.mktemp("news")
    [path] = make_news(folder, days=1, lines=40_000, seed=1)
    day = read_day(path)
    truth = ClickModel.load(folder / "truth.npz")
    place = np.searchsorted(truth.articles, day.article)
    return day.logged_data(), click_rates(truth, day)[np.arange(len(day)), place]


def test_replay_agrees_with_the_true_click_rate_on_a_generated_log(
    news: tuple[LoggedData, np.ndarray],
) -> None:
    data, true_rate = news
    for seed in range(3):
        found = replay(data, tsucb.NIGLinear(136), tsucb.TSUCB(1), seed=seed, lives=1)
        # At the events kept, the policy's arm is the logged one, whose true rate is known.
        truth = true_rate[found.kept]
        error = np.sqrt((truth * (1 - truth)).sum()) / truth.size
        assert abs(found.rate - truth.mean()) < 4 * error  # false alarm 6e-5
        assert np.isnan(found.low)  # one life has no error
    found = replay(data, tsucb.NIGLinear(136), tsucb.TSUCB(1), seed=3, lives=3)
    assert found.low < truth.mean() < found.high
    assert found.events == len(data.arm)
    assert found.kept.size <= found.matched
    assert found.logged_rate == data.reward.mean()
    assert found.lift == pytest.approx(found.rate / found.logged_rate - 1)
    assert found.lift_low < found.lift < found.lift_high


def test_random_policy_earns_what_was_logged_and_matches_one_in_a_pool(
    news: tuple[LoggedData, np.ndarray],
) -> None:
    data = news[0]._replace(contexts=np.empty((len(news[0].arm), 0)))
    found = replay(data, tsucb.BernoulliArms(empirical=False), tsucb.Random())
    assert found.lift_low < 0 < found.lift_high  # 95 %
    expected, kept = data.propensity.sum(), len(data.arm) * data.propensity.min()
    # Counts of rare matches: standard deviation √n; 4 of them, false alarm 6e-5.
    assert abs(found.matched - expected) < 4 * np.sqrt(expected)
    assert abs(found.kept.size - kept) < 4 * np.sqrt(kept)
    # Kept events are spread over the day as all events are, though pools differ in size.
    spread = np.abs(np.quantile(found.kept, [0.25, 0.5, 0.75]) / len(data.arm) - [0.25, 0.5, 0.75])
    assert spread.max() < 4 * 0.5 / np.sqrt(found.kept.size)


class OwnPolicy:
    """A policy in plain Python."""

    name = "own"

    def choose(self, belief: Any, rng: np.random.Generator) -> int:
        return tsucb.TSUCB(1).choose(belief, rng).arm


def test_plain_python_policy_replays_as_the_compiled_one() -> None:
    data = logged(500, np.full(3, 1 / 3), 0)
    model = tsucb.BernoulliArms()
    own, compiled = (replay(data, model, each, lives=2) for each in (OwnPolicy(), tsucb.TSUCB(1)))
    assert own.kept.tolist() == compiled.kept.tolist()
    assert (own.rate, own.low, own.high) == (compiled.rate, compiled.low, compiled.high)
    assert own.policy == "own"


def test_same_seed_same_estimate_and_other_seed_another() -> None:
    data = logged(500, np.full(3, 1 / 3), 0)
    first, again, other = (
        replay(data, tsucb.BernoulliArms(), tsucb.TSUCB(1), seed=seed).kept.tolist()
        for seed in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize("policy", [tsucb.Greedy(), tsucb.TSUCB(10)], ids=str)
def test_intervals_are_about_the_expected_life(policy: Any) -> None:
    """Greedy locks in on an arm: the interval of one life would cover its expectation in 56 %."""
    model, rates, found = tsucb.BernoulliArms(), [], []
    for seed in range(60):
        data = logged(1_200, np.full(3, 1 / 3), seed)
        found.append(replay(data, model, policy, seed=seed))
        rates.append(found[-1].rate)
    expected = np.mean(rates)
    covered = sum(each.low < expected < each.high for each in found)
    assert covered >= 54  # 97 % and more in 1,000 logs: fewer than 54 once in 500 times


def test_initial_pulls_come_first() -> None:
    data = LoggedData([2, 0, 1, 0, 2], [0, 1, 0, 1, 0], None, uniform=True)
    found = replay(data, tsucb.BernoulliArms(empirical=True), tsucb.TSUCB(1))
    # The least pulled arm, the first among equals: 0, then 1; arm 2 came too early.
    assert found.kept[:2].tolist() == [1, 2]


def test_no_lift_where_a_ratio_means_nothing() -> None:
    for rewards in ([-1.0, 0.5, 0.25, 0.5], [0.0, 0.0, 0.0, 0.0]):
        data = LoggedData([0, 0, 0, 0], rewards, None, uniform=True)
        found = replay(data, tsucb.BernoulliArms(empirical=False), tsucb.TSUCB(1), lives=1)
        assert found.rate == np.mean(rewards)
        assert np.isnan(found.lift)


def test_only_available_arms_are_picked() -> None:
    data = LoggedData(
        [0, 1, 0, 1], [1, 1, 1, 1], None, available=([[0], [1, 2]], [0, 1, 0, 1]), uniform=True
    )
    assert data.propensity.tolist() == [1.0, 0.5, 1.0, 0.5]
    found = replay(data, tsucb.BernoulliArms(empirical=False), tsucb.TSUCB(1))
    assert set(found.kept.tolist()) <= {0, 1, 2, 3}
    assert found.matched >= 2  # where there was no choice


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uniform": False}, "say how the arms were logged"),
        ({"propensity": [0.5, 0.5]}, "say how the arms were logged"),
        ({"uniform": False, "propensity": [0.5, 0.0]}, "first number 2: the propensity"),
        ({"reward": [0.0, np.nan]}, "first number 2: the reward"),
        ({"contexts": [[np.inf], [0.0]]}, "first number 1: the context"),
        ({"contexts": [[0.0]]}, "one row for each event"),
        ({"available": ([[0], [0]], [0, 1])}, "first number 2: the logged arm was not available"),
        ({"arm": [], "reward": []}, "at least one"),
    ],
)
def test_bad_logged_data_is_refused(change: dict[str, Any], message: str) -> None:
    good = {"arm": [0, 1], "reward": [0.0, 1.0], "contexts": None, "uniform": True}
    LoggedData(**good)
    with pytest.raises(ValueError, match=message):
        LoggedData(**good | change)


def test_model_must_fit_the_contexts_and_some_event_must_match() -> None:
    data = LoggedData([0, 1], [0, 1], None, uniform=True)
    with pytest.raises(ValueError, match=r"shape \(0,\), but NIGLinear expects \(3,\)"):
        replay(data, tsucb.NIGLinear(3), tsucb.TSUCB(1))
    never = LoggedData([1], [1], None, available=([[0, 1]], [0]), uniform=True)
    for lives in (0, 2.5, "many"):
        with pytest.raises(ValueError, match="lives must be a whole number"):
            replay(data, tsucb.BernoulliArms(), tsucb.TSUCB(1), lives=lives)
    with pytest.raises(ValueError, match="never picked the logged arm"):
        replay(never, tsucb.BernoulliArms(), tsucb.TSUCB(1))  # which pulls arm 0 first


def test_intervals_of_rates_that_are_not_all_0_or_1() -> None:
    mean, error, low, high = rate_interval(np.array([0.5, 1.5, 1.0, 3.0]))
    assert mean == 1.5
    assert error == pytest.approx(np.std([0.5, 1.5, 1.0, 3.0], ddof=1) / 2)
    assert low < 0 < 3 < high
    assert rate_interval(np.zeros(10))[3] > 0.2  # nothing in ten does not prove a rate of zero


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    arm = rng.integers(3, size=300)
    return pd.DataFrame(
        {
            "age": rng.integers(20, 60, size=300),
            "member": rng.random(300) < 0.5,
            "shown": np.array(["tea", "milk", "cocoa"])[arm],
            "bought": (rng.random(300) < RATES[arm]).astype(int),
            "menu": np.where(arm == 2, "cocoa|tea|milk", "tea; milk"),
            "chance": np.where(arm == 2, 0.2, 0.4),
        }
    )


def test_csv_and_parquet_hold_the_same_events(tmp_path: Path, table: pd.DataFrame) -> None:
    table.to_csv(tmp_path / "a.csv", index=False)
    table.assign(menu=[m.replace("; ", "|").split("|") for m in table.menu]).to_parquet(
        tmp_path / "a.parquet"
    )
    read = []
    for name in ("a.csv", "a.parquet"):
        decisions = read_decisions(
            tmp_path / name,
            arm="shown",
            reward="bought",
            contexts=["age", "member"],
            available="menu",
            propensity="chance",
        )
        read.append(decisions.logged_data(decisions.feature_matrix(intercept=True)))
    for ours, theirs in zip(*read, strict=True):
        assert np.array_equal(ours, theirs)
    events = read[0]
    names = np.array(["cocoa", "milk", "tea"])
    assert names[events.arm].tolist() == table.shown.tolist()
    assert events.contexts[:, 0].tolist() == [1.0] * 300
    assert events.contexts[:, 1].tolist() == table.age.tolist()
    assert sorted(np.diff(events.ends).tolist()) == [2, 3]
    assert events.propensity.tolist() == table.chance.tolist()


def test_bad_files_and_columns(tmp_path: Path, table: pd.DataFrame) -> None:
    path = tmp_path / "a.csv"
    table.to_csv(path, index=False)
    for change, message in [
        ({"arm": "drink"}, "has no column 'drink'; it has age"),
        ({}, "column 'menu' holds text, such as"),
        ({"contexts": ["shown"]}, "column 'shown' holds text"),
    ]:
        with pytest.raises(ValueError, match=message):
            read_decisions(
                path, **{"arm": "shown", "reward": "bought", "uniform": True} | change
            ).feature_matrix()
    with pytest.raises(ValueError, match="there is no file"):
        read_decisions(tmp_path / "none.csv", arm="a", reward="b")
    with pytest.raises(ValueError, match="neither"):
        read_decisions(Path(__file__), arm="a", reward="b")
    table.loc[7, "bought"] = None
    table.loc[9, "age"] = None
    table.to_csv(path, index=False)
    read = read_decisions(path, arm="shown", reward="bought", contexts=["age"], uniform=True)
    with pytest.raises(ValueError, match="first number 10: column 'age' is empty"):
        read.feature_matrix()
    with pytest.raises(ValueError, match="first number 8: there is no reward"):
        read.logged_data(np.empty((300, 0)))


def test_tables_that_are_too_wide_are_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text("arm,reward," + ",".join(f"c{i}" for i in range(200_000)) + "\n")
    with pytest.raises(ValueError, match="its first line has more than 1,048,576 bytes"):
        read_decisions(path, uniform=True)
    with gzip.open(tmp_path / "wide.csv.gz", "wb") as file:
        file.write(path.read_bytes())
    with pytest.raises(ValueError, match="its first line has more than"):
        read_decisions(tmp_path / "wide.csv.gz", uniform=True)
    wide = pd.DataFrame(np.zeros((1, 10_001)))
    with pytest.raises(ValueError, match="the table has 10,001 columns, and 10,000 are read"):
        read_decisions(wide, uniform=True)


def test_a_log_that_matches_nothing_has_no_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "two.csv"
    path.write_text("arm,reward,x\na,2,3\nb,0,1\n")
    assert answer(["evaluate", str(path), "--uniform", "--model", "gaussian"]) == 0
    shown = capsys.readouterr().out
    assert "nan" not in shown
    assert shown.splitlines()[1].split()[2:4] == ["–", "–"]


def test_command_line(
    tmp_path: Path, table: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    path, out = tmp_path / "a.csv", tmp_path / "out.csv"
    table.to_csv(path, index=False)
    call = ["evaluate", str(path), "--arm", "shown", "--reward", "bought", "--model", "bernoulli"]
    call += ["--context", "age"]
    assert answer([*call, "--policy", "TS-UCB(1)"]) == 2
    assert "--uniform" in capsys.readouterr().err
    assert answer([*call, "--uniform", "--propensity", "chance"]) == 2
    assert "how were the arms logged" in capsys.readouterr().err
    assert answer([*call, "--uniform", "--policy", "TS-UCB(1)", "--out", str(out)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split()[:3] == ["log", "policy", "rate"]
    assert shown[1].split()[:2] == ["a.csv", "TS-UCB(1)"]
    written = pd.read_csv(out)
    assert written.policy.tolist() == ["TS-UCB(1)"]
    assert written.kept[0] <= written.matched[0] <= 300
    assert answer([*call, "--uniform", "--policy", "XY"]) == 2
    assert "unknown policy" in capsys.readouterr().err
    assert answer(["evaluate", str(tmp_path), "--policy", "TS"]) == 2
    assert "holds no news log" in capsys.readouterr().err
