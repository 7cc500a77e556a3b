"""Fill the tables and figures of the documentation from the results: `python docs/tables.py`.

A page marks where a table goes by `<!-- table: NAME -->` and `<!-- end -->`, and a number in a
sentence by `<!-- figure: NAME -->` and `<!-- end -->`; what stands between them is replaced. A test
checks that the pages agree with the results.
"""

import heapq
import itertools
import math
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from tsucb.display import time_span
from tsucb.paper.table2 import PAPER

DOCS = Path(__file__).parent
RESULTS = DOCS / "results"
sys.path[:0] = [str(DOCS), str(DOCS.parent)]  # run from the repository, not installed

from interfaces import command_line, fill_entries, http_api  # noqa: E402

from benchmarks.defaults import report as defaults_report  # noqa: E402
from benchmarks.output import markdown_table as markdown  # noqa: E402

MARK = re.compile(r"(<!-- (?:table: (\S+) -->\n|figure: (\S+) -->)).*?(<!-- end -->)", re.DOTALL)


def choosing() -> str:
    """Mean and median regret in per cent of those of TS, on small problems."""
    results = pd.read_csv(RESULTS / "choosing.csv")
    policies = ["TS-UCB(1)", "TS-UCB(100)", "Greedy", "UCB"]
    rows = []
    for problem, group in results.groupby("problem", sort=False):
        table = group.set_index("policy")
        mean = 100 * table.regret_mean / table.regret_mean["TS"]
        median = 100 * table.regret_median / table.regret_median["TS"]
        rows.append(
            [str(problem)]
            + [
                f"{'**' * (p == mean.idxmin())}{mean[p]:.0f}{'**' * (p == mean.idxmin())} "
                f"({'**' * (p == median.idxmin())}{median[p]:.0f}{'**' * (p == median.idxmin())})"
                for p in policies
            ]
        )
    return markdown(["problem", *policies], rows)


def service_faults() -> str:
    """What broke, and the longest that others did not decide, and that none led."""
    results = pd.read_csv(RESULTS / "service-faults.csv")
    rows = []
    for part, faults in results.groupby("what", sort=False):
        for each in faults.itertuples():
            leaderless = "" if math.isnan(each.leaderless) else f"{each.leaderless:.1f} s"
            cells = str(part), each.broken, str(each.faults), f"{each.undecided:.1f} s", leaderless
            rows.append([*cells, f"{each.clients_late:.1f} s"])
    heads = ["", "broken", "times", "no decisions elsewhere", "no leader", "clients late"]
    return markdown(heads, rows, "ttnnnn")


STREAMS = {
    "plain": "five arms without context",
    "clicks": "six arms with clicks and five features",
    "shop": "ten arms with ten features",
    "tastes": "ten arms with five features each",
}
CHANGES = {
    "rotate": "the arms change places",
    "drop": "the best of them drops",
    "sine": "their levels follow sines",
    "new best": "the worst of them becomes the best",
}


def changes(*streams: str) -> str:
    """Rewards after a change, beside the best fixed rate of forgetting."""
    results = pd.read_csv(RESULTS / "change.csv", dtype={"gamma": str})
    results = results.set_index(["stream", "change"])
    rows = []
    for stream, (change, what) in itertools.product(streams, CHANGES.items()):
        each = results.loc[stream, change]
        best = f"{each.best_fixed:,} ({each.gamma})"
        rows.append([f"{STREAMS[stream]}: {what}", f"{each.never_forgetting:,}", best])
        rows[-1].append(f"{each.default:,}")
    return markdown(["", "never forgetting", "best fixed γ", "default"], rows, "tnnn")


def service_speed(*cases: str) -> str:
    """Visits finished and refused per second, with their latencies, of some cases."""
    results = pd.read_csv(RESULTS / "service-speed.csv").set_index("case")
    rows = []
    for case in cases:
        each = results.loc[case]
        times = [
            "" if math.isnan(each[f"{name}_median"]) else
            f"{each[f'{name}_median']:.1f} ms, {each[f'{name}_p99']:.1f} ms"
            for name in ("decide", "reward", "refused")
        ]  # fmt: skip
        refused = f"{each.refused:.0f} %" if each.refused else ""
        offered = "as they are answered" if math.isnan(each.offered) else f"{each.offered:,.0f}"
        rows.append([case, offered, f"{each.finished:,.0f}", *times, refused])
    heads = ["", "visits offered per second", "finished", "decision, median and p99",
             "reward, median and p99", "refusal, median and p99", "refused"]  # fmt: skip
    return markdown(heads, rows, "tnnnnnn")


def service_sizes() -> str:
    """How long a server with many loops takes to start, and its memory before and after visits."""
    results = pd.read_csv(RESULTS / "service-speed.csv")
    rows = [
        [f"{each.loops:,}", f"{each.connections:,}", f"{each.ready:.0f} s",
         f"{each.memory_before:,} MB", f"{each.memory_after:,} MB"]
        for each in results[results.loops > 1].itertuples()
    ]  # fmt: skip
    heads = ["loops", "connections", "ready after", "memory", "in the end"]
    return markdown(heads, rows, "nnnnn")


def interval_rows(results: pd.DataFrame, by: list[str]) -> str:
    """Coverage by time, for each number of arms in turn."""
    times = sorted(results.t.unique())
    rows = []
    for keys, group in results.groupby(by, sort=False):
        at = {t: part.sort_values("arms").covered for t, part in group.groupby("t")}
        cells = [" / ".join(f"{x:.0f}" for x in at[t]) if t in at else "–" for t in times]
        rows.append([*map(str, keys), *cells])
    kinds = "t" * len(by) + "n" * len(times)
    return markdown([*by, *(f"t = {t:,}" for t in times)], rows, kinds)


def intervals(model: str = "AdaptiveLinear") -> str:
    """Coverage of a model's intervals by time, for each number of arms."""
    results = pd.read_csv(RESULTS / "intervals.csv")
    results = results[(results.model == model) & (results.play == "uniform")]
    results["rewards"] += results.about.map({"all": "", "sold": ", once sold"})
    return interval_rows(results, ["features", "rewards"])


def intervals_clicks() -> str:
    """The same of `LogisticArms`."""
    return intervals("LogisticArms")


def intervals_others() -> str:
    """The same of the other models, where they were measured."""
    results = pd.read_csv(RESULTS / "intervals.csv")
    elsewhere = ("AdaptiveLinear", "LogisticArms")
    shown = (results.play == "uniform") & (results.about == "all")
    results = results[shown & ~results.model.isin(elsewhere)]
    return interval_rows(results, ["model", "features", "rewards"])


