"""What an agent must survive: threads, processes, evictions, logs, files, merges, long runs.

    python tests/stress.py            every trial for a minute
    python tests/stress.py 10 threads merges

Each trial repeats a round with another seed until its time is over, and prints how many rounds and
how many calls it made. A round that fails raises, with its seed.
"""

import asyncio
import copy
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

import tsucb
from tsucb.agent.machine import CLOSED, DECISIONS
from tsucb.files import ASIDE

ARMS = ["a", "b", "c"]
CITIES = ["Rome", "Oslo", None, "Bonn"]


def context(rng):
    return {"x": float(np.round(rng.normal(), 2)), "city": CITIES[rng.integers(4)]}


def check(agent, seed):
    """Check that an agent can be saved and loaded, and then knows the same."""
    again = tsucb.Agent.from_bytes(agent.to_bytes())
    assert again.digest() == agent.digest(), seed
    return again


def threads(seed, folder, count=8, calls=150):
    """Let threads share an agent: every reward is learned exactly once."""
    agent = tsucb.Agent(ARMS, seed=seed, model=tsucb.ContextualLinear(2), max_open=10**6)
    learned, lock, errors = [], threading.Lock(), []

    def work(number):
        rng, mine = np.random.default_rng([seed, number]), []
        try:
            for _ in range(calls):
                x, what = rng.normal(size=2), rng.integers(9)
                if what < 4:
                    decision = agent.choose(x)
                    mine.append((decision.id, x, decision.arm))
                elif what == 4:
                    for each, row in zip(
                        agent.choose_many(np.array([x, -x])), (x, -x), strict=True
                    ):
                        mine.append((each.id, row, each.arm))
                elif what == 5:
                    arm, value = ARMS[rng.integers(3)], float(rng.normal())
                    agent.update(x, arm, value)
                    with lock:
                        learned.append((x, arm, value))
                elif what == 6:
                    agent.save(folder / f"{number}")
                    tsucb.Agent.load(folder / f"{number}")
                elif what == 7:
                    agent.arms_summary(), agent.dropped, agent.estimate(x), agent.propose(x)
                elif mine:
                    some, mine = mine[:5], mine[5:]
                    values = rng.normal(size=len(some)).tolist()
                    agent.reward_many([id for id, _, _ in some], values)
                    with lock:
                        learned.extend(
                            (x, arm, v) for (_, x, arm), v in zip(some, values, strict=True)
                        )
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for each in running:
        each.start()
    for each in running:
        each.join()
    assert not errors, (seed, errors)
    check(agent, seed)
    oracle = tsucb.Agent(ARMS, seed=0, model=tsucb.ContextualLinear(2))
    oracle.fit(tuple(map(list, zip(*learned, strict=True))))
    known, own = agent._learner.known, oracle._learner.known
    assert known.books.pulls.sum() == len(learned), seed
    for x in np.eye(2):
        found, expected = agent.estimate(x), oracle.estimate(x)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(found.std, expected.std, rtol=1e-8)
    np.testing.assert_allclose(known.books.totals, own.books.totals, rtol=1e-10, atol=1e-10)
    return count * calls


class Interrupted(Exception):
    pass


def evictions(seed, folder, calls=150):
    """Send real signals while arms come and are evicted: counts stay right, the agent savable."""
    rng = np.random.default_rng(seed)
    agent = tsucb.Agent(seed=seed, most_arms=4, max_open=20)
    ids, interrupts = [], 0

    def ring(number, frame):
        raise Interrupted

    def one():
        what = rng.integers(7)
        offer = {f"n{i}": {"p": float(i % 3)} for i in rng.permutation(12)[:3]}
        if what < 3:
            ids.append(agent.choose(context(rng), offer).id)
        elif what == 3:
            ids.append(agent.rank(context(rng), 2, offer).id)
        elif what == 4:
            ids.extend(agent.choose_many([context(rng), context(rng)], offer).ids)
        elif what == 5:
            agent.update(context(rng), f"n{rng.integers(12)}", 1.0, {"p": 1.0})
        elif ids:
            id = ids.pop(rng.integers(len(ids)))
            open = agent._open.all()
            several = id in open and isinstance(open[id][2], tuple)
            agent.reward(id, [1.0, None] if several else float(rng.normal()))

    one()
    before = signal.signal(signal.SIGALRM, ring)
    try:
        for _ in range(calls):
            try:
                signal.setitimer(signal.ITIMER_REAL, float(10 ** rng.uniform(-5, -3)))
                try:
                    one()
                except tsucb.UnknownDecision:
                    pass
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupts += 1
            check(agent, seed)
            counts = agent._learner.known.books.counts
            assert counts[DECISIONS] == counts[CLOSED] + agent._open.places() + agent.dropped, seed
            assert len(agent.arms) <= 4 + 3, seed
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return calls


