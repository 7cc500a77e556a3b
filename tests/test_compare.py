"""Whole configurations on a log: which is better, what a simulation like it does, and pages."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import tsucb
from tsucb.cli.commands import answer
from tsucb.evaluation import compare, like, simulate_like
from tsucb.evaluation.candidates import Candidate
from tsucb.evaluation.compare import LOGGED, verdict
from tsucb.evaluation.settings import read_settings
from tsucb.logs import Decisions, read_decisions


def shop(size: int, seed: int = 0) -> pd.DataFrame:
    """Visitors who like tea when old and milk when young; arms at random."""
    rng = np.random.default_rng(seed)
    arm, age = rng.choice(["tea", "milk"], size=size), rng.integers(5, 60, size=size)
    chance = np.where((arm == "tea") == (age > 30), 0.5, 0.2)
    city = rng.choice(["Rome", "Oslo"], size=size)
    bought = (rng.random(size) < chance).astype(float)
    return pd.DataFrame({"arm": arm, "reward": bought, "age": age, "city": city})


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The decision log of an agent with a floor of a fifth, in a shop as above."""
    folder = tmp_path_factory.mktemp("live") / "log.parquet"
    now = [1.7e9]
    agent = tsucb.Agent(["tea", "milk"], exploration=0.2, seed=0, log=folder, clock=lambda: now[0])
    rng = np.random.default_rng(0)
    for _ in range(3_000):
        now[0] += 60.0
        visitor = {"age": int(rng.integers(5, 60)), "city": str(rng.choice(["Rome", "Oslo"]))}
        decision = agent.choose(visitor)
        chance = 0.5 if (decision.arm == "tea") == (visitor["age"] > 30) else 0.2
        now[0] += 1.0
        agent.reward(decision.id, float(rng.random() < chance))
    agent.log.close()
    return folder


def test_replay_on_a_uniform_log_knows_which_is_better() -> None:
    agents = {"default": {}, "no context": {"model": "BernoulliArms"}}
    found = compare(shop(6_000), agents, uniform=True)
    assert found.method == "replay"
    assert found.kept["default"] == pytest.approx(3_000, abs=200)
    # Choosing by age earns 0.5, ignoring it 0.35; so does the log.
    assert found.values["default"].low < 0.5
    assert found.values["default"].value > 0.45
    assert verdict(found.differences["default", LOGGED]) == "better"
    assert verdict(found.differences["no context", "default"]) == "worse"
    assert verdict(found.differences["no context", LOGGED]) == "cannot tell"
    assert found.values[LOGGED].value == shop(6_000).reward.mean()
    table = found.table()
    assert table.configuration.tolist() == [LOGGED, "default", "no context"]
    assert table.extra[1] == pytest.approx(table.reward[1] - table.reward[0])
    assert found.pairs().verdict.tolist() == ["better", "cannot tell", "worse"]


def test_doubly_robust_on_the_log_of_a_live_agent(logged: Path) -> None:
    agents: dict[str, Any] = {
        "default": {},
        "same": {"exploration": 0.2},
        "no context": {"model": "BernoulliArms"},
        "uniform": {"policy": tsucb.Random(), "model": "BernoulliArms"},
    }
    found = compare(logged, agents)
    assert found.method == "doubly robust"
    # Knowing all: 0.5; the floor costs a fifth of the way to 0.35; uniform earns 0.35.
    assert found.values["default"].low < 0.49 < 0.5 < found.values["default"].high + 0.02
    assert verdict(found.differences["default", LOGGED]) == "better"
    assert verdict(found.differences["uniform", "default"]) == "worse"
    assert verdict(found.differences["no context", "default"]) == "worse"
    uniform = found.values["uniform"]
    assert uniform.low < 0.35 < uniform.high
    # The configuration that logged, asked again: nearly what it did, and about what it earned.
    same = found.differences["same", LOGGED]
    assert same.trusted
    assert -0.01 < same.low < 0 < same.high < 0.01
    assert verdict(same) == "cannot tell"
    assert not found.reasons()
    assert found.values["default"].uncovered == 0.0


def test_nearly_equal_agents_are_not_told_apart() -> None:
    """TS-UCB(10) and TS-UCB(11) on eight logs; `benchmarks/coverage.py` has more."""
    agents = {"ten": {"policy": tsucb.TSUCB(10)}, "eleven": {"policy": tsucb.TSUCB(11)}}
    for seed in range(8):
        log = shop(1_500, seed).drop(columns=["city", "age"])
        found = compare(log, agents, uniform=True, seed=seed)
        assert found.method == "replay"
        assert verdict(found.differences["eleven", "ten"]) == "cannot tell"