def intervals_own() -> str:
    """Coverage after own play, of the arm that would be played next and of the best one."""
    results = pd.read_csv(RESULTS / "intervals.csv")
    results = results[results.play != "uniform"].rename(columns={"about": "arm"})
    results["arm"] = results["arm"].replace("played", "next")
    return interval_rows(results, ["model", "play", "features", "rewards", "arm"])


def true_prior() -> str:
    """Coverage after own play, of the exact posterior with the true prior and of the default."""
    results = pd.read_csv(RESULTS / "true-prior.csv")
    rows = []
    for keys, group in results.groupby(["clicks", "arms", "t"], sort=False):
        cells = [f"{r.played:.0f} / {r.best:.0f}" for r in group.itertuples()]
        rows.append([*(f"{key:,}" if isinstance(key, int) else key for key in keys), *cells])
    return markdown(["clicks", "arms", "rewards", "true prior", "default"], rows, "tnnnn")


def fixed_arms() -> str:
    """Regret of the default with fixed arms, beside that of the conjugate model."""
    results = pd.read_csv(RESULTS / "fixed-arms.csv")
    spread = results.worst_error.map(lambda error: "" if pd.isna(error) else f" ± {error:.0f}")
    results["worst"] = results.worst_percent.map("{:.0f}".format) + spread
    first = results.groupby(["arms", "problem"])[["mean", "worst_percent"]].transform("first")
    results["times"] = results["mean"] / first["mean"]
    results["times_worst"] = results.worst_percent / first.worst_percent
    rows = [
        (
            f"{r.arms}",
            r.problem,
            r.model,
            r.policy,
            f"{r.mean:.0f} ± {r.error:.0f}",
            r.worst,
            f"{r.times:.2f} / {r.times_worst:.2f}",
            f"{r.runs:,}",
        )
        for r in results.itertuples()
    ]
    head = ["arms", "problem", "model", "policy", "regret", "worst 1 %"]
    table = markdown([*head, "times that of the first", "runs"], rows, 4)
    return f"{table}\n{measured('python -m benchmarks.fixed_arms FILE.csv', results)}"


def few_arms() -> str:
    """Mean and tail of the regret with few arms, by the number of samples."""
    results = pd.read_csv(RESULTS / "few-arms.csv")
    order = ["TS", "TS-UCB(1)", "TS-UCB(10)", "TS-UCB(100)", "TS-UCB(∞)"]
    order += ["TS-UCB(1 or 10)", "TS-UCB(1 or 100)"]
    results["place"] = results.policy.map(order.index)
    rows = [
        [
            f"{r.arms}",
            r.policy,
            f"{r.mean:.1f} ({r.ci95_low:.1f} to {r.ci95_high:.1f})",
            f"{r.median:.1f}",
            f"{r.worst_percent_share:.0f} %",
            f"{r.maximum:,.0f}",
            f"{r.still_losing_percent:.1f} %",
            f"{r.runs:,}",
        ]
        for r in results.sort_values(["arms", "place"]).itertuples()
    ]
    header = ["K", "policy", "mean regret", "median", "share of worst 1 %", "maximum"]
    return markdown([*header, "still losing", "runs"], rows, 2)


def waits() -> str:
    """Median steps until an arm with few successes is played again."""
    results = pd.read_csv(RESULTS / "waits.csv", dtype={"commit": str})
    rows = []
    for (successes, pulls), group in results.groupby(["successes", "pulls"], sort=False):
        steps = ["over 20,000" if x >= 20_000 else f"{x:,.0f}" for x in group.median_steps]
        rows.append([f"{successes} of {pulls}", *steps])
    made = markdown(["successes of B so far", *dict.fromkeys(results.policy)], rows)
    return f"{made}\n{measured('python benchmarks/few_arms.py FILE.csv waits', results)}"


def pricing() -> str:
    """Regret of a year of prices in dollars."""
    results = pd.read_csv(RESULTS / "pricing.csv", dtype={"commit": str})
    rows = []
    for player, name in (
        ("tsucb", '`Agent([5, 8, 11, 14, 17])`, contexts `{"city": "city 7"}`'),
        ("bayesianbandits", "bayesianbandits, told that a city earns about 1,000"),
    ):
        regret = results.regret[results.player == player]
        rows.append([name, *(f"{x:,.0f}" for x in regret.agg(["mean", "min", "median", "max"]))])
    command = "python benchmarks/pricing.py --runs 20 --peer PYTHON --out FILE.csv"
    made = markdown(["", "mean", "least", "median", "most"], rows)
    return f"{made}\n{measured(command, results)}"


def scores(head: str, what: str, names: dict[str, str]) -> str:
    """The mean score of every player of an example, with its standard error."""
    results = pd.read_csv(RESULTS / "arms.csv", dtype={"commit": str}).set_index("name")
    rows = []
    for name, text in names.items():
        value, error = results.value[name], results.error[name]
        digits = 0 if value > 10 else 5 if error < 0.00005 else 4 if error < 0.0005 else 3
        rows.append([text, f"{value:.{digits}f} ± {error:.{digits}f}"])
    shown = results.loc[list(names)]
    command = f"python benchmarks/arms.py {what} --runs {shown['count'].iloc[0]} --out FILE.csv"
    return f"{markdown(['', head], rows)}\n{measured(command, shown)}"


def arms_growth() -> str:
    """Microseconds of decisions and lists by the number of arms, of features and of contexts."""
    results = pd.read_csv(RESULTS / "arms.csv", dtype={"commit": str})
    results = results[results.what == "growth"]
    rows = [
        [str(name), " · ".join(f"{int(r.count_):,}: {r.value:.3g}" for r in group.itertuples())]
        for name, group in results.rename(columns={"count": "count_"}).groupby("name", sort=False)
    ]
    command = "python benchmarks/arms.py growth --out FILE.csv"
    return f"{markdown(['', 'how many: µs'], rows, 2)}\n{measured(command, results)}"