def fitted(agent, seed, count):
    """Return an agent fitted in another process; a module-level function, for `spawn`."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        agent.update(context(rng), ARMS[rng.integers(3)], float(rng.normal()))
    return agent


def processes(seed, folder, count=40):
    """Spawned processes that learn apart and are merged; tasks of asyncio that share an agent."""
    base = fitted(tsucb.Agent(ARMS, seed=seed), seed, 10)
    at_once = copy.copy(base)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        parts = pool.starmap(fitted, [(base, seed + n, count) for n in (1, 2)])
    for n in (1, 2):
        fitted(at_once, seed + n, count)
    merged = tsucb.merge(*parts, base)
    at_once = tsucb.merge(at_once, base, base)  # which learns its prior again, too
    found, expected = (a.estimate({"x": 0.5, "city": "Rome"}) for a in (merged, at_once))
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6, atol=1e-8)

    async def visit(number):
        decision = await asyncio.to_thread(merged.choose, {"x": float(number)})
        await asyncio.sleep(0)
        return merged.reward(decision.id, 1.0)

    async def visits():
        return await asyncio.gather(*(visit(n) for n in range(count)))

    assert all(asyncio.run(visits())), seed
    assert merged.open_decisions == 0
    check(merged, seed)
    return 5 * count


def visited(folder, seed, count):
    """Write to a log that other processes write to as well."""
    agent = tsucb.Agent(ARMS, seed=seed, exploration=0.1, log=folder)
    for n in range(count):
        agent.reward(agent.choose({"x": float(n)}).id, 1.0)
    agent.log.close()


def logs(seed, folder, count=60):
    """Let several processes share one folder of logs: every row is there."""
    where = Path(tempfile.mkdtemp(dir=folder))
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        pool.starmap(visited, [(str(where), seed + n, count) for n in range(3)])
    rows = pd.concat([pd.read_parquet(file) for file in where.glob("*.parquet")])
    assert (rows["kind"] == "decision").sum() == (rows["kind"] == "reward").sum() == 3 * count
    assert not list(where.glob("*.journal")), seed
    return 6 * count


def merges(seed, folder, steps=25):
    """Merge agents that learned apart: the result believes what one agent with all data does."""
    rng = np.random.default_rng(seed)
    kinds = [
        {}, {"features": 2}, {"model": tsucb.BernoulliArms()}, {"model": tsucb.NIGLinear(2)},
        {"model": tsucb.ContextualLinear(2)}, {"model": tsucb.GaussianArms()},
    ]  # fmt: skip
    settings = kinds[seed % len(kinds)]

    def some():
        if settings.get("model") in (tsucb.BernoulliArms(), tsucb.GaussianArms()):
            return None
        return rng.normal(size=2) if settings else context(rng)

    base = tsucb.Agent(ARMS, seed=seed, **settings)
    base.update(some(), "a", 1.0)
    one, two, whole = copy.copy(base), copy.copy(base), copy.copy(base)
    two.reseed(seed + 1)
    opened = []
    for _ in range(steps):
        agent, x = (one, two)[rng.integers(2)], some()
        arm, value = ARMS[rng.integers(3)], float(rng.integers(2))
        agent.update(x, arm, value)
        whole.update(x, arm, value)
        if rng.random() < 0.2:
            opened.append(agent.choose(some()).id)
    merged = tsucb.merge(one, two, base)
    assert merged.open_decisions == len(opened), seed
    check(merged, seed)
    x = some()
    # A model that learns its prior does so when it is merged, too.
    found, expected = merged.estimate(x), tsucb.merge(whole, base, base).estimate(x)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-6, atol=1e-9)
    if type(merged.model) is not tsucb.NIGLinear:  # which draws its noise
        np.testing.assert_allclose(found.std, expected.std, rtol=1e-6)
    for id in opened:
        assert merged.reward(id, 1.0)
    check(merged, seed)
    return 2 * steps


def parquet(seed, folder, rows=300):
    """Histories in Parquet files with gaps, categories and odd types; bad ones change nothing."""
    rng = np.random.default_rng(seed)
    where = Path(tempfile.mkdtemp(dir=folder))
    table = pd.DataFrame(
        {
            "x": np.where(rng.random(rows) < 0.1, np.nan, rng.normal(size=rows)),
            "n": rng.integers(5, size=rows).astype(np.int8),
            "flag": rng.random(rows) < 0.5,
            "city": pd.Categorical(rng.choice(["Rome", "Oslo"], rows)),
            "arm": rng.choice(ARMS, rows),
            "reward": rng.normal(size=rows).astype(np.float32),
        }
    )
    for n in range(3):
        table.iloc[n * rows // 3 : (n + 1) * rows // 3].to_parquet(where / f"{n}.parquet")
    by_files, by_table = tsucb.Agent(ARMS, seed=0), tsucb.Agent(ARMS, seed=0)
    by_files.fit(where)
    by_table.fit(table)
    np.testing.assert_array_equal(by_files.arms_summary(), by_table.arms_summary())
    check(by_files, seed)
    digest = by_files.digest()
    wrong = [
        table.assign(arm="nobody"), table.assign(reward=np.inf), table.drop(columns="reward"),
        table.assign(reward="much"),
    ]  # fmt: skip
    for bad in wrong:
        bad.to_parquet(where / "9.parquet")
        try:
            by_files.fit(where)
        except (ValueError, TypeError):
            assert by_files.digest() == digest, seed
        else:
            raise AssertionError(f"seed {seed}: a bad history was accepted")
    (where / "9.parquet").write_bytes(rng.bytes(200))
    try:
        by_files.fit(where)
    except ValueError:
        assert by_files.digest() == digest, seed
    return 2 * rows


def many_arms(seed, folder, arms=10_000):
    """Play with very many arms; some leave and others come."""
    agent = tsucb.Agent(range(arms), seed=seed, model=tsucb.BernoulliArms())
    for n in range(50):
        agent.reward(agent.choose().id, float(n % 2))
    for n in range(20):
        agent.remove_arm(7 * n)
        agent.add_arm(f"new {n}")
    assert agent.reward(agent.choose().id, 1.0)
    assert len(agent.arms) == arms
    check(agent, seed)
    coming = tsucb.Agent(seed=seed, most_arms=arms // 10)
    for first in range(0, 3 * arms // 10, 100):
        decision = coming.choose(None, {f"n{i}": {"p": i % 7} for i in range(first, first + 100)})
        coming.reward(decision.id, 1.0)
    coming.fit((None, [f"m{i}" for i in range(arms // 5)], None, [1.0] * (arms // 5)))
    assert len(coming.arms) <= arms // 10
    check(coming, seed)
    return 200 + arms // 5


def long_runs(seed, folder, steps=3_000):
    """Long lives of models with no closed form, at the edge of what they take."""
    rng = np.random.default_rng(seed)
    clicks = tsucb.Agent(ARMS, model=tsucb.LogisticArms(2), seed=seed)
    counts = tsucb.Agent(ARMS, model=tsucb.PoissonArms(), seed=seed, forgetting=0.999)
    scale = float(10.0 ** rng.uniform(-6, 6))
    for step in range(steps):
        x = scale * rng.normal(size=2)
        clicks.reward(clicks.choose(x).id, float(rng.random() < 0.02))
        counts.reward(counts.choose().id, float(rng.poisson(1e4 if step % 97 == 0 else 0.01)))
    for agent in (clicks, counts):
        again = check(agent, seed)
        seen = again.estimate(x if agent is clicks else None)
        assert np.isfinite([seen.mean, seen.std]).all(), seed
        assert (seen.std > 0).all(), seed
    return 2 * steps


def precision(seed, folder, rows=20_000):
    """Compare many rows with a solution in extended precision."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(rows, 3)) * [1.0, 100.0, 0.01], rng.normal(size=rows) + 5.0
    model = tsucb.ContextualLinear(3)
    agent = tsucb.Agent(["a"], model=model, seed=0)
    agent.fit((x, ["a"] * rows, y))
    wide = x.astype(np.longdouble)
    scatter, sums = wide.T @ wide, wide.T @ y.astype(np.longdouble)
    state = agent._learner.known.state
    prior = model.start(1)
    mean, std = model.coefficients(prior, 0)
    noise = np.longdouble(model.noise) ** 2
    matrix = scatter / noise + np.diag(1 / np.asarray(std, np.longdouble) ** 2)
    right = sums / noise + np.asarray(mean) / np.asarray(std, np.longdouble) ** 2
    expected = np.linalg.solve(matrix.astype(float), right.astype(float))
    for _ in range(3):  # refine the solution with residuals in extended precision
        rest = right - matrix @ expected.astype(np.longdouble)
        expected = expected + np.linalg.solve(matrix.astype(float), rest.astype(float))
    found, _ = model.coefficients(state, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-7)
    return rows


