"""A worked example: which prompt should the assistant use? Run `python docs/figures/agent.py`.

An assistant can start from one of several prompts (arms). Of each request it knows a few facts (the
context). Some users press "helpful", minutes later; most never press anything. Halfway a colleague
adds a new prompt; the service is restarted twice. The script plays the same requests with TS-UCB,
Thompson sampling and uniform choice, writes what each earned to docs/results/agent.csv, and draws
agent-light.svg and agent-dark.svg beside itself.
"""

import heapq
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

sys.path.insert(0, str(Path(__file__).parents[2]))  # run from the repository, not installed

import tsucb
from benchmarks.output import commit
from tsucb.pages.figures import style, theme

FEATURES = ["constant", "code", "long", "follow_up", "foreign"]
# How each prompt's chance of a "helpful" depends on the request.
PROMPTS = {
    "plain": [0.10, 0.00, 0.00, 0.00, 0.00],
    "step by step": [0.06, 0.18, 0.04, -0.02, -0.03],
    "be brief": [0.09, -0.05, -0.06, 0.15, 0.00],
    "ask back": [0.05, 0.02, 0.14, -0.04, 0.05],
    "formal": [0.07, -0.03, 0.00, 0.00, 0.12],
    "with examples": [0.09, 0.12, 0.10, 0.02, 0.02],  # comes halfway
}
NEW = "with examples"
REQUESTS, MINUTE = 6_000, 60.0
POLICIES = [tsucb.TSUCB(100), tsucb.Thompson(), tsucb.Random()]


def run(policy: tsucb.Policy, seed: int, folder: Path) -> np.ndarray:
    """The expected number of "helpful"s so far, at every request."""
    rng = np.random.default_rng(seed)
    now = 0.0

    def clock() -> float:
        return now

    prompts = [name for name in PROMPTS if name != NEW]
    agent = tsucb.Agent(prompts, FEATURES, policy=policy, seed=seed, clock=clock)
    feedback: list[tuple[float, str]] = []  # (when it arrives, the decision it is about)
    earned = np.empty(REQUESTS)
    for t in range(REQUESTS):
        now += rng.exponential(10.0)  # seconds until the next request
        while feedback and feedback[0][0] <= now:
            with suppress(tsucb.UnknownDecision):  # it came after its decision had expired
                agent.reward(heapq.heappop(feedback)[1], 1.0)
        agent.expire(older_than=30 * MINUTE, reward=0.0)  # no "helpful" came

        if t == REQUESTS // 2:
            agent.add_arm(NEW)
        if t in (REQUESTS // 4, 3 * REQUESTS // 4):  # a restart, with open decisions
            agent.save(folder / "assistant.tsucb")
            agent = tsucb.Agent.load(folder / "assistant.tsucb", clock=clock)

        facts = rng.random(4) < (0.4, 0.3, 0.35, 0.25)
        request = dict(zip(FEATURES, (1.0, *facts.astype(float)), strict=True))
        decision = agent.choose(request)
        chance = float(np.dot(PROMPTS[str(decision.arm)], list(request.values())))
        if rng.random() < chance:
            heapq.heappush(feedback, (now + rng.exponential(5 * MINUTE), decision.id))
        earned[t] = chance
    return earned.cumsum()


def play(runs: int) -> dict[str, np.ndarray]:
    """What every policy earned in each of several runs (R, REQUESTS)."""
    with tempfile.TemporaryDirectory() as folder:
        return {
            policy.name: np.array([run(policy, seed, Path(folder)) for seed in range(runs)])
            for policy in POLICIES
        }


def picture(earned: dict[str, np.ndarray]) -> Figure:
    """What each policy earned beyond uniform choice, with 95 % bands of the mean."""
    figure = Figure(figsize=(5.4, 3.3), layout="constrained")
    axes = figure.subplots()
    steps = np.arange(30, REQUESTS + 1, 30)
    uniform = earned["Random"]
    for name, total in earned.items():
        gain = (total - uniform.mean(axis=0))[:, steps - 1]
        mean, half = gain.mean(axis=0), 1.96 * gain.std(axis=0, ddof=1) / np.sqrt(len(gain))
        look = style(name) | ({"label": "uniform"} if name == "Random" else {})
        axes.plot(steps, mean, **look)
        axes.fill_between(steps, mean - half, mean + half, color=look["color"], alpha=0.15, lw=0)
    bottom, top = axes.get_ylim()
    for t, text in (
        (REQUESTS // 4, "restart"),
        (REQUESTS // 2, "new prompt"),
        (3 * REQUESTS // 4, "restart"),
    ):
        axes.axvline(t, lw=0.8, ls=":", color=style("TS")["color"])
        axes.annotate(text, (t, bottom + 0.97 * (top - bottom)), (4, 0), ha="left", va="top",
                      textcoords="offset points", rotation=90, fontsize=8)  # fmt: skip
    axes.set(xlabel="request", ylabel='"helpful"s beyond uniform choice', xlim=(0, REQUESTS))
    axes.legend(loc="upper left")
    return figure


def main(runs: int = 40) -> None:
    """Play, write and draw."""
    earned, rows = play(runs), []
    uniform = earned["Random"][:, -1]
    for name, total in earned.items():
        final = total[:, -1]
        error = 100 * (final / uniform).std(ddof=1) / np.sqrt(runs)
        percent = 100 * (final / uniform).mean()
        rows.append((name, final.mean(), percent, error))
    table = pd.DataFrame(rows, columns=["policy", "earned", "percent_of_uniform", "se"])
    path = Path(__file__).parents[1] / "results" / "agent.csv"
    table.assign(commit=commit()).to_csv(path, index=False, float_format="%.6g")
    print(table)
    for name in ("light", "dark"):
        with theme(name):
            path = Path(__file__).with_name(f"agent-{name}.svg")
            picture(earned).savefig(path, metadata={"Date": None}, transparent=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