def agent_speed() -> str:
    """Microseconds of a decision with its reward, and how many times as long VW takes."""
    results = pd.read_csv(RESULTS / "agent-speed.csv", dtype={"commit": str})
    spans = {
        (r.name, r.times_that_of): f"{r.median:.1f} ({r.least:.1f} to {r.most:.1f})"
        for r in results.fillna("").itertuples(index=False)
    }
    rivals = [
        f"vowpalwabbit {name} (other)" for name in ("--epsilon 0.1", "--epsilon 0.1, as text")
    ]
    own = [name for name, other in spans if not other and not name.startswith("vowpalwabbit")]
    rows = [[name, spans[name, ""], *(spans[rival, name] for rival in rivals)] for name in own]
    rows.append(["Vowpal Wabbit, `--epsilon 0.1`: µs", "", *(spans[rival, ""] for rival in rivals)])
    head = ["", "µs", "times as long, examples reused", "examples as text, as in its tutorials"]
    command = "python benchmarks/agent.py --peers FOLDER --rounds 3 --out FILE.csv"
    return f"{markdown(head, rows)}\n{measured(command, results)}"


def cluster() -> str:
    """How long Figure 1 takes on some cores, the longest tasks first."""
    rows = []
    for cores in (1, 2, 16, 64, 256):
        spans = [time_span(makespan(cores, with_ids)) for with_ids in (True, False)]
        rows.append([str(cores), *spans])
    return markdown(["cores", "everything", "without IDS(1000)"], rows, 0)


def new_arm() -> str:
    """What decisions lose after an arm was added, and how often that is pulled."""
    results = pd.read_csv(RESULTS / "new-arm.csv")
    rows = [
        [
            f"{100 * r.shared:.0f} %",
            r.prior,
            f"{r.regret_0_10:.2f}",
            f"{r.regret_10_50:.2f}",
            f"{r.regret_100_200:.3f}",
            f"{r.regret_1000_2000:.3f}",
            f"{r.regret_of_200:.1f} ± {1.96 * r.error:.1f}",
            f"{r.pulls_until_settled:.0f}",
        ]
        for r in results.itertuples()
    ]
    header = ["variance that arms share", "prior", "regret per decision: 1–10", "11–50", "101–200"]
    header += ["1,001–2,000", "regret of the first 200", "pulls until it stays below 0.1"]
    return markdown(header, rows, 2)


def figure1_claims() -> str:
    """Every sentence of Section 4.1.1 that can be checked."""
    return claims_table("figure1-claims.csv")


def figure1_search() -> str:
    """IDS with the exact minimiser and as the authors searched it, beside TS-UCB, run by run."""
    runs = pd.read_csv(RESULTS / "figure1-ids-grid.csv")
    exact = pd.read_csv(RESULTS / "figure1.csv").set_index(["policy", "arms", "noise"])
    search, others = runs["IDS-grid(1000)"], ["TS-UCB(100)", "TS-UCB(1)"]
    for other in others:
        runs[f"above {other}"] = 100 * (search / runs[other] - 1)
    runs["percent"] = 100 * search / runs["TS"]
    cells = runs.groupby(["arms", "noise"]).agg(["mean", "sem"])
    groups = [(f"K = {k}", cells.loc[[k]]) for k in cells.index.unique(0)]
    groups += [(f"σ = {n:g}", cells.loc[(slice(None), n), :]) for n in cells.index.unique(1)]
    rows = []
    for name, found in [*groups, (f"all {len(cells)}", cells)]:
        line = [exact.percent_of_ts["IDS(1000)"].loc[found.index].mean()]
        line += [found["percent"]["mean"].mean()]
        texts = [name, *(f"{value:.1f}" for value in line)]
        for other in others:
            above = found[f"above {other}"]
            half = 1.96 * (above["sem"] ** 2).sum() ** 0.5 / len(found)
            texts.append(f"{above['mean'].mean():+.1f} ± {half:.1f} %")
        rows.append(texts)
    head = [
        "cells",
        "IDS(1000)",
        "IDS-grid(1000)",
        *(f"it is above {other} by" for other in others),
    ]
    return markdown(head, rows)


def theorems_claims() -> str:
    """The claims of the theorems and their lemma, and the measurements."""
    return claims_table("theorems-claims.csv")


def claims_table(name: str) -> str:
    """The claims that an experiment checked."""
    claims = pd.read_csv(RESULTS / name)
    columns = ["statement", "paper", "measured", "agrees", "rule"]
    header = ["the paper says", "its figure", "measured", "agrees", "yes if"]
    return markdown(header, claims[columns].to_numpy().tolist(), len(header))


def news() -> str:
    """Table 1 on a generated log, all days together, and the paper's line on the real one."""
    parts = [pd.read_csv(RESULTS / f"table1{ending}.csv") for ending in ("", "-ids")]
    results = pd.concat(parts).drop_duplicates(["day", "policy"])
    overall = results[(results.day == "overall") & (results.policy != "TS")]
    generated = [
        f"{r.percent_of_ts:.1f} ± {(r.ci95_high - r.ci95_low) / 2:.1f}"
        for r in overall.itertuples()
    ]
    return markdown(
        ["", *overall.policy],
        [
            ["generated log", *generated],
            ["the paper, on Yahoo!'s log", *(f"{x:.1f}" for x in overall.paper_percent)],
        ],
    )


def table2() -> str:
    """Regret in per cent of TS, and the paper's; a cross where the intervals do not meet."""
    results = pd.read_csv(RESULTS / "table2.csv")
    policies = list(next(iter(PAPER.values())))
    rows = []
    for dataset, printed in PAPER.items():
        table = results[results.dataset == dataset].set_index("policy")
        cells = [f"{dataset}, d = {table.features.iloc[0]}, K = {table.arms.iloc[0]}"]
        for policy in policies:
            ours, (theirs, half) = table.loc[policy], printed[policy]
            apart = ours.ci95_low > theirs + half or ours.ci95_high < theirs - half
            width = (ours.ci95_high - ours.ci95_low) / 2
            cells.append(
                f"{ours.percent_of_ts:.1f}&nbsp;±&nbsp;{width:.1f}<br>"
                f"({theirs:.1f}&nbsp;±&nbsp;{half:.1f})" + "&nbsp;✗" * bool(apart)
            )
        rows.append(cells)
    return markdown(["dataset", *policies], rows)


def table2_medians() -> str:
    """The median regret on mushroom, whose mean a few runs decide."""
    results = pd.read_csv(RESULTS / "table2.csv")
    mushroom = results[results.dataset == "mushroom"]
    return markdown(
        ["mushroom", *mushroom.policy],
        [
            ["mean regret", *(f"{x:,.0f}" for x in mushroom.regret_mean)],
            ["median regret", *(f"{x:,.0f}" for x in mushroom.regret_median)],
        ],
    )