COMMANDS = [
    ["simulate", "linear", "--runs", "400", "--horizon", "4000"],
    ["reproduce", "figure1"],
    ["warm"],
    ["evaluate", "log.csv", "--uniform", "--policy=TS,IDS(1000)", "--out=table.csv"],
    ["evaluate", "log.csv", "--uniform", "--agent=a.toml", "--report=page.html"],
    ["data", "make-news", "news", "--days=20", "--workers=2"],
    ["data", "check"],
    ["serve", "--demo", "--data=loops", "--port=0"],
]


def commands(seed, folder):
    """Press Ctrl-C in the middle of commands: they end with one line and no traceback."""
    rng = np.random.default_rng(seed)
    where = tempfile.mkdtemp(dir=folder)
    # A shell's background jobs ignore Ctrl-C, and so would what they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rows = "".join(f"{'abc'[i % 3]},{i % 2},{i % 5}\n" for i in range(100_000))
    Path(where, "log.csv").write_text("arm,reward,x\n" + rows)
    Path(where, "a.toml").write_text('policy = "TS"')
    # Before our own code runs, nobody can answer.
    begin = "from tsucb.cli import main; print(flush=True); main()"
    command = [sys.executable, "-c", begin, *COMMANDS[seed % len(COMMANDS)]]
    running = subprocess.Popen(
        command, cwd=where, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "TSUCB_CACHE": f"{folder}/cache"},
    )  # fmt: skip
    running.stdout.readline()
    time.sleep(float(rng.uniform(0.0, 8.0)))
    running.send_signal(signal.SIGINT)
    try:
        output = running.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        running.kill()
        raise AssertionError(f"seed {seed}: {command} did not end") from None
    assert "Traceback" not in output, (seed, command, output[-2000:])
    assert not list(Path(where).rglob(f"*{ASIDE}")), (seed, command)
    return 1


TRIALS = (threads, evictions, merges, parquet, many_arms, long_runs, precision, processes, logs,
          commands)  # fmt: skip


def repeated(trial, seconds, report=print):
    """Run rounds of a trial with seeds 0, 1, … for some seconds; return rounds and calls."""
    begun, rounds, calls = time.perf_counter(), 0, 0
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        while not rounds or time.perf_counter() - begun < seconds:
            calls += trial(rounds, Path(folder))
            rounds += 1
    report(f"{trial.__name__:10} {rounds:7,} rounds {calls:10,} calls: all held", flush=True)
    return rounds, calls


if __name__ == "__main__":
    names = sys.argv[2:] or [trial.__name__ for trial in TRIALS]
    for trial in TRIALS:
        if trial.__name__ in names:
            repeated(trial, float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