def test_rewards_missing_by_arm_are_refused() -> None:
    log = shop(2_000)
    half = log[(log.arm == "milk") | (log.index % 2 == 0)]
    for method in ("replay", "doubly robust"):
        with pytest.raises(ValueError, match=r"arm 'milk' was played .* rewards of some arms"):
            compare(half, {"default": {}}, uniform=True, method=method)
    gaps = log.assign(reward=log.reward.where((log.arm == "milk") | (log.index % 2 == 0)))
    with pytest.raises(ValueError, match="rewards of some arms are missing more often"):
        compare(gaps, {"default": {}}, uniform=True, missing="drop")


def test_a_log_without_exploration_gets_a_reason_and_no_number() -> None:
    log = shop(2_000).assign(chance=1.0)
    log["arm"] = np.where(log.age > 30, "tea", "milk")
    log.loc[:4, "arm"] = ["tea", "milk", "tea", "milk", "tea"]
    agents = {"uniform": {"policy": "Random", "model": "GaussianArms"}}
    found = compare(log, agents, propensity="chance")
    assert found.method == "doubly robust"  # what is certain cannot be replayed
    with pytest.raises(ValueError, match="never tried 50 % of the arms that it offered"):
        compare(log, agents, propensity="chance", method="replay")
    value = found.values["uniform"]
    assert math.isnan(value.value)
    assert value.uncovered == pytest.approx(0.5, abs=0.05)
    assert "cannot speak about" in value.reason
    assert value.bounded  # rewards are 0 or 1, so it is something
    assert verdict(found.differences["uniform", LOGGED]) == "cannot tell"
    euros = log.assign(reward=2.5 * log.reward)
    found = compare(euros, agents, propensity="chance")
    assert not found.values["uniform"].bounded
    assert verdict(found.differences["uniform", LOGGED]) == "the log cannot say"


def test_rewards_are_learned_when_they_came() -> None:
    """Three decisions whose rewards all come after the last one: nothing is known at any."""
    base = read_decisions(
        pd.DataFrame({"arm": ["a", "b", "a"], "reward": [1.0, 0.0, 1.0]}), uniform=True
    )
    at_once = Candidate({}, base, 0)
    assert at_once.known.tolist() == [1, 2, 3]
    from dataclasses import replace

    late = Candidate({}, replace(base, reward_time=np.array([9.0, 1.5, 9.0])), 0)
    assert late.order.tolist() == [1, 0, 2]
    assert late.known.tolist() == [2, 3, 3]