def table2_ties() -> str:
    """Greedy in per cent of TS, run by run, with ties broken at random and to the first arm."""
    runs = pd.read_csv(RESULTS / "table2-ties.csv")
    rows = []
    for dataset, group in runs.groupby("dataset"):
        line = [str(dataset)]
        for policy in ("Greedy", "Greedy(first)"):
            percent = 100 * group[policy] / group["TS"]
            line.append(f"{percent.mean():.1f} ± {1.96 * percent.sem():.1f}")
        mean, half_width = PAPER[str(dataset)]["Greedy"]
        rows.append([*line, f"{mean:.1f} ± {half_width:.1f}"])
    return markdown(["", "ties at random", "ties to the first arm", "the paper"], rows)


def table2_growth() -> str:
    """Seconds for one policy on one dataset, over runs and horizon."""
    times = pd.read_csv(RESULTS / "table2-growth.csv")
    rows = [[f"{r.runs}", f"{r.horizon:,}", f"{r.seconds:.0f}"] for r in times.itertuples()]
    return markdown(["runs", "steps", "seconds"], rows, 0)


def posteriors() -> str:
    """Regret in per cent of TS with the same posterior; bold below 100, a cross above."""
    results = pd.read_csv(RESULTS / "posteriors.csv")
    rivals = results[results.policy != "TS"]
    rows = []
    for dataset, group in rivals.groupby("dataset", sort=False):
        cells = [str(dataset)]
        for _, both in group.groupby("posterior", sort=False):
            lines = []
            for r in both.itertuples():
                text = f"{r.percent_of_ts:.1f}&nbsp;±&nbsp;{(r.ci95_high - r.ci95_low) / 2:.1f}"
                below, above = r.ci95_high < 100, r.ci95_low > 100
                lines.append(f"**{text}**" if below else text + "&nbsp;✗" * bool(above))
            cells.append("<br>".join(lines))
        rows.append(cells)
    return markdown(["", *dict.fromkeys(rivals.posterior)], rows)


def posteriors_regret() -> str:
    """Mean regret itself, so that posteriors can be compared; the least of a dataset in bold."""
    results = pd.read_csv(RESULTS / "posteriors.csv")
    rows = []
    for dataset, group in results.groupby("dataset", sort=False):
        cells = [str(dataset)]
        for _, every in group.groupby("posterior", sort=False):
            least = every.regret_mean.min()
            star = "**" * bool(least == group.regret_mean.min())
            cells.append(f"{star}{least:,.0f}{star} ({every.policy[every.regret_mean.idxmin()]})")
        rows.append(cells)
    return markdown(["", *dict.fromkeys(results.posterior)], rows)


def peers_speed() -> str:
    """Microseconds a decision of every library at the three sizes."""
    results = pd.read_csv(RESULTS / "peers" / "peers.csv")
    speed = results[results.measure == "speed"]
    sizes = list(dict.fromkeys(zip(speed.arms, speed.features, strict=True)))
    rows = []
    for (library, policy), group in speed.groupby(["library", "policy"], sort=False):
        times = {(r.arms, r.features): r.value for r in group.itertuples()}
        name = f"**{library}**" if library == "tsucb" else str(library)
        rows.append([name, f"`{policy}`", *(significant(times[size]) for size in sizes)])
    return markdown(["library", "policy", *(f"K = {k}, d = {d}" for k, d in sizes)], rows, 2)


def peers_ratios() -> str:
    """How many times the agent's time with TS-UCB(1) others need, K = 10 and d = 10."""
    results = pd.read_csv(RESULTS / "peers" / "peers.csv")
    here = (results.measure == "speed") & (results.arms == 10) & (results.features == 10)
    speed = results[here].set_index(["library", "policy"])
    agent = speed.value["tsucb", "Agent, TS-UCB(1)"]
    wabbit = speed.value["vowpalwabbit"]
    thompson = speed[speed.kind == "Thompson sampling"].drop(index="tsucb", level=0).value
    slowest, fastest = thompson.groupby(level=0).min().nlargest(1), thompson.nsmallest(1)
    rows = [
        ("Vowpal Wabbit's fastest explorer, examples reused", wabbit.min()),
        ("the same explorer given text, as in its tutorials", wabbit["--epsilon 0.1, as text"]),
        ("Open Bandit Pipeline's LinUCB", speed.value["obp", "LinUCB"]),
        (f"the fastest other Thompson sampling ({fastest.index[0][0]})", fastest.iloc[0]),
        (f"the slowest other Thompson sampling ({slowest.index[0]})", slowest.iloc[0]),
    ]
    return markdown(
        ["K = 10, d = 10", "µs", "times the agent"],
        [[name, significant(value), f"{value / agent:.1f}"] for name, value in rows],
    )


def peers_about() -> str:
    """Machine and versions."""
    machine, versions = (RESULTS / "peers" / "peers.md").read_text().split("\n\n")[:2]
    return f"{machine} {versions}\n"


def peers_regret() -> str:
    """Regret of every library in per cent of exact Thompson sampling's, on the same runs."""
    results = pd.read_csv(RESULTS / "peers" / "peers.csv")
    regret = results[results.measure == "regret, % of TS"]
    rows = []
    for r in regret.itertuples():
        name = f"**{r.library}**" if r.library == "tsucb" else r.library
        span = "" if pd.isna(r.ci95_low) else f"{r.ci95_low:.0f} to {r.ci95_high:.0f}"
        rows.append([name, f"`{r.policy}`", f"{r.value:.0f}", span, f"{r.count}"])
    return markdown(["library", "policy", "% of TS", "95 % interval", "runs"], rows, 2)


def exploration() -> str:
    """Regret with a floor in per cent of that without, by number of arms, and the lost gain."""
    results = pd.read_csv(RESULTS / "exploration.csv")
    results = results[results.epsilon.between(0.001, 0.5)]
    noises = sorted(results.noise.unique())
    rows = []
    for (epsilon, arms), group in results.groupby(["epsilon", "arms"]):
        percent = group.set_index("noise").percent_of_no_floor
        lost = results[(results.epsilon == epsilon) & (results.arms == arms)].percent_of_gain_lost
        rows.append(
            [f"{epsilon:.0%}".replace("%", " %"), f"{arms}"]
            + [f"{percent[noise]:,.0f}" for noise in noises]
            + [f"{lost.mean():.1f}"]
        )
    return markdown(["ε", "K", *(f"σ = {n:g}" for n in noises), "% of the gain lost"], rows, 1)


