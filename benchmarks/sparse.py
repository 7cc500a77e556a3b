# mypy: disable-error-code="import-not-found,import-untyped"
"""Large sparse contexts: hashed columns beside Vowpal Wabbit, and whether intervals cover.

    python -m benchmarks.sparse play --seeds 4 --out docs/results/sparse.csv
    python -m benchmarks.sparse coverage --seeds 4 --out docs/results/sparse-coverage.csv

`play`: adult (13 features, 14 arms) and census (67 features, 9 arms) as `benchmarks.defaults` plays
them, a reward of 1 for the right label, but with contexts as dictionaries of words and numbers; and
`made`, 13 made-up features of 50 categories and ten arms: with all pairs, 91 columns. Everybody
meets the same rows. Reported: mean reward, and microseconds of processor time a decision with its
update takes, encoding included; the first 100, in which code is compiled, are not counted.

`coverage`: rewards that are linear in categorical features, with noise; the share of 90 % intervals
that cover the true mean, and errors and widths relative to those of the exact posterior.
"""

import argparse
import json
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

WARM = 100
MARKS = (1_000, 3_000, 10_000)
WABBIT = "--cb_explore_adf -q UA"
PAIRS = "--interactions UUA"

Player = tuple[Callable[[Any], int], Callable[[float], None]]  # choose(context), learn(reward)


def tsucb_player(options: str, arms: int, seed: int) -> Player:
    import tsucb

    model = {
        "": None,
        "hashed": tsucb.HashedLinear(),
        "pairs": tsucb.HashedLinear(crossed=True),
    }[options]
    agent = tsucb.Agent(list(range(arms)), model=model, seed=seed)
    last: list[str] = [""]

    def choose(context: Any) -> int:
        decision = agent.choose(context)
        last[0] = decision.id
        return int(decision.arm)

    def learn(reward: float) -> None:
        agent.reward(last[0], reward)

    return choose, learn


def wabbit_player(options: str, arms: int, seed: int) -> Player:
    import vowpalwabbit

    kind = vowpalwabbit.LabelType.CONTEXTUAL_BANDIT
    workspace = vowpalwabbit.Workspace(f"{options} --quiet --random_seed {seed}")
    rng, actions = random.Random(seed), [f"|Action arm={arm}" for arm in range(arms)]
    last: list[Any] = []

    def choose(context: Any) -> int:
        words = (f"{k}={v}" if type(v) is str else f"{k}:{v}" for k, v in context.items())
        lines = ["shared |User " + " ".join(words).replace("|", "/"), *actions]
        chances = workspace.predict("\n".join(lines))
        arm = rng.choices(range(arms), chances)[0]
        last[:] = lines, chances, arm
        return arm

    def learn(reward: float) -> None:
        lines, chances, arm = last
        lines[arm + 1] = f"0:{-reward}:{chances[arm]} {lines[arm + 1]}"
        examples = workspace.parse("\n".join(lines), kind)
        workspace.learn(examples)
        workspace.finish_example(examples)

    return choose, learn


PLAYERS: dict[str, tuple[str, Callable[[str, int, int], Player], str]] = {
    "tsucb, all pairs": ("tsucb", tsucb_player, "pairs"),
    "tsucb, hashed": ("tsucb", tsucb_player, "hashed"),
    "tsucb, default": ("tsucb", tsucb_player, ""),
    "VW SquareCB, all pairs": ("vowpalwabbit", wabbit_player, f"{WABBIT} {PAIRS} --squarecb"),
    "VW ε-greedy, all pairs": ("vowpalwabbit", wabbit_player, f"{WABBIT} {PAIRS} --epsilon 0.2"),
    "VW SquareCB": ("vowpalwabbit", wabbit_player, f"{WABBIT} --squarecb"),
}


def adult() -> tuple[list[Any], Any]:
    """Return words and numbers as they are in the file; the occupation is the label."""
    from benchmarks.defaults.problems import read_columns

    table, labels = read_columns("adult")
    table.columns = [f"x{k}" for k in range(15) if k != 6]
    return table.to_dict("records"), labels


def census() -> tuple[list[Any], Any]:
    """Return 67 coded answers, as words, and the occupation."""
    from benchmarks.defaults.problems import read_columns

    table, labels = read_columns("census")
    return table.to_dict("records"), labels


