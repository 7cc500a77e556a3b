"""Arms with features, many arms, lists and batches: `python benchmarks/arms.py WHAT`.

    articles    100 articles of four categories, 2,000 readers, after the hybrid notebook of
                bayesianbandits: regret, against what it publishes, and against its model
    news        two readers, two times of day, seven topics, after Vowpal Wabbit's tutorial on
                personalising news: share of clicks, against the same settings of Vowpal Wabbit
    pairs       what it earns, or loses, to read pairs of categories: the news, and two problems
                with users and times of three kinds, whose effects add up or do not
    growth      microseconds per decision with its reward, against arms known, arms offered,
                features, the length of lists and the size of batches; --figure draws it

With --peer PYTHON, the interpreter of an environment with the other library, that is played too.
With --out FILE.csv, the measurements of WHAT replace earlier ones in the file.
"""

import argparse
import csv
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

CATEGORIES = ("tech", "sports", "politics", "lifestyle")
FEATURES = ("reading_level", "general_interest", "tech", "sports", "politics")
TOPICS = ("politics", "sports", "music", "food", "finance", "health", "camping")
LIKED = {
    ("Tom", "morning"): "politics",
    ("Tom", "afternoon"): "music",
    ("Anna", "morning"): "sports",
    ("Anna", "afternoon"): "politics",
}


# 100 articles