def propensities() -> str:
    """Uniform choice, judged by the logs of agents with and without a floor."""
    results = pd.read_csv(RESULTS / "propensities.csv")
    rows = []
    for share, logs in results.groupby("share"):
        given = logs.answered.mean()
        covers = f", covering {logs.covers.mean():.0%}" if given > 0.1 else ""
        first = logs.iloc[0]
        rows.append(
            [
                f"{share:.0%}",
                f"{logs.sure.mean():.1%}",
                f"{first.textbook:.3f} ± {first.textbook_error:.3f} ({first.truth:.3f})",
                f"{logs.textbook_z.abs().median():.1f}",
                f"{logs.textbook_covers.mean():.0%}",
                f"{logs.textbook_size.mean():,.0f}",
                f"{given:.0%}{covers}",
            ]
        )
    head = [
        "floor",
        "chosen with probability above 0.999",
        "textbook estimate in the first log (truth)",
        "off by, in standard errors, median",
        "its intervals cover",
        "its effective size, of 3,000",
        "`inverse_propensity` answers",
    ]
    return markdown(head, [[cell.replace("%", " %") for cell in row] for row in rows])


def coverage() -> str:
    """Coverage of the intervals that are given, in per cent, and how often they are."""
    results = pd.read_csv(RESULTS / "coverage.csv")
    results = results[results.target.isin(["greedy", "soft", "uniform"])]
    results = results[results.estimator != "replay"]
    estimators = ("IPS", "self-normalised", "doubly robust", "IPS, one propensity")
    rows = []
    for (arms, size, rewards, logger), group in results.groupby(
        ["arms", "size", "rewards", "logger"], sort=False
    ):
        found = group.set_index(["estimator", "target"]).sort_index()
        cells = [" · ".join(_covers(row) for row in found.loc[e].itertuples()) for e in estimators]
        rows.append([f"{arms} arms, {size:,} {rewards}", str(logger), *cells])
    line = measured("python -m benchmarks.coverage FILE.csv", results)
    return f"{markdown(['log', 'logged by', *estimators], rows, 2)}\n{line}"


def coverage_workflow() -> str:
    """Intervals of `compare`: how often given, how often right, how wide, how often decisive."""
    results = pd.read_csv(RESULTS / "coverage.csv")
    workflow = results.logger.str.contains(" agent ") | (results.estimator == "replay")
    results = results[workflow].rename(columns={"size": "decisions"})
    results = results.sort_values("estimator", kind="stable")
    rows = [
        [
            f"{r.arms} arms, {r.decisions:,} decisions, {r.logger}",
            r.estimator,
            r.target,
            f"{_covers(r)} %",
            f"{r.width:.3f}",
            "" if pd.isna(r.decided) else f"{100 * r.decided:.0f} %",
        ]
        for r in results.itertuples()
    ]
    head = ["log of clicks", "method", "asked about", "covers", "width", "decided"]
    logs = 2 * results.logs.max()
    line = measured(f"python -m benchmarks.coverage FILE.csv {logs} workflow replay", results)
    return f"{markdown(head, rows, 3)}\n{line}"


def _covers(row: Any) -> str:
    """How often given intervals cover, in per cent; how often they are given, if not always."""
    covers = "none" if pd.isna(row.coverage) else f"{100 * row.coverage:.0f}"
    return covers if row.given == 1 else f"{covers} ({100 * row.given:.0f})"


def sets() -> str:
    """Regret and time of every policy on sets of arms."""
    table = pd.read_csv(RESULTS / "sets.csv")
    rows = []
    for (name, d, steps), group in table.groupby(["set", "features", "steps"], sort=False):
        found = group.set_index("policy")
        cells = [
            f"{row.regret:,.0f} ± {(row.ci95_high - row.ci95_low) / 2:,.0f}"
            f" ({significant(row.microseconds)})"
            for _, row in found.iterrows()
        ]
        rows.append([f"{name}, d = {d}", f"{steps:,}", *cells])
    return markdown(["set", "steps", *found.index], rows)


def clicks() -> str:
    """Models of clicks: regret, calibration and time."""
    table = pd.read_csv(RESULTS / "clicks.csv")
    rows = [
        [
            f"{row.steps:,}",
            row.policy,
            row.model,
            f"{row.regret:.0f} ± {(row.ci95_high - row.ci95_low) / 2:.0f}",
            f"{100 * row.cover_50:.0f} / {100 * row.cover_90:.0f}",
            f"{100 * row.cover_50_played:.0f} / {100 * row.cover_90_played:.0f}",
            f"{row.microseconds:.1f}",
        ]
        for row in table.itertuples()
    ]
    head = ["steps", "policy", "model", "regret", "covered", "of the most played", "µs"]
    return markdown(head, rows, 3)


def curves() -> str:
    """The default beside libraries that bend: means, problem by problem, and settings."""
    table = defaults_report.read(RESULTS / "curves")
    parts = defaults_report.summary, defaults_report.problems, defaults_report.settings
    return "\n".join(part(table) for part in parts)


def defaults(section: Callable[[pd.DataFrame], str]) -> str:
    """A section of the benchmark of defaults."""
    return section(defaults_report.read(RESULTS / "defaults"))


def significant(value: float) -> str:
    """A time with about three digits, or a dash."""
    if pd.isna(value):
        return "–"
    return f"{value:,.2f}" if value < 10 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"


def sparse() -> str:
    """Hashed columns and Vowpal Wabbit: mean rewards and time."""
    results = pd.read_csv(RESULTS / "sparse.csv")
    rows = []
    for (problem, player), runs in results.groupby(["problem", "player"], sort=False):
        means, errors = runs.mean(numeric_only=True), runs.sem(numeric_only=True)
        rewards = [f"{means[n]:.3f} ± {errors[n]:.3f}" for n in ("1000", "3000", "10000")]
        rows.append([str(problem), str(player), *rewards, f"{runs.microseconds.median():.0f}"])
    return markdown(["", "", "1,000 decisions", "3,000", "10,000", "µs"], rows, 2)


def sparse_coverage() -> str:
    """Intervals of hashed columns beside the exact posterior's."""
    results = pd.read_csv(RESULTS / "sparse-coverage.csv")
    results = results[(results["columns"] == "apart") | (results.noise == 1)]
    rows = []
    for (columns, features, noise), group in results.groupby(
        ["columns", "features", "noise"], sort=False
    ):
        early, late = group.sort_values("rewards").itertuples()
        both = [f"{100 * r.covered:.0f} % · {r.error:.1f} · {r.width:.1f}" for r in (early, late)]
        rows.append([str(columns), f"{features}", f"{noise:g}", *both])
    header = ["columns", "in a context", "noise / signal", "after 300 rewards", "after 3,000"]
    return markdown(header, rows, 1)