def test_settings_from_files(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(
        'policy = "TS-UCB(1)"\nexploration = 0.1\nforgetting = 0.99\nfeatures = ["age"]\n'
        '[model]\nname = "NIGLinear"\nshape = 3.0\n'
    )
    settings = read_settings(path)
    candidate = Candidate(settings, read_decisions(shop(50), uniform=True), 0)
    assert candidate.policy == tsucb.Exploring(tsucb.TSUCB(1), 0.1)
    assert isinstance(candidate.model, tsucb.Forgetting)
    assert candidate.model.model.shape == 3.0
    assert candidate.events.contexts.shape == (50, 1)
    path.write_text("")
    plain = Candidate(read_settings(path), read_decisions(shop(50), uniform=True), 0)
    assert plain.policy == tsucb.Agent(["a"]).policy
    assert isinstance(plain.model, tsucb.AdaptiveCurves)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy = TS", "is not TOML"),
        ('colour = "red"', "'colour' is no setting of an agent"),
        ('policy = "Best"', "unknown policy 'Best'"),
        ('model = "Oracle"', "unknown model 'Oracle'"),
        ("model = 3", "a model is a name"),
        ("[model]\nshape = 2.0", "a model needs its name"),
    ],
)
def test_bad_settings_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_settings(path)
    with pytest.raises(ValueError, match="there is no file"):
        read_settings(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("agents", "more", "message"),
    [
        ({}, {}, "give the agents to compare"),
        ({LOGGED: {}}, {}, "is the name of what the log holds"),
        ({"a": {"features": ["weight"]}}, {}, "decision 1 of the log has no feature 'weight'"),
        ({"a": {"model": {"name": "NIGLinear", "colour": 1}}}, {}, "NIGLinear: .*colour"),
        ({"a": {"model": "NIGLinear"}}, {}, "numbers"),
        ({"a": {"model": "Linear"}}, {}, "features of every arm"),
        ({"a": {}}, {"method": "magic"}, "method is auto"),
        ({"a": {"model": "HybridLinear"}}, {"method": "replay"}, "does not read features of arms"),
        ({"a": {}}, {"draws": 0}, "draws must be"),
    ],
)
def test_bad_comparisons_are_refused(agents: Any, more: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        compare(shop(60), agents, uniform=True, **more)


def test_bad_logs_are_refused(tmp_path: Path) -> None:
    log = shop(60)
    with pytest.raises(ValueError, match="say how the arms were logged"):
        compare(log, {"a": {}})
    with pytest.raises(ValueError, match="the table holds no decisions"):
        compare(log[:0], {"a": {}}, uniform=True)
    with pytest.raises(ValueError, match="no column 'drink'"):
        compare(log, {"a": {}}, uniform=True, arm="drink")
    with pytest.raises(TypeError, match="a log is a path, a data frame or Decisions"):
        compare([1, 2], {"a": {}})
    gaps = log.assign(reward=[math.nan, *log.reward[1:]])
    with pytest.raises(ValueError, match="1 of 60 decisions have no reward"):
        compare(gaps, {"a": {}}, uniform=True)
    for whole_or_not in (log, gaps):
        with pytest.raises(ValueError, match="missing is a number, 'drop' or 'recent'"):
            compare(whole_or_not, {"a": {}}, uniform=True, missing="maybe")
    menu = log.assign(menu="milk")
    with pytest.raises(ValueError, match="the logged arm was not available"):
        compare(menu, {"a": {}}, uniform=True, available="menu")
    with pytest.raises(ValueError, match="the propensity is not above 0"):
        compare(log.assign(p=0.0), {"a": {}}, propensity="p")


def test_arms_that_were_not_offered_are_not_chosen() -> None:
    log = shop(400).assign(menu=["tea|milk", "tea"] * 200)
    log.loc[log.menu == "tea", "arm"] = "tea"
    read = read_decisions(log, uniform=True, available="menu")
    chosen = Candidate({}, read, 0).choices(5)
    assert chosen.sum(axis=1) == pytest.approx(1)
    assert (chosen[~read.offered] == 0).all()


def test_a_bandit_like_a_log_has_its_contexts_and_its_rewards() -> None:
    read = read_decisions(shop(3_000), uniform=True)
    bandit = like(read)
    assert bandit.clicks
    rng = np.random.default_rng(0)
    world = bandit.begin(rng)
    means = np.array([bandit.advance(world, t + 1, rng)[1].copy() for t in range(4_000)])
    # Both arms pay 0.35 on the average; age decides which pays more.
    assert means.mean(axis=0) == pytest.approx([0.35, 0.35], abs=0.05)
    contexts = {tuple(row) for row in bandit.contexts.tolist()}
    assert tuple(world.context.tolist()) in contexts
    pays = {bandit.reward(world, 0) for _ in range(5)}
    assert pays <= {0.0, 1.0}
    euros = read_decisions(shop(500).assign(reward=lambda t: 3 * t.reward + 1), uniform=True)
    assert not like(euros).clicks
    noise = like(euros).noise  # of each arm, 3 times that of the clicks
    assert ((noise > 1.0) & (noise < 1.6)).all()


def test_simulating_like_a_log_ranks_configurations() -> None:
    read = read_decisions(shop(3_000), uniform=True)
    found = simulate_like(
        read, {"default": {}, "no context": {"model": "BernoulliArms"}}, horizon=1_000, runs=10
    )
    table = found.table().set_index("configuration")
    assert table.regret["default"] < 0.6 * table.regret["no context"]
    assert table.regret["no context"] < 1.1 * table.regret["at random"]
    assert table.settled["default"] < 1_000
    assert math.isnan(table.settled["at random"])


def test_evaluate_compares_agents(
    tmp_path: Path, logged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.toml").write_text("")
    (tmp_path / "b.toml").write_text('policy = "Random"\nmodel = "BernoulliArms"')
    page, out = tmp_path / "new" / "page.html", tmp_path / "out.csv"
    call = ["evaluate", str(logged), "--agent", str(tmp_path / "a.toml")]
    call += ["--agent", str(tmp_path / "b.toml"), "--report", str(page), "--out", str(out)]
    assert answer(call) == 0
    shown = capsys.readouterr().out
    assert "3,000 decisions, by doubly robust" in shown
    assert re.search(r"b against a: -0\.\d+ .*worse", shown)
    assert pd.read_csv(out).configuration.tolist() == [LOGGED, "a", "b"]
    text = page.read_text()
    assert "Which is better?" in text
    assert "prefers-color-scheme: dark" in text
    assert "Intervals are about what a configuration would choose" in shown
    assert answer([*call, "--uniform"]) == 2
    assert "has its own probabilities" in capsys.readouterr().err
    for between, said in (("0,0.5", "between 0 and 0.5, but the log"), ("0", "takes two numbers")):
        assert answer([*call, "--rewards-between", between]) == 2
        assert said in capsys.readouterr().err
    shop(1_500).to_csv(tmp_path / "shop.csv", index=False)
    table = ["evaluate", str(tmp_path / "shop.csv"), "--agent", str(tmp_path / "a.toml")]
    assert answer(table) == 2
    assert "how were the arms logged" in capsys.readouterr().err
    assert answer([*table, "--uniform"]) == 0
    assert "by replay (kept: a " in capsys.readouterr().out
    assert answer(["evaluate", str(tmp_path / "shop.csv"), "--uniform", "--missing", "0"]) == 2
    assert "are for --agent" in capsys.readouterr().err


def test_the_default_of_evaluate_is_the_agents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop(800).drop(columns="city").to_csv(tmp_path / "shop.csv", index=False)
    assert answer(["evaluate", str(tmp_path / "shop.csv"), "--uniform"]) == 0
    rate = float(capsys.readouterr().out.splitlines()[1].split()[2])
    read = read_decisions(shop(800).drop(columns="city"), uniform=True)
    found = compare(read, {"default": {}}, method="replay")
    assert rate == pytest.approx(found.values["default"].value, abs=1e-5)


def test_simulate_like_on_the_command_line(
    tmp_path: Path, logged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "regret.svg"
    call = ["simulate", "--like", str(logged), "--horizon", "300", "--runs", "3", "--out", str(out)]
    assert answer([*call, "--policies", "TS-UCB(100),Random"]) == 0
    shown = capsys.readouterr().out
    assert "settled after" in shown
    assert "arms that the log rarely played are mostly" in " ".join(shown.split())
    assert out.read_text().startswith("<?xml")
    for wrong, said in [
        (["simulate", "linear", "--like", str(logged)], "takes the place of an environment"),
        (["simulate", "linear", "--agent", "a.toml"], "are for --like"),
        (["simulate", "--like", str(tmp_path / "none.csv")], "there is no file"),
    ]:
        assert answer(wrong) == 2
        assert said in capsys.readouterr().err


def test_the_page_of_a_live_agent(tmp_path: Path, logged: Path) -> None:
    agent = tsucb.Agent(["tea", "milk"], log=logged)
    agent.report(tmp_path / "live.html")
    text = (tmp_path / "live.html").read_text()
    for heading in (
        "Reward over time",
        "Arms over time",
        "Exploration over time",
        "Is the belief right?",
        "How late rewards come",
        "Late and missing rewards",
        "Drift of contexts",
    ):
        assert heading in text
    lift = re.search(r"<b>\+0\.\d+ \(\+0\.\d+ to \+0\.\d+\)</b><span>more than choosing", text)
    assert lift, "a real lift over random choice"
    inside = int(re.search(r"(\d+) % of \d+ lie inside; 90 % should", text)[1])
    assert inside >= 80
    empty = tsucb.Agent(["a"], exploration=0.1, log=tmp_path / "new")
    empty.choose()
    with pytest.raises(ValueError, match="holds 1 decisions; a report needs at least 20"):
        empty.report(tmp_path / "none.html")
    assert not (tmp_path / "none.html").exists()


def test_the_page_tells_drift_and_a_wrong_belief(tmp_path: Path) -> None:
    """A log with contexts that change and rewards that the belief does not expect."""
    folder, now = tmp_path / "log", [0.0]
    model = tsucb.ContextualLinear(features=1, noise=0.01, prior_covariance=1e-6)
    agent = tsucb.Agent(["a", "b"], model=model, exploration=0.2, seed=0, log=folder,
                        clock=lambda: now[0])  # fmt: skip
    rng = np.random.default_rng(0)
    for i in range(600):
        now[0] += 10.0
        decision = agent.choose([float(i > 300)])
        agent.reward(decision.id, 5.0 + rng.normal())
    agent.report(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "The belief is too sure" in text
    assert "Contexts have changed between the first and the last quarter: x0" in text


def test_decisions_read_from_all_kinds_of_files(tmp_path: Path, logged: Path) -> None:
    read = read_decisions(logged)
    assert isinstance(read, Decisions)
    assert len(read) == 3_000
    assert read.probabilities is not None
    assert read.probabilities.sum(axis=1) == pytest.approx(1)
    [part] = logged.glob("*.parquet")
    assert read_decisions(part).arm.tolist() == read.arm.tolist()
