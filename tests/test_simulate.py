"""The simulation loop: paired, reproducible, interruptible, and open to users' classes."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import tsucb
from tsucb.numeric.streams import POLICY, WORLD, stream
from tsucb.step import first_pull, new_player

BANDIT = tsucb.ContextualLinearBandit(arms=4, features=3, noise=0.5)
POLICIES = [tsucb.Thompson(), tsucb.TSUCB(1), tsucb.Greedy()]


def played(policies=POLICIES, runs=5, workers=None, environment=BANDIT, model=None, **options):
    options = {"horizon": 60, "progress": False} | options
    model = environment.model() if model is None else model
    return tsucb.simulate(environment, model, policies, runs=runs, workers=workers, **options)


class PlainThompson:
    """Thompson sampling as a user would write it."""

    def choose(self, belief, rng):
        return int(np.argmax(rng.normal(belief.mean, belief.std)))


class PlainModel:
    """Gaussian arms as a user would write them."""

    def start(self, arms, rng):
        return {"sum": np.zeros(arms), "count": np.zeros(arms)}

    def belief(self, state, context, arms, *, step, rng):
        count = state["count"][arms]
        return tsucb.GaussianBelief(state["sum"][arms] / (1 + count), 1 / np.sqrt(1 + count))

    def update(self, state, context, arm, reward):
        state["sum"][arm] += reward
        state["count"][arm] += 1


class PlainEnvironment:
    """Three fixed arms, the last of which is sometimes missing."""

    arms = 3

    def begin(self, rng):
        return {}

    def advance(self, world, step, rng):
        world["noise"] = rng.normal()
        available = np.arange(2 if rng.random() < 0.3 else 3)
        return None, np.array([0.0, 1.0, 2.0]), available

    def reward(self, world, arm):
        return arm + world["noise"]


def test_the_number_of_workers_changes_nothing():
    np.testing.assert_array_equal(played(workers=1).regret, played(workers=3).regret)


def test_a_run_alone_equals_that_run_among_others():
    whole, part = played(runs=6), played(runs=range(3, 5))
    np.testing.assert_array_equal(whole.regret[:, 3:5], part.regret)
    assert part.runs["run"].unique().tolist() == [3, 4]


def test_a_policy_alone_equals_that_policy_among_others():
    np.testing.assert_array_equal(played().regret[1], played([tsucb.TSUCB(1)]).regret[0])


def test_seeds_matter():
    assert not np.array_equal(played(seed=0).regret, played(seed=1).regret)


def test_streams_are_apart_from_each_other_and_from_the_users():
    def first(rng):
        return int(rng.integers(2**63))

    seeds = [0, 1, 2**32, 2**32 + 1, 2**64]
    ours = [
        first(stream(seed, run, purpose))
        for seed in seeds
        for run in (0, 1, 2)
        for purpose in (WORLD, POLICY)
    ]
    assert len(set(ours)) == len(ours)
    keys = [*seeds, *((seed, 0, 0) for seed in seeds), *((seed, 1, 0) for seed in seeds)]
    assert not set(ours) & {first(np.random.default_rng(key)) for key in keys}


def test_policies_meet_the_same_world():
    """Two policies that play alike have the same regret to the last bit."""
    twins = played({"one": tsucb.Greedy(), "two": tsucb.Greedy()})
    np.testing.assert_array_equal(twins.regret[0], twins.regret[1])
    # With one arm the regret is 0 for any noise.
    alone = tsucb.ContextualLinearBandit(arms=1, features=3)
    assert played(environment=alone).regret.max() == 0


@pytest.mark.parametrize(
    ("environment", "model"),
    [
        (tsucb.KArmedBandit(4), tsucb.BernoulliArms()),
        (tsucb.KArmedBandit(4, tsucb.GaussianArms()), tsucb.GaussianArms()),
        (tsucb.LinearBandit(4, 3, redraw=True, availability=0.5), tsucb.Linear(3)),
        (tsucb.WheelBandit(0.5, availability=0.7), tsucb.NIGLinear(2)),
    ],
    ids=lambda thing: type(thing).__name__,
)
def test_every_environment_runs_and_learning_pays(environment, model):
    result = played(
        [tsucb.TSUCB(1), tsucb.Random()], runs=8, environment=environment, model=model, horizon=300
    )
    assert (np.diff(result.regret, axis=2) >= -1e-9).all()
    assert result.final("TS-UCB(1)").mean() < result.final("Random").mean()


def test_every_arm_is_pulled_once_first():
    environment, model = tsucb.KArmedBandit(7), tsucb.BernoulliArms()
    result = played([tsucb.TSUCB(1)], 1, environment=environment, model=model, horizon=7,
                    keep_arms=True)  # fmt: skip
    assert result.arms.ravel().tolist() == list(range(7))
    player = new_player(model, tsucb.TSUCB(1), 7, seed=0, run=0)
    available, rng = np.array([2, 4]), np.random.default_rng(0)
    player.chosen[2] = 1
    choice = first_pull(player, available, rng)
    assert (choice.arm, choice.favourite) == (1, 1)
    assert np.isnan(choice.target)
    player.chosen[:] = 1
    assert first_pull(player, available, rng).arm < 0


def test_unit_norm_arms_and_availability():
    rng = np.random.default_rng(0)
    bandit = tsucb.LinearBandit(6, 4, availability=0.5)
    world = bandit.begin(rng)
    sizes = []
    for step in range(1, 200):
        context, means, available = bandit.advance(world, step, rng)
        np.testing.assert_allclose((context**2).sum(axis=1), 1)
        np.testing.assert_allclose(means, context @ world.parameters[0])
        assert available.size >= 1
        assert (np.diff(available) > 0).all()
        sizes.append(available.size)
    assert abs(np.mean(sizes) - 3.05) < 0.5  # binomial(6, ½) given that it is not 0; 5 s.e. ≈ 0.43


def test_the_wheel():
    rng, wheel = np.random.default_rng(0), tsucb.WheelBandit(0.9)
    world, prizes = wheel.begin(rng), 0
    for step in range(1, 4001):
        context, means, _ = wheel.advance(world, step, rng)
        outside = (context**2).sum() > 0.81
        assert (means.max() == 50) == outside
        prizes += outside
    # 1 − δ² of the disk lies outside: 0.19 ± 5 standard errors (false alarm 6e-7).
    assert abs(prizes / 4000 - 0.19) < 5 * np.sqrt(0.19 * 0.81 / 4000)


# Classes of users.


def test_a_plain_policy_runs_in_the_same_loop_and_has_the_right_regret():
    mixed = played({"TS": tsucb.Thompson(), "mine": PlainThompson()}, runs=40, horizon=200)
    one, two = mixed.final("TS"), mixed.final("mine")
    # Same law, paired worlds: within 4.5 standard errors of the difference (false alarm 7e-6).
    difference = one - two
    assert abs(difference.mean()) < 4.5 * difference.std(ddof=1) / np.sqrt(40)


def test_plain_model_and_environment():
    result = played(
        [tsucb.Greedy(), PlainThompson()],
        environment=PlainEnvironment(),
        model=PlainModel(),
        horizon=200,
    )
    assert result.policies == ("Greedy", "PlainThompson")
    assert 0 < result.final("PlainThompson").mean() < 200


# Results.


def test_summary_and_tables():
    result = played(runs=10, checkpoints=[10, 60])
    assert result.runs.columns.tolist() == ["policy", "run", "step", "regret"]
    assert len(result.runs) == 3 * 10 * 2
    summary = result.summary(baseline="TS")
    final = result.final("Greedy")
    row = summary.loc["Greedy"]
    assert row["regret_mean"] == pytest.approx(final.mean())
    assert row["regret_median"] == pytest.approx(np.median(final))
    assert row["percent"] == pytest.approx((100 * final / result.final("TS")).mean())
    assert row["percent_low"] < row["percent"] < row["percent_high"]
    assert summary.loc["TS", "percent"] == 100
    from scipy.stats import t

    half = t.ppf(0.975, 9) * final.std(ddof=1) / np.sqrt(10)
    assert row["ci95_high"] - row["regret_mean"] == pytest.approx(half)


def test_plot_has_a_line_and_a_band_for_every_policy():
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    axes = played().plot()
    assert [line.get_label() for line in axes.get_lines()] == ["TS", "TS-UCB(1)", "Greedy"]
    assert len(axes.collections) == 3
    plt.close(axes.figure)


def test_progress_counts_every_step():
    steps = []
    played(progress=steps.append)
    assert sum(steps) == 3 * 5 * 60


def test_ctrl_c_stops_cleanly():
    script = textwrap.dedent("""
        import signal, tsucb
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
        bandit = tsucb.ContextualLinearBandit(arms=4, features=3)
        tsucb.simulate(bandit, bandit.model(), [tsucb.TSUCB(1)], horizon=60, runs=1)
        print("ready", flush=True)
        try:
            tsucb.simulate(bandit, bandit.model(), [tsucb.TSUCB(1)], horizon=10**9, runs=4)
        except KeyboardInterrupt:
            print("stopped", flush=True)
    """)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            time.sleep(0.5)
            os.kill(child.pid, signal.SIGINT)
            assert child.communicate(timeout=60)[0] == "stopped\n"
        finally:
            child.kill()
    assert child.returncode == 0


def test_fewer_steps_than_checkpoints():
    result = played(horizon=7)
    assert result.checkpoints.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert np.isfinite(result.regret).all()


# Bad input.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon must"),
        ({"runs": 0}, "runs must"),
        ({"runs": [1, 1]}, "runs must"),
        ({"seed": -1}, "seed must"),
        ({"workers": 0}, "workers must"),
        ({"policies": []}, "no policy"),
        ({"policies": [tsucb.OFUL(), tsucb.ChiSquaredUCB()]}, "two policies are called 'UCB'"),
        ({"checkpoints": [0]}, "checkpoints must"),
        ({"checkpoints": 0}, "at least one checkpoint"),
        ({"model": tsucb.ContextualLinear(5)}, "expects"),
        (
            {"environment": tsucb.KArmedBandit(90), "model": tsucb.BernoulliArms()},
            "shorter than the 90 steps",
        ),
    ],
)
def test_bad_input_is_refused_with_a_sentence(options, message):
    with pytest.raises(ValueError, match=message):
        played(**options)


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ([tsucb.Thompson], "must be an instance"),
        ([3], r"a method choose\(belief, rng\), such as tsucb.TSUCB\(1\), but it is 3"),
        (tsucb.Thompson(), "a list"),
    ],
)
def test_things_that_are_no_policies(policies, message):
    with pytest.raises(TypeError, match=message):
        played(policies)


def test_things_that_are_no_models_or_environments():
    bandit = tsucb.ContextualLinearBandit(2, 2)
    with pytest.raises(TypeError, match="model must be an instance"):
        tsucb.simulate(bandit, tsucb.BernoulliArms, [tsucb.Thompson()], horizon=9, runs=1)
    with pytest.raises(TypeError, match="environment must be an instance"):
        tsucb.simulate(None, tsucb.BernoulliArms(), [tsucb.Thompson()], horizon=9, runs=1)


def test_an_unknown_baseline():
    with pytest.raises(ValueError, match="there is no policy 'UCB'"):
        played().summary(baseline="UCB")