def fixed_factor() -> str:
    """Regret of a UCB with a fixed factor, in per cent of TS's, with intervals."""
    table = pd.read_csv(RESULTS / "fixed-factor.csv")
    table["text"] = [
        f"{r.percent:.0f} ({r.percent_low:.0f} to {r.percent_high:.0f})" for r in table.itertuples()
    ]
    problems = list(dict.fromkeys(zip(table.arms, table.noise, strict=True)))
    texts = table.set_index(["policy", "arms", "noise"]).text
    rows = [[p, *(texts[(p, *each)] for each in problems)] for p in dict.fromkeys(table.policy)]
    head = [f"{arms} arms, noise {noise:g}" for arms, noise in problems]
    return markdown(["regret in % of TS", *head], rows)


def batches() -> str:
    """Microseconds of a row of a batch, beside the batch calls of others."""
    table = pd.read_csv(RESULTS / "batches.csv", dtype={"commit": str})
    parts = []
    for task, every in table.groupby("task", sort=False):
        rows = [
            [
                f"**{library}**" if library == "tsucb" else str(library),
                f"`{policy}`",
                *(f"{x:g}" for x in group.microseconds),
            ]
            for (library, policy), group in every.groupby(["library", "policy"], sort=False)
        ]
        sizes = every.drop_duplicates(["arms", "features"])
        head = [f"K = {r.arms}, d = {r.features}" for r in sizes.itertuples()]
        parts.append(markdown([f"{task}, µs per row", "", *head], rows, 2))
    return "\n".join([*parts, measured("python benchmarks/batches.py --rounds 6", table)])


START = "python benchmarks/start.py docs/results/start.csv"


def start() -> str:
    """Seconds of processor time until an agent has decided, learned, and loaded."""
    table = pd.read_csv(RESULTS / "start.csv", dtype={"commit": str})
    shown = table[table.compiler == "accelerated"]
    rows = [[r.cache, r.what, f"{r.least:g} to {r.most:g}"] for r in shown.itertuples()]
    made = markdown(["cache", "", "seconds"], rows, 2)
    return f"{made}\n{measured(START, table)}"


def compilers() -> str:
    """Processor time of a first decision and reward, with and without the accelerator."""
    table = pd.read_csv(RESULTS / "start.csv", dtype={"commit": str})
    rows = []
    for compiler, name in (("accelerated", "accelerated"), ("public", "`TSUCB_COMPILER=public`")):
        part = table[table.compiler == compiler].set_index(["cache", "what"])
        least, most = (
            [part[column][cache].iloc[0] for cache in ("empty", "filled")]
            for column in ("least", "most")
        )
        rows.append([name, *(f"{a:.3g} to {b:.3g}" for a, b in zip(least, most, strict=True))])
    made = markdown(["seconds", "empty cache", "filled cache"], rows)
    return f"{made}\n{measured(START, table)}"


def engine() -> str:
    """The compiled loop in multiples of one that is written by hand."""
    table = pd.read_csv(RESULTS / "engine.csv", dtype={"commit": str})
    rows = [
        [
            f"K = {arms}, d = {features}: {microseconds:g} µs",
            *(f"{r.ratio:.2f} ± {r.margin:.2f}" for r in group.itertuples()),
        ]
        for (arms, features, microseconds), group in table.groupby(
            ["arms", "features", "hand_written_microseconds"], sort=False
        )
    ]
    head = ["times the hand-written loop", *dict.fromkeys(table.policy)]
    return f"{markdown(head, rows)}\n{measured('make bench', table)}"


def exact() -> str:
    """Regret and time of exact and sampled decisions."""
    table = pd.read_csv(RESULTS / "exact.csv", dtype={"commit": str})
    rows, last = [], None
    for r in table.dropna().itertuples():
        interval = "" if r.policy == "TS" else f" ({r.ci95_low:.1f} to {r.ci95_high:.1f})"
        percent = "100" if r.policy == "TS" else f"{r.percent:.1f}"
        cell = (r.arms, r.noise)
        first = "" if cell == last else f"{r.arms}, {r.noise:g}"
        rows.append([first, r.policy, percent + interval, f"{r.std:.0f}", f"{r.microseconds:.1f}"])
        last = cell
    head = ["arms, noise", "policy", "regret, % of TS", "standard deviation", "µs per step"]
    return f"{markdown(head, rows, 2)}\n{measured('python docs/figures/exact.py measure', table)}"


def exact_decisions() -> str:
    """Microseconds of one decision, exact and sampled."""
    table = pd.read_csv(RESULTS / "exact-decisions.csv", dtype={"commit": str})
    shown = table[table.policy.str.contains("UCB|IDS") & (table.policy != "TS-UCB(1)")]
    wide = shown.pivot(index="policy", columns="arms", values="microseconds")
    rows = [[name, *(f"{x:g}" for x in wide.loc[name])] for name in dict.fromkeys(shown.policy)]
    head = ["µs per decision", *(f"{arms} arms" for arms in wide.columns)]
    return f"{markdown(head, rows)}\n{measured('python -m benchmarks.exact FILE.csv', table)}"


def difference(pair: str, arms: int) -> str:
    """Return a difference of regrets with its interval, in per cent of TS's."""
    table = pd.read_csv(RESULTS / "exact.csv").set_index(["policy", "arms"])
    row = table.loc[(pair, arms)]
    text = f"{row.percent:+.1f} % ({row.ci95_low:+.1f} to {row.ci95_high:+.1f})"
    return text.replace("-", "−")


def measured(command: str, table: pd.DataFrame) -> str:
    """Return the line below a table: its command, and the commit that it was run at."""
    commits = ", ".join(dict.fromkeys(table["commit"]))
    return f"<small>`{command}`, at commit {commits}.</small>\n"