class Articles:
    """Rewards linear in a reader's features, with coefficients for every article.

    Reading level and general interest count for all articles (0.8 and 0.5), the interest in a
    category for its articles (1.2), and each article differs a little (0.1) in all of them; the
    noise is 0.5. As in the notebook, regret is taken from the rewards with their noise.
    """

    def __init__(self, seed: int, articles: int = 100, rounds: int = 2000) -> None:
        rng = np.random.default_rng(seed)
        self.categories = [CATEGORIES[4 * i // articles] for i in range(articles)]
        self.theta = 0.1 * rng.normal(size=(articles, 5)) + [0.8, 0.5, 0, 0, 0]
        for i, category in enumerate(self.categories):
            if category in FEATURES:
                self.theta[i, FEATURES.index(category)] += 1.2
        readers = rng.normal(size=(1000, 5))
        self.contexts = readers[rng.integers(1000, size=rounds)]
        self.noise = 0.5 * rng.normal(size=rounds)

    def regret(
        self, choose: Callable[[Any], int], learn: Callable[[Any, int, float], None]
    ) -> float:
        """Return the regret of the choices, over all rounds."""
        total = 0.0
        for x, noise in zip(self.contexts, self.noise, strict=True):
            means = self.theta @ x
            arm = choose(x)
            reward = means[arm] + noise
            learn(x, arm, reward)
            total += means.max() - reward
        return float(total)


def articles_tsucb(seed: int) -> float:
    """Play the agent with nothing set: readers and articles as dictionaries."""
    import tsucb

    problem = Articles(seed)
    agent = tsucb.Agent(seed=seed)
    offered = {i: {"category": category} for i, category in enumerate(problem.categories)}
    waiting: list[str] = []

    def choose(x: Any) -> int:
        decision = agent.choose(dict(zip(FEATURES, x.tolist(), strict=True)), offered)
        waiting.append(decision.id)
        return int(decision.arm)

    def learn(x: Any, arm: int, reward: float) -> None:
        agent.reward(waiting.pop(), reward)

    return problem.regret(choose, learn)


def articles_bayesianbandits(seed: int) -> float:
    """Play the notebook's hybrid model: shared, crossed by hand, and one per article."""
    problem = Articles(seed)
    count = len(problem.categories)
    mine = np.array([[c == name for name in FEATURES[2:]] for c in problem.categories], float)
    regressor = import_module("bayesianbandits").NormalRegressor
    learner = regressor(alpha=1.0, beta=1.0, random_state=seed)

    def rows(x: Any) -> Any:
        return np.hstack([np.tile(x[:2], (count, 1)), mine * x[2:], np.eye(count)])

    def choose(x: Any) -> int:
        return int(np.asarray(learner.sample(rows(x), size=1)).ravel().argmax())

    def learn(x: Any, arm: int, reward: float) -> None:
        learner.partial_fit(rows(x)[[arm]], np.array([reward]))

    learner.partial_fit(np.zeros((1, 5 + count)), np.zeros(1))
    return problem.regret(choose, learn)


# Seven topics


def visits(seed: int, rounds: int = 5000) -> Iterator[tuple[str, str]]:
    """Yield the user and the time of every visit."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        yield ("Tom", "Anna")[rng.integers(2)], ("morning", "afternoon")[rng.integers(2)]


def news_tsucb(seed: int) -> float:
    """Play the agent with nothing set: the topic is the article's only feature."""
    import tsucb

    agent, clicks = tsucb.Agent(seed=seed), []
    offered = {topic: {"topic": topic} for topic in TOPICS}
    for user, when in visits(seed):
        decision = agent.choose({"user": user, "time": when}, offered)
        clicks.append(float(decision.arm == LIKED[user, when]))
        agent.reward(decision.id, clicks[-1])
    return float(np.mean(clicks))


def news_crossed(seed: int) -> float:
    """Play the agent with user and time crossed."""
    import tsucb

    agent, clicks = tsucb.Agent(seed=seed), []
    offered = {topic: {"topic": topic} for topic in TOPICS}
    for user, when in visits(seed):
        decision = agent.choose({"user and time": f"{user} {when}"}, offered)
        clicks.append(float(decision.arm == LIKED[user, when]))
        agent.reward(decision.id, clicks[-1])
    return float(np.mean(clicks))


def news_vowpalwabbit(seed: int) -> float:
    """Play as in the tutorial: epsilon 0.2, features of users crossed with those of articles."""
    learner = import_module("vowpalwabbit").Workspace(
        f"--cb_explore_adf -q UA --quiet --epsilon 0.2 --random_seed {seed + 1}"
    )
    rng, clicks = np.random.default_rng(seed + 1000), []
    for user, when in visits(seed):
        shared = f"shared |User user={user} time_of_day={when}\n"
        lines = [f"|Action article={topic}" for topic in TOPICS]
        chances = np.array(learner.predict(shared + "\n".join(lines)))
        arm = int(rng.choice(len(TOPICS), p=chances / chances.sum()))
        clicks.append(float(TOPICS[arm] == LIKED[user, when]))
        lines[arm] = f"0:{-clicks[-1]}:{chances[arm]} {lines[arm]}"
        learner.learn(shared + "\n".join(lines))
    return float(np.mean(clicks))


# Pairs of categories


def regret_of_visits(seed: int, adding: bool, rounds: int = 1500) -> float:
    """Twenty articles of five topics; user, time and a number matter, and user and time together.

    All effects are standard normal, those of user and time together 0 where effects add up; an
    article's own is 0.3, the noise 0.5.
    """
    import tsucb

    rng = np.random.default_rng(seed)
    users, times, together, slopes, own = (
        rng.normal(size=shape) for shape in ((3, 5), (3, 5), (3, 3, 5), 5, 20)
    )
    topics = np.arange(20) % 5
    agent, total = tsucb.Agent(seed=seed), 0.0
    offered = {i: {"topic": f"t{topic}"} for i, topic in enumerate(topics.tolist())}
    for _ in range(rounds):
        user, when, x, noise = rng.integers(3), rng.integers(3), rng.normal(), rng.normal()
        means = users[user] + times[when] + slopes * x + (not adding) * together[user, when]
        means = means[topics] + 0.3 * own
        visit = {"user": f"u{user}", "time": f"w{when}", "x": x}
        decision = agent.choose(visit, offered)
        agent.reward(decision.id, means[decision.arm] + 0.5 * noise)
        total += means.max() - means[decision.arm]
    return float(total)


def play_pairs(runs: int) -> Iterator[tuple[str, list[float]]]:
    """Play everything with pairs of categories and without; yield names and scores."""
    from tsucb.contexts import encoding

    usual = encoding.MOST_PAIRED
    for name, play in (
        ("news: share of clicks", news_tsucb),
        ("effects that add up: regret", lambda seed: regret_of_visits(seed, True)),
        ("effects that do not: regret", lambda seed: regret_of_visits(seed, False)),
    ):
        for most, pairs in ((usual, "with pairs"), (0, "without pairs")):
            encoding.MOST_PAIRED = most
            yield f"{name}, {pairs}", [play(seed) for seed in range(runs)]
    encoding.MOST_PAIRED = usual


def play(what: str, only: str, peer: str | None, runs: int) -> Iterator[tuple[str, list[float]]]:
    """Play the articles or the news; yield the names of the players and their scores."""
    scores = [globals()[f"{what}_{only}"](seed) for seed in range(runs)]
    yield f"{what}, {only}", scores
    if peer:
        other = {"articles": "bayesianbandits", "news": "vowpalwabbit"}[what]
        command = [peer, __file__, what, "--only", other, "--runs", str(runs), "--scores"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        yield f"{what}, {other}", [float(line) for line in done.stdout.splitlines()]


# Growth


def least(call: Callable[[], Any], rounds: int, each: int = 1) -> float:
    """Return the microseconds of CPU time per decision in a call: the least of 25 measurements."""
    times = []
    for _ in range(25):
        begin = time.process_time()
        for _ in range(rounds):
            call()
        times.append(time.process_time() - begin)
    return 1e6 * min(times) / rounds / each


def growth() -> dict[str, list[tuple[int, float]]]:
    """Time every size."""
    import tsucb

    rng = np.random.default_rng(0)
    found: dict[str, list[tuple[int, float]]] = {}

    def offer(count: int, known: int, features: int) -> Any:
        z = rng.normal(size=(known, features))
        agent = tsucb.Agent(model=tsucb.HybridLinear(features), seed=0, most_arms=2 * known)
        names = [f"a{i}" for i in range(known)]
        agent.fit((None, names, z, rng.normal(size=known)))
        some = [
            {names[j]: z[j] for j in rng.choice(known, count, replace=False)} for _ in range(200)
        ]
        turn = itertools.cycle(some)
        return least(lambda: agent.reward(agent.choose(None, next(turn)).id, 1.0), 400)

    found["arms known, 10 offered"] = [(n, offer(10, n, 10)) for n in (10, 100, 1000, 10_000)]
    found["arms offered of 1,000"] = [(n, offer(n, 1000, 10)) for n in (10, 30, 100, 300)]
    found["features of an arm"] = [(n, offer(10, 100, n)) for n in (3, 10, 30, 100)]
    agent = tsucb.Agent(range(100), features=10, seed=0)
    x = rng.normal(size=10)

    def rank(k: int) -> float:
        return least(lambda: agent.reward(agent.rank(x, k).id, [1.0]), 100)

    found["length of a list, of 100 arms"] = [(k, rank(k)) for k in (1, 3, 10, 30)]
    many = tsucb.Agent(range(20), features=50, seed=0)
    many.fit((rng.normal(size=(500, 50)), np.arange(500) % 20, rng.normal(size=500)))

    def batch(n: int) -> float:
        rows = rng.normal(size=(n, 50))
        return least(lambda: many.choose_many(rows), max(200 // n, 1), n)

    batches = [(n, batch(n)) for n in (1, 10, 100, 1000, 10_000)]
    found["contexts at once, 20 arms, d = 50 (per context)"] = batches
    return found


def draw(found: dict[str, list[tuple[int, float]]], folder: Path) -> None:
    """Draw one line per size, for light and for dark pages."""
    from matplotlib.figure import Figure

    from tsucb.pages.figures import theme

    for name in ("light", "dark"):
        with theme(name):
            figure = Figure(figsize=(7.2, 3.6), layout="constrained")
            axes = figure.subplots()
            for label, pairs in found.items():
                axes.loglog(*zip(*pairs, strict=True), marker="o", label=label)
            axes.set_xlabel("how many")
            axes.set_ylabel("µs")
            figure.legend(loc="outside upper left", ncols=2, fontsize=8)
            figure.savefig(folder / f"arms-{name}.svg")


def main() -> None:
    """Play or measure, and print."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("what", choices=["articles", "news", "pairs", "growth"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--peer", metavar="PYTHON", help="interpreter with the other library")
    parser.add_argument("--only", choices=["tsucb", "crossed", "bayesianbandits", "vowpalwabbit"])
    parser.add_argument("--figure", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, metavar="FILE.csv")
    parser.add_argument("--scores", action="store_true", help="print one score on each line")
    options = parser.parse_args()
    rows: list[tuple[str, str, int | str, float, float | str]] = []
    if options.what == "growth":
        found = growth()
        rows += [
            ("growth", name, n, value, "") for name, each in found.items() for n, value in each
        ]
        if options.figure:
            draw(found, options.figure)
    elif options.what == "pairs":
        rows += summaries("pairs", play_pairs(options.runs))
    else:
        players = play(options.what, options.only or "tsucb", options.peer, options.runs)
        if options.scores:
            print(*(f"{score!r}" for _, scores in players for score in scores), sep="\n")
            return
        rows += summaries(options.what, players)
    for row in rows:
        print(*row)
    if options.out:
        write(options.out, rows)


def summaries(what: str, players: Iterator[tuple[str, list[float]]]) -> Iterator[Any]:
    """Yield a row for every player: its runs, their mean, and its standard error."""
    for name, scores in players:
        error = float(np.std(scores, ddof=1) / np.sqrt(len(scores))) if len(scores) > 1 else 0.0
        yield what, name, len(scores), float(np.mean(scores)), error


def write(path: Path, rows: list[Any]) -> None:
    """Write rows to a file, in place of those with the same name or size."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    commit = import_module("benchmarks.output").commit()
    new = [[*map(str, row), commit] for row in rows]
    replaced = {(row[0], row[1]) for row in new}
    kept = []
    if path.exists():
        with path.open(newline="") as file:
            kept = [row for row in list(csv.reader(file))[1:] if (row[0], row[1]) not in replaced]
    with path.open("w", newline="") as file:
        lines = [["what", "name", "count", "value", "error", "commit"], *kept, *new]
        csv.writer(file, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main()