def made() -> tuple[list[dict[str, Any]], Any]:
    """Return 13 features of 50 categories; the label depends on two of them together."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 50, (20_000, 13))
    labels = (codes[:, 0] // 10 + 5 * (codes[:, 1] % 2)) % 10
    names = [f"f{i}" for i in range(13)]
    return [dict(zip(names, map(str, row), strict=True)) for row in codes.tolist()], labels


PROBLEMS = {"adult": adult, "census": census, "made": made}


def one_run(name: str, stream: Path, seed: int) -> dict[str, Any]:
    """Play a stream in this process."""
    given = json.loads(stream.read_text())
    _, make, options = PLAYERS[name]
    choose, learn = make(options, given["arms"], seed)
    total, found, begun = 0.0, {}, 0.0
    for t, (context, label) in enumerate(zip(given["contexts"], given["labels"], strict=True)):
        if t == WARM:
            begun = time.process_time()
        reward = float(choose(context) == label)
        learn(reward)
        total += reward
        if t + 1 in MARKS:
            found[str(t + 1)] = total / (t + 1)
    spent = time.process_time() - begun
    return found | {"microseconds": 1e6 * spent / max(len(given["labels"]) - WARM, 1)}


def play(options: argparse.Namespace) -> None:
    """Play every run in its own process, so that a library runs where it is installed."""
    import pandas as pd

    from benchmarks.defaults.workers import python_of

    rows = []
    for problem in options.problems:
        contexts, labels = PROBLEMS[problem]()
        for seed in range(options.seeds):
            order = np.random.default_rng(seed).permutation(len(contexts))[: options.steps]
            stream = {"contexts": [contexts[i] for i in order], "labels": labels[order].tolist()}
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "stream.json"
                path.write_text(json.dumps(stream | {"arms": int(labels.max()) + 1}))
                for name in options.players:
                    python, why = python_of(PLAYERS[name][0])
                    if python is None:
                        print(f"{name}: {why}", flush=True)
                        continue
                    command = [str(python), "-m", "benchmarks.sparse", "one", name, str(path)]
                    done = subprocess.run(
                        [*command, "--seed", str(seed)], capture_output=True, text=True, check=True
                    )
                    row = {"problem": problem, "player": name, "seed": seed}
                    rows.append(row | json.loads(done.stdout.splitlines()[-1]))
                    print(json.dumps(rows[-1], ensure_ascii=False), flush=True)
    table = pd.DataFrame(rows)
    means = table.drop(columns="seed").groupby(["problem", "player"], sort=False).mean()
    print(means.round(4).to_string())
    if options.out:
        table.round(4).to_csv(options.out, index=False)


def covered(noise: float, rewards: int, features: int, repeated: bool, seed: int) -> list[float]:
    """Return coverage, and error and width relative to those of the exact posterior."""
    import tsucb

    rng, levels = np.random.default_rng(seed), 4
    size = features * levels
    beta = rng.normal(size=size) / features**0.5
    model = tsucb.HashedLinear(bits=12, features=2 * features)

    def draw(count: int) -> tuple[Any, Any, Any]:
        codes = rng.integers(0, levels, (count, features))
        columns = (codes[:, :1] if repeated else codes) + levels * np.arange(features)
        rows = np.stack([columns + 1.0, np.ones(columns.shape)], axis=2).reshape(count, -1)
        design = np.ones((count, 1 + size))
        design[:, 1:] = 0.0
        np.put_along_axis(design[:, 1:], columns, 1.0, 1)
        return rows, design, beta[columns].sum(axis=1)

    rows, design, means = draw(rewards)
    told = means + noise * rng.normal(size=rewards)
    state = model.fit(1, rows, np.zeros(rewards, np.int64), told)
    prior = np.diag([1.0] + [float(features)] * size)
    covariance = np.linalg.inv(design.T @ design / noise**2 + prior)
    exact = covariance @ design.T @ told / noise**2
    rows, design, means = draw(300)
    beliefs = [model.belief(state, row, rng=rng) for row in rows]
    mean, std = (np.array([getattr(b, name)[0] for b in beliefs]) for name in ("mean", "std"))
    width = np.sqrt(np.einsum("ij,jk,ik->i", design, covariance, design)).mean()
    error = np.sqrt(np.mean((mean - means) ** 2) / np.mean((design @ exact - means) ** 2))
    return [float(np.mean(np.abs(mean - means) < 1.645 * std)), error, std.mean() / width]


def coverage(options: argparse.Namespace) -> None:
    """Print coverage for a signal of variance 1, with columns apart or always together."""
    import pandas as pd

    rows = []
    for columns in ("apart", "together"):
        for features in (6, 30, 100):
            for noise in (0.1, 0.3, 1.0, 3.0):
                for rewards in (300, 3_000):
                    runs = [
                        covered(noise, rewards, features, columns == "together", seed)
                        for seed in range(options.seeds)
                    ]
                    shares = dict(
                        zip(("covered", "error", "width"), np.mean(runs, axis=0), strict=True)
                    )
                    row = {"columns": columns, "features": features, "noise": noise}
                    rows.append(row | {"rewards": rewards} | shares)
    table = pd.DataFrame(rows).round(4)
    print(table.to_string(index=False))
    if options.out:
        table.to_csv(options.out, index=False)


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    commands = parser.add_subparsers(dest="command", required=True)
    playing = commands.add_parser("play")
    playing.add_argument("--players", nargs="+", choices=PLAYERS, default=list(PLAYERS))
    playing.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    playing.add_argument("--seeds", type=int, default=4)
    playing.add_argument("--steps", type=int, default=10_000)
    playing.add_argument("--out", type=Path)
    covering = commands.add_parser("coverage")
    covering.add_argument("--seeds", type=int, default=4)
    covering.add_argument("--out", type=Path)
    one = commands.add_parser("one")  # a run, in the environment of its library
    one.add_argument("player", choices=PLAYERS)
    one.add_argument("stream", type=Path)
    one.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.command == "one":
        print(json.dumps(one_run(options.player, options.stream, options.seed)))
    else:
        {"play": play, "coverage": coverage}[options.command](options)


if __name__ == "__main__":
    main()