TABLES: dict[str, Callable[[], str]] = (
    {
        make.__name__.replace("_", "-"): make
        for make in (
            choosing,
            service_faults,
            service_sizes,
            few_arms,
            waits,
            pricing,
            arms_growth,
            agent_speed,
            cluster,
            fixed_arms,
            intervals,
            intervals_clicks,
            intervals_others,
            intervals_own,
            true_prior,
            new_arm,
            figure1_claims,
            figure1_search,
            theorems_claims,
            news,
            table2,
            table2_medians,
            table2_ties,
            table2_growth,
            posteriors,
            posteriors_regret,
            peers_speed,
            peers_ratios,
            peers_regret,
            peers_about,
            exploration,
            propensities,
            coverage,
            coverage_workflow,
            sets,
            clicks,
            sparse,
            sparse_coverage,
            fixed_factor,
            batches,
            start,
            compilers,
            engine,
            exact,
            exact_decisions,
            curves,
            command_line,
            http_api,
        )
    }
    | {
        "changes": partial(changes, "plain", "clicks", "shop"),
        "changes-tastes": partial(changes, "tastes"),
        "service-speed": partial(
            service_speed, "as fast as it goes, 64 connections", "1,000 a second"
        ),
        "service-overload": partial(
            service_speed,
            "as fast as it goes, 256 connections",
            "1 times as many visits",
            "1.5 times as many visits",
            "3 times as many visits",
        ),
        "service-beside": partial(
            service_speed, "200 a second", "200 a second, beside a busy loop"
        ),
        "service-many": partial(service_speed, "10,000 loops, 10,000 connections"),
    }
    | {
        "arms-articles": partial(
            scores,
            "regret in 2,000 rounds",
            "articles",
            {
                "articles, tsucb": "`tsucb.Agent()`",
                "articles, bayesianbandits": "bayesianbandits, the notebook's hybrid model",
            },
        ),
        "arms-news": partial(
            scores,
            "share of clicks",
            "news",
            {
                "news, tsucb": "`tsucb.Agent()`",
                "news, crossed": "… with user and time as one feature",
                "news: share of clicks, without pairs": "… without pairs of user and time",
                "news, vowpalwabbit": "Vowpal Wabbit, the tutorial's settings",
            },
        ),
        "arms-pairs": partial(
            scores,
            "regret in 1,500 rounds",
            "pairs",
            {
                f"effects that {do}: regret, {pairs}": f"effects that {do}, {pairs}"
                for do in ("add up", "do not")
                for pairs in ("with pairs", "without pairs")
            },
        ),
    }
    | {name: partial(defaults, section) for name, section in defaults_report.SECTIONS.items()}
)


def share_of_ts(policy: str) -> tuple[float, float, float]:
    """Return the mean, least and greatest share of TS's regret over the cells of Figure 1."""
    cells = pd.read_csv(RESULTS / "figure1.csv")
    found = cells.percent_of_ts[cells.policy == policy]
    return found.mean(), found.min(), found.max()


def share_of_best(features: str) -> float:
    """Return the mean reward of the defaults after 3,000 steps, in per cent of the best library's.

    Over the datasets, with features as they are ("raw") or standardised.
    """
    every = defaults_report.by_problem(defaults_report.read(RESULTS / "defaults"))
    runs = dict(defaults_report.lengths(defaults_report.as_is(every)))[3_000]
    scores = defaults_report.percentages(runs)
    found = [of[defaults_report.OURS].percent for key, of in scores.items() if key[1] == features]
    return sum(found) / len(found)


def peers(library: str, policy: str) -> str:
    """Return microseconds of a decision with its update, K = 10, d = 10."""
    table = pd.read_csv(RESULTS / "peers" / "peers.csv")
    table = table[(table.measure == "speed") & (table.arms == 10) & (table.features == 10)]
    found = table[(table.library == library) & (table.policy == policy)].value
    return significant(found.item())


def least_of_others() -> str:
    """Return the microseconds of the fastest library but ours and Vowpal Wabbit."""
    table = pd.read_csv(RESULTS / "peers" / "peers.csv")
    table = table[(table.measure == "speed") & (table.arms == 10) & (table.features == 10)]
    return f"{table[~table.library.isin(['tsucb', 'vowpalwabbit'])].value.min():.0f}"


def time_of_logistic() -> str:
    """Return how many times as long as AdaptiveLinear a step of LogisticArms takes, by policy."""
    table = pd.read_csv(RESULTS / "clicks.csv")
    wide = table[table.steps == 20_000].pivot(
        index="policy", columns="model", values="microseconds"
    )
    ratio = wide["LogisticArms"] / wide["AdaptiveLinear"]
    return f"{ratio.min():.1f} to {ratio.max():.1f} times"


def cost_of_ids(rival: str) -> str:
    """Return how many times a rival's time IDS(1000) takes, least and most over numbers of arms."""
    times = pd.read_csv(RESULTS / "figure1-times.csv")
    table = times.pivot(index="arms", columns="policy", values="seconds_per_run_median")
    ratio = table["IDS(1000)"] / table[rival]
    return f"{ratio.min():.0f} to {ratio.max():.0f} times"


def figure1_tasks(with_ids: bool) -> list[float]:
    """Return the seconds of every task of Figure 1: the mean of its number of arms and policy."""
    times = pd.read_csv(RESULTS / "figure1-times.csv")
    times = times[with_ids | (times.policy != "IDS(1000)")]
    return [r.seconds_sum / r.tasks for r in times.itertuples() for _ in range(r.tasks)]


def makespan(cores: int, with_ids: bool) -> float:
    """Return the seconds of Figure 1 if each task goes to the next free core, longest first."""
    free = [0.0] * cores
    for seconds in sorted(figure1_tasks(with_ids), reverse=True):
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def growth_of_agent(arms: int, features: int) -> str:
    """Return the time of a decision of the agent with its update, by arms and features."""
    table = pd.read_csv(RESULTS / "peers" / "peers.csv")
    grown = table.measure.str.startswith("growth") & (table.policy == "Agent, TS-UCB(1)")
    found = table[grown & (table.arms == arms) & (table.features == features)].value.iloc[0]
    return f"{found:.3g} µs" if found < 1_000 else f"{found / 1_000:.2g} ms"


def text_prior() -> str:
    """Return the regret of TS-UCB(1) in per cent of TS's with the prior of the paper's text."""
    cells = pd.read_csv(RESULTS / "figure1-text.csv")
    cells = cells[cells.policy == "TS-UCB(1)"]
    half = ((cells.ci95_high - cells.ci95_low) / 2).pow(2).sum() ** 0.5 / len(cells)
    return f"{cells.percent_of_ts.mean():.1f} ± {half:.1f} %"


def noisy(column: str) -> tuple[float, float]:
    """Return the least and most of a column where noise is at least as large as the signal."""
    table = pd.read_csv(RESULTS / "sparse-coverage.csv")
    found = table[(table["columns"] == "apart") & (table.noise >= 1)][column]
    return found.min(), found.max()


