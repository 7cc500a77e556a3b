"""Theorems 1 and 2: Bayes regret of TS-UCB against its bounds; Lemma 1: how often bounds fail.

Below the experiment are the checks of their statements.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import betaincinv

from tsucb.checks import whole_number
from tsucb.environments import KArmedBandit, LinearBandit
from tsucb.numeric.arrays import Floats
from tsucb.numeric.statistics import mean_interval
from tsucb.pages.figures import Figure, legend_above, panel_for_each, style
from tsucb.paper.bounds import (
    Escapes,
    RidgeLinear,
    k_armed_escapes,
    linear_escapes,
    theorem_1,
    theorem_2,
)
from tsucb.paper.experiments.claims import Claim, Verdict
from tsucb.paper.experiments.experiment import Cell, Experiment, Task, name_axes
from tsucb.policies import HoeffdingUCB
from tsucb.policies.names import samples_of
from tsucb.sets import Ball, SetBandit

if TYPE_CHECKING:
    import matplotlib.figure

LEMMAS = ("lemma 1, K-armed", "lemma 1, linear")
SIDES = ("above", "below")
LONG = 100_000  # before this step, regret may still grow linearly
OURS = "TS-UCB"
ON_THE_BALL = "theorem 2, ball"
THEOREMS = {  # the bound, the letter for its size, and its order
    "theorem 1": (theorem_1, "K", "O(√(K T log T))"),
    "theorem 2": (theorem_2, "d", "O(d log T √T)"),
    ON_THE_BALL: (theorem_2, "d", "O(d log T √T)"),
}
POLICIES = ("TS", "TS-UCB(1)", "TS-UCB(10)", "TS-UCB(100)", "UCB")
ANY = "any"  # in place of a policy, for the lemmas: they hold for all policies
LINEAR_ARMS = 50
ESCAPE_FEATURES = 3
BATCH = 10_000  # replications of a lemma in one run


@dataclass(frozen=True, kw_only=True)
class Theorems(Experiment):
    """Section 3 of the paper, measured.

    Theorem 1: K Bernoulli arms with Beta(1, 1) prior. Theorem 2: 50 random unit vectors in d
    dimensions, and all vectors of the unit ball; noise N(0, 1), θ ~ N(0, I/(16 d)), so that
    ‖θ‖ ≤ 1 (and with it every assumption) holds in all but one run in millions. TS-UCB needs no
    horizon, so a run of T steps is also a run of every shorter horizon.

    Parameters
    ----------
    horizon : the longest T
    arms : values of K for Theorem 1
    features : values of d for Theorem 2
    ball_features : values of d for Theorem 2 on the unit ball
    short_horizons : values of T for Lemma 1, short enough to tell T⁻³ from zero
    """

    horizon: int
    arms: tuple[int, ...] = (2, 10, 50)
    features: tuple[int, ...] = (2, 5, 20)
    ball_features: tuple[int, ...] = (2, 5)
    short_horizons: tuple[int, ...] = (10, 20)

    name: ClassVar[str] = "theorems"
    title: ClassVar[str] = "Theorems 1 and 2: Bayes regret and its bounds"
    axes: ClassVar[tuple[str, ...]] = ("experiment", "size")
    scales: ClassVar[dict[str, dict[str, Any]]] = {
        "quick": {"runs": 20, "policies": POLICIES, "horizon": 10_000},
        "full": {
            "runs": 100,
            "policies": POLICIES,
            "horizon": 100_000,
            "short_horizons": (10, 20, 50),
        },
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("horizon", self.horizon, least=1000)

    def policy(self, name: str, cell: Cell = ()) -> Any:
        """Return the policy of a printed name; UCB has the confidence bounds of the theorem."""
        if name == "UCB" and cell[:1] == ("theorem 1",):
            return HoeffdingUCB(self.horizon)
        return super().policy(name)

    def cells(self) -> Sequence[Cell]:
        sizes = {
            "theorem 1": self.arms,
            "theorem 2": self.features,
            ON_THE_BALL: self.ball_features,
        }
        return [(theorem, size) for theorem, some in sizes.items() for size in some]

    def tasks(self) -> list[Task]:
        lemmas = [
            Task((lemma, T), ANY, first, min(first + 10, batches))
            for lemma in LEMMAS
            for T in self.short_horizons
            for batches in [-(-4 * T**3 // BATCH)]  # enough to tell T⁻³ from zero
            for first in range(0, batches, 10)
        ]
        return super().tasks() + lemmas

    def steps(self, cell: Cell) -> int:
        return self.horizon if cell[0] in THEOREMS else BATCH * int(cell[1])

    def seconds(self, cell: Cell, policy: str) -> float:
        """Return the seconds of one run on one core: a time per step, per arm and per sample."""
        kind, size = str(cell[0]), int(cell[1])
        if kind in LEMMAS:
            step = 0.02 if kind == LEMMAS[0] else 1.0
        elif kind == ON_THE_BALL:
            step = 1.0 + 0.003 * size**3 + samples_of(policy) * 0.001 * size * (1 + size)
        else:
            arms = size if kind == "theorem 1" else LINEAR_ARMS * (0.1 + size / 100)
            step = 1.5 + arms * (0.05 + 0.05 * samples_of(policy))
        return 1e-6 * step * self.steps(cell)

    def checkpoints(self, cell: Cell = ()) -> list[int]:
        """Return the horizons at which regret is recorded: six in every decade from 100 to T."""
        count = round(6 * np.log10(self.horizon / 100)) + 1
        return sorted({round(T) for T in np.geomspace(100, self.horizon, count).tolist()})

    def environment(self, cell: Cell) -> Any:
        kind, size = str(cell[0]), int(cell[1])
        if kind == "theorem 1":
            return KArmedBandit(size)
        variance = 1 / (16 * size)
        if kind == ON_THE_BALL:
            return SetBandit(Ball(size), prior_variance=variance)
        return LinearBandit(LINEAR_ARMS, size, prior_variance=variance)

    def model(self, cell: Cell, environment: Any) -> Any:
        return environment.prior if cell[0] == "theorem 1" else RidgeLinear(environment.model())

    def run(self, cell: Cell, policy: str, runs: range) -> pd.DataFrame:
        if cell[0] not in LEMMAS:
            return super().run(cell, policy, runs)
        return escape_rows(str(cell[0]), int(cell[1]), runs, self.world_seed(cell))

    def numbers(self, cell: Cell) -> dict[str, int]:
        return dict.fromkeys(Escapes._fields, 0) if cell[0] in LEMMAS else super().numbers(cell)

    def bounded_curves(self, rows: pd.DataFrame) -> Iterator[tuple[list[Any], Floats, Floats]]:
        """Yield [theorem, setting, policy], the curves (runs, n) and the bound at n checkpoints."""
        for cell in self.cells():
            kind, size = str(cell[0]), int(cell[1])
            bound, letter, _ = THEOREMS[kind]
            limits = bound(size, np.array(self.checkpoints(), dtype=float))
            for policy, curves in self.curves(rows, cell).items():
                yield [kind, f"{letter} = {size}", policy], curves, limits

    def summary(self, rows: pd.DataFrame) -> pd.DataFrame:
        table = []
        for setting, curves, limits in self.bounded_curves(rows):
            for T, regrets, limit in zip(self.checkpoints(), curves.T, limits, strict=True):
                mean, _, low, high = mean_interval(regrets)
                table.append([*setting, T, mean, low, high, limit])
        names = "experiment,setting,policy,horizon,bayes_regret,ci95_low,ci95_high,bound"
        return pd.DataFrame(table, columns=names.split(","))

    def tables(self, rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {"exponents": self.exponents(rows), "escapes": self.escapes(rows)}

    def exponents(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return the slopes of log regret and of the log bound over log T in the last decade.

        The interval is the middle 95 % of 1,000 bootstrap samples of the runs.
        """
        horizons = np.array(self.checkpoints())
        last = np.log10(horizons) >= np.log10(self.horizon) - 1 - 1e-9
        x = np.log(horizons[last])

        def slope(regret: Floats) -> Floats:
            return np.asarray(np.polyfit(x, np.log(regret[..., last]).T, 1)[0])

        table = []
        for setting, curves, limits in self.bounded_curves(rows):
            rng = np.random.default_rng(self.seed)
            resampled = curves[rng.integers(len(curves), size=(1000, len(curves)))].mean(axis=1)
            low, high = np.quantile(slope(resampled), [0.025, 0.975])
            exponent = float(slope(curves.mean(axis=0)))
            table.append([*setting, exponent, low, high, float(slope(limits))])
        names = "experiment,setting,policy,exponent,ci95_low,ci95_high,exponent_of_bound"
        return pd.DataFrame(table, columns=names.split(","))

    def escapes(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return how often a mean was outside its bounds, and a 95 % upper bound of that rate."""
        table = []
        for lemma in LEMMAS:
            for T in self.short_horizons:
                here = rows[(rows.experiment == lemma) & (rows["size"] == T)]
                n = BATCH * len(here)
                for side in SIDES:
                    count = int(here[side].sum())
                    high = float(betaincinv(count + 1, n - count, 0.95))  # Clopper and Pearson
                    closest = float(here.closest.max())
                    table.append([lemma, T, side, n, count, count / n, high, T**-3.0, closest])
        names = "lemma,horizon,side,replications,escapes,frequency,upper95,bound,closest"
        return pd.DataFrame(table, columns=names.split(","))

    def notes(self) -> list[str]:
        notes = [
            "The bounds are about TS-UCB; TS and UCB are shown for comparison. UCB of Theorem 1 "
            f"knows the horizon {self.horizon:,}; no other policy does."
        ]
        if self.horizon < 100_000:
            notes.append(f"Horizons up to {self.horizon:,}; --scale full goes to 100,000.")
        return notes

    def figures(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Figure]:
        return [
            Figure(
                "theorems",
                "Bayes regret against the bounds",
                f"Mean over {self.runs} runs with 95 % bands, on logarithmic axes; above all, the "
                "bound on TS-UCB. Theorem 1: K Bernoulli arms. Theorem 2: unit vectors in d "
                "dimensions, 50 of them or, on the ball, all.",
                lambda narrow: self.draw(summary, narrow),
            )
        ]

    def draw(self, summary: pd.DataFrame, narrow: bool) -> matplotlib.figure.Figure:
        """Draw regret over the horizon on logarithmic axes, one panel per setting."""
        settings = list(dict.fromkeys(zip(summary.experiment, summary.setting, strict=True)))
        columns = 2 if narrow else max(sum(e == name for e, _ in settings) for name in THEOREMS)
        figure, panels = panel_for_each(settings, columns, narrow, 2.1 if narrow else 2.8)
        for panel, (experiment, setting) in zip(panels, settings, strict=True):
            here = summary[(summary.experiment == experiment) & (summary.setting == setting)]
            for policy in self.policies:
                line = here[here.policy == policy]
                look = style(policy)
                panel.plot(line.horizon, line.bayes_regret, **look)
                low, high = line.ci95_low.clip(lower=0.01), line.ci95_high
                shade = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
                panel.fill_between(line.horizon, low, high, **shade)
            line = here[here.policy == self.policies[0]]
            look = style("bound") | {"linewidth": 2.5}
            panel.plot(line.horizon, line.bound, **look)
            panel.set(xscale="log", yscale="log", title=f"{capitalise(experiment)}, {setting}")
            panel.set_ylim(bottom=max(0.5, here.bayes_regret.min() / 2))
        name_axes(figure, "horizon T", "Bayes regret")
        legend_above(figure, panels[0], narrow)
        return figure

    def claims(self, rows: pd.DataFrame, summary: pd.DataFrame) -> list[Claim]:
        return section_3(summary, self.exponents(rows), self.escapes(rows), self.horizon)


def escape_rows(lemma: str, horizon: int, runs: range, seed: int) -> pd.DataFrame:
    """Return a row per run: how many of `BATCH` replications left the bounds of a lemma."""
    rows = []
    for run in runs:
        rng = np.random.default_rng((seed, run))
        if lemma == LEMMAS[0]:
            escapes = k_armed_escapes(horizon, BATCH, rng)
        else:
            escapes = linear_escapes(ESCAPE_FEATURES, horizon, BATCH, rng)
        rows.append({"run": run, **escapes._asdict()})
    return pd.DataFrame(rows)


def capitalise(name: str) -> str:
    """Return the name with its first letter, and no other, made a capital.

    >>> capitalise("lemma 1, K-armed")
    'Lemma 1, K-armed'
    """
    return name[:1].upper() + name[1:]


def all_below(low: pd.Series, high: pd.Series, bound: pd.Series) -> Verdict:
    """Return yes if all intervals lie below their bounds, no if one lies above, else None."""
    return True if (high <= bound).all() else False if (low > bound).any() else None


def stays_below_the_bound(theorem: str, policy: str, here: pd.DataFrame) -> Claim:
    """Return the claim that the regret of a policy is below the bound at every horizon.

    `here` are the lines of the summary about this theorem and this policy.
    """
    percent = float((100 * here.ci95_high / here.bound).max())
    return Claim(
        f"{capitalise(theorem)}: the Bayes regret of {policy} is below the bound at every horizon",
        "below 100 % of it",
        f"at most {percent:.1f} % of it (upper end of 95 %)",
        "the 95 % interval is below the bound at every horizon",
        all_below(here.ci95_low, here.ci95_high, here.bound),
    )


def grows_no_faster(theorem: str, table: pd.DataFrame, horizon: int) -> Claim:
    """Return the claim that the regret of TS-UCB grows no faster than the bound.

    `table` has the exponents about this theorem.
    """
    ours = table[table.policy.str.startswith(OURS)]
    if ours.empty:
        exponent, verdict = table.exponent_of_bound.max(), None
        measured = f"not measured: {OURS} with any number of samples"
    else:
        worst = ours.iloc[int((ours.exponent - ours.exponent_of_bound).argmax())]
        exponent = worst.exponent_of_bound
        measured = (
            f"largest {worst.exponent:.2f}, 95 % interval {worst.ci95_low:.2f} to "
            f"{worst.ci95_high:.2f} ({worst.policy}, {worst.setting})"
        )
        verdict = all_below(ours.ci95_low, ours.ci95_high, ours.exponent_of_bound)
        if horizon < LONG and verdict is False:
            measured, verdict = f"{measured}; too short a horizon to tell", None
    return Claim(
        f"{capitalise(theorem)}: the regret of TS-UCB grows no faster than {THEOREMS[theorem][2]}",
        f"T to the power {exponent:.2f} in the last decade",
        measured,
        "every 95 % interval of an exponent is below that of the bound",
        verdict,
    )


def rarely_escapes(lemma: str, side: str, here: pd.DataFrame) -> Claim:
    """Return the claim of a lemma that a mean rarely lies on one side of its bounds.

    `here` are the lines of the escapes about this lemma and this side.
    """
    longest, sign = here.iloc[-1], "U" if side == "above" else "L"
    count, n = here.escapes.clip(lower=1), here.replications
    low = betaincinv(count, n - count + 1, 0.05)  # Clopper and Pearson
    return Claim(
        f"{capitalise(lemma)}: a mean lies {side} its bound {sign}(A) with probability at most T⁻³",
        f"{float(longest.horizon) ** -3:.1e} at T = {longest.horizon}",
        f"{longest.escapes} of {longest.replications:,} runs, so at most {longest.upper95:.1e}; "
        f"the farthest was {longest.closest:.2f} radii away",
        "the 95 % upper bound is at most T⁻³ for every T",
        all_below(low.where(here.escapes > 0, 0.0), here.upper95, here.bound),
    )


def section_3(
    summary: pd.DataFrame, exponents: pd.DataFrame, escapes: pd.DataFrame, horizon: int
) -> list[Claim]:
    """Return every statement of Section 3 that the tables of the experiment can check."""
    claims = []
    for theorem, here in summary.groupby("experiment", sort=False):
        for policy, ours in here.groupby("policy", sort=False):
            if str(policy).startswith(OURS):
                claims.append(stays_below_the_bound(str(theorem), str(policy), ours))
        table = exponents[exponents.experiment == theorem]
        claims.append(grows_no_faster(str(theorem), table, horizon))
    for (lemma, side), here in escapes.groupby(["lemma", "side"], sort=False):
        claims.append(rarely_escapes(str(lemma), str(side), here))
    return claims