def sparse_times(problem: str, player: str, rival: str) -> float:
    """Return how many times as long as a rival a player takes on a problem."""
    medians = pd.read_csv(RESULTS / "sparse.csv").groupby(["problem", "player"]).microseconds
    times = medians.median()
    return float(times[problem, player] / times[problem, rival])


def sparse_share() -> str:
    """Return the time with all pairs in per cent of SquareCB's, least and most."""
    found = [
        100 * sparse_times(problem, "tsucb, all pairs", "VW SquareCB, all pairs")
        for problem in ("adult", "census", "made")
    ]
    return f"{min(found):.0f} to {max(found):.0f} %"


def gain_with_heads() -> str:
    """Return by how much TS-UCB cuts the regret of TS where heads make TS worse than others do."""
    table = pd.read_csv(RESULTS / "posteriors.csv")
    worst = table[table.policy == "TS"].groupby("dataset").regret_mean.idxmax()
    where = table.loc[worst]
    datasets = where.dataset[where.posterior == "bootstrapped heads"]
    heads = (table.posterior == "bootstrapped heads") & table.dataset.isin(datasets)
    cut = 100 - table[heads & (table.policy != "TS")].percent_of_ts
    return f"{cut.min():.0f} to {cut.max():.0f} %"


def table2_share(dataset: str, policy: str) -> float:
    """Return the regret of a policy in per cent of TS's, in Table 2."""
    table = pd.read_csv(RESULTS / "table2.csv").set_index(["dataset", "policy"])
    return float(table.percent_of_ts[dataset, policy])


def farthest_from_ts() -> float:
    """Return how far TS-UCB is from TS, in per cent, where greedy wins in the paper."""
    names = [
        (d, p) for d in ("census", "covertype", "jester") for p in ("TS-UCB(1)", "TS-UCB(100)")
    ]
    return max(abs(100 - table2_share(*name)) for name in names)


def posterior_ratio(posterior: str, dataset: str, policy: str) -> float:
    """Return the regret of a policy in multiples of TS's with the same posterior."""
    table = pd.read_csv(RESULTS / "posteriors.csv").set_index(["posterior", "dataset", "policy"])
    return float(table.percent_of_ts[posterior, dataset, policy]) / 100


def growth(larger: tuple[int, int], smaller: tuple[int, int]) -> float:
    """Return how many times as long a task of Table 2 takes, by runs and steps."""
    times = pd.read_csv(RESULTS / "table2-growth.csv").set_index(["runs", "horizon"]).seconds
    return float(times[larger] / times[smaller])


FIGURES: dict[str, Callable[[], str]] = {
    "grid-tsucb1": lambda: f"{share_of_ts('TS-UCB(1)')[0]:.0f} %",
    "grid-tsucb1-range": lambda: "{1:.0f} to {2:.0f} %".format(*share_of_ts("TS-UCB(1)")),
    "defaults-raw": lambda: f"{share_of_best('raw'):.1f} %",
    "defaults-standardised": lambda: f"{share_of_best('standardised'):.1f} %",
    "peers-agent": lambda: peers("tsucb", "Agent, TS-UCB(1)"),
    "clicks-time": time_of_logistic,
    "peers-others": least_of_others,
    "peers-simulate": lambda: peers("tsucb", "simulate, TS-UCB(1)"),
    "peers-vw": lambda: peers("vowpalwabbit", "--epsilon 0.1"),
    "ids-cost-1": lambda: cost_of_ids("TS-UCB(1)"),
    "ids-cost-100": lambda: cost_of_ids("TS-UCB(100)"),
    "greedy-census": lambda: f"{table2_share('census', 'Greedy'):.0f} %",
    "greedy-covertype": lambda: f"{table2_share('covertype', 'Greedy'):.0f} %",
    "greedy-jester": lambda: f"{table2_share('jester', 'Greedy'):.0f} %",
    "tsucb-there": lambda: f"{math.ceil(farthest_from_ts())} %",
    "ensemble-mushroom": lambda: (
        f"{posterior_ratio('deep ensemble', 'mushroom', 'TS-UCB(100)'):.1f} times"
    ),
    "growth-runs": lambda: f"{growth((400, 10_000), (50, 10_000)):.1f} times",
    "growth-steps": lambda: f"{growth((200, 10_000), (200, 2_500)):.1f} times",
    "exact-tsucb-5": lambda: difference("TS-UCB(∞) − TS-UCB(100)", 5),
    "exact-tsucb-20": lambda: difference("TS-UCB(∞) − TS-UCB(100)", 20),
    "exact-ids-5": lambda: difference("IDS(∞) − IDS(1000)", 5),
    "exact-ids-20": lambda: difference("IDS(∞) − IDS(1000)", 20),
    "peers-ts": lambda: peers("coba", "LinTSLearner"),
    "greedy-mushroom": lambda: f"{table2_share('mushroom', 'Greedy') / 100:.1f} times",
    "text-prior": text_prior,
    "heads-gain": gain_with_heads,
    "sparse-covers": lambda: "{:.0f} to {:.0f} %".format(*(100 * x for x in noisy("covered"))),
    "sparse-errs": lambda: "{:.0f} to {:.0f} %".format(*(100 * x - 100 for x in noisy("error"))),
    "sparse-share": sparse_share,
    "sparse-census": lambda: (
        f"{sparse_times('census', 'tsucb, default', 'tsucb, all pairs'):.1f} times"
    ),
    "sparse-made": lambda: (
        f"{sparse_times('made', 'tsucb, default', 'tsucb, all pairs'):.0f} times"
    ),
    "cluster-tasks": lambda: f"{len(figure1_tasks(True)):,}",
    "cluster-seconds": lambda: f"{sum(figure1_tasks(True)):,.0f} seconds",
    "cluster-without": lambda: f"{sum(figure1_tasks(False)):,.0f} seconds",
    "cluster-longest": lambda: f"{max(figure1_tasks(True)):.0f} seconds",
}
FIGURES |= {
    f"agent-{arms}-{features}": partial(growth_of_agent, arms, features)
    for arms, features in ((100, 20), (1_000, 20), (10_000, 20), (10, 100), (10, 1_000))
}


def fill(text: str, page: Path) -> str:
    """Return the text of a page with its tables, figures and reference entries made again."""

    def made(mark: re.Match[str]) -> str:
        start, table, figure, end = mark.groups()
        try:
            return start + (TABLES[table]() if table else FIGURES[figure]()) + end
        except FileNotFoundError:
            return mark[0]

    return fill_entries(MARK.sub(made, text), page)


if __name__ == "__main__":
    for page in [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]:
        page.write_text(fill(page.read_text(), page))
