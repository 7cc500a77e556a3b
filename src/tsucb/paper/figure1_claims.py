"""The sentences of Section 4.1.1 of the paper, each beside what was measured."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tsucb.numeric.statistics import NORMAL, percent_of
from tsucb.paper.experiments.claims import Check, Claim, Finding, check_claims

if TYPE_CHECKING:
    import pandas as pd

TS, ONE, HUNDRED, GREEDY, UCB, IDS = "TS", "TS-UCB(1)", "TS-UCB(100)", "Greedy", "UCB", "IDS"
GRID = "IDS-grid"  # IDS as the authors searched it
ALL_CELLS = "all 25 cells"


class Percentages:
    """Regret in per cent of that of TS: for every policy (cells, runs), paired by run.

    Parameters
    ----------
    rows : columns arms, noise, policy, run, regret
    cells : pairs (arms, noise)
    policies : names, with TS; any IDS(m) is called IDS here, and IDS-grid(m) IDS-grid
    """

    def __init__(
        self,
        rows: pd.DataFrame,
        cells: tuple[tuple[int, float], ...],
        policies: tuple[str, ...],
    ) -> None:
        self.rows = rows
        self.cells = cells
        self.policies = policies

    @cached_property
    def of(self) -> dict[str, NDArray[np.float64]]:
        """Of every policy the percentages (cells, runs)."""
        table = self.rows.pivot(index=["arms", "noise"], columns=["policy", "run"], values="regret")
        table = table.sort_index(axis=1)  # runs are paired whatever order they come in
        regret = {p: table[p].loc[list(self.cells)].to_numpy() for p in self.policies}
        return {plain(p): percent_of(values, regret[TS]) for p, values in regret.items()}

    def mean(self, policy: str) -> NDArray[np.float64]:
        """Mean over the runs, of every cell."""
        return np.asarray(self.of[policy].mean(axis=1))

    def where(self, policy: str, *, arms: int | None = None, noise: float | None = None) -> float:
        """Mean over the cells with that many arms, or that noise."""
        chosen = [k == arms or s == noise for k, s in self.cells]
        return float(self.mean(policy)[chosen].mean())

    def overall(self, policy: str) -> tuple[float, float]:
        """Mean over runs and cells, and the half-width of its 95 % interval."""
        values = self.of[policy]
        return float(values.mean()), half_width(values)

    def excess(self, policy: str, other: str) -> tuple[float, float]:
        """By how many per cent the policy's regret exceeds the other's, and the half-width.

        Like all of the paper's figures, the mean of the ratios of paired runs.
        """
        ratios = 100 * (self.of[policy] / self.of[other] - 1)
        return float(ratios.mean()), half_width(ratios)

    def wins(self, policy: str, other: str) -> tuple[int, int, int]:
        """In how many cells the policy has less regret: counted, and the fewest and most likely.

        A cell is decided where the 95 % interval of the difference excludes zero.
        """
        difference = self.of[policy] - self.of[other]
        mean = difference.mean(axis=1)
        width = np.array([half_width(cell[None]) for cell in difference])
        won, lost = int((mean < -width).sum()), int((mean > width).sum())
        return int((mean < 0).sum()), won, len(self.cells) - lost


def plain(policy: str) -> str:
    """The policy's name, that of IDS and IDS-grid without their number of samples."""
    name = policy.partition("(")[0]
    return name if name in (IDS, GRID) else policy


def half_width(values: NDArray[np.float64]) -> float:
    """Of the 95 % interval of the mean over independent cells (cells, runs) of means over runs."""
    cells, runs = values.shape
    if runs < 2:
        return float("inf")
    return float(NORMAL * np.sqrt((values.var(axis=1, ddof=1) / runs).sum()) / cells)


def across_the_board(policy: str) -> Callable[[Percentages], Finding]:
    """The policy is below TS in every cell."""

    def find(p: Percentages) -> Finding:
        mean = p.mean(policy)
        arms, noise = p.cells[int(mean.argmax())]
        below = int((mean < 100).sum())
        text = f"{below} of 25 cells; highest {mean.max():.1f} % (K = {arms}, σ = {noise:g})"
        return Finding(text, below == 25)

    return find


def comes_to(policy: str, paper: float) -> Callable[[Percentages], Finding]:
    """The policy's mean over the cells is the paper's, within its interval or one point."""

    def find(p: Percentages) -> Finding:
        mean, width = p.overall(policy)
        return Finding(f"{mean:.1f} ± {width:.1f} %", abs(mean - paper) <= max(1.0, width))

    return find


def exceeds_by(policy: str, other: str, paper: float) -> Callable[[Percentages], Finding]:
    """The policy's regret exceeds the other's by the paper's per cent, within interval or one."""

    def find(p: Percentages) -> Finding:
        mean, width = p.excess(policy, other)
        return Finding(f"{mean:+.1f} ± {width:.1f} %", abs(mean - paper) <= max(1.0, width))

    return find


def inconsistent(policy: str) -> Callable[[Percentages], Finding]:
    """The policy is better than TS in some cells and worse in others."""

    def find(p: Percentages) -> Finding:
        mean = p.mean(policy)
        return Finding(
            f"from {mean.min():.0f} to {mean.max():.0f} %", bool(mean.min() < 100 < mean.max())
        )

    return find


def halving(p: Percentages) -> Finding:
    count = int((np.minimum(p.mean(ONE), p.mean(HUNDRED)) <= 60).sum())
    return Finding(f"{count} of 25 cells at 60 % or less", count >= 5)


def trend(p: Percentages) -> Finding:
    noises = sorted({noise for _, noise in p.cells})
    means = [p.where(HUNDRED, noise=noise) for noise in noises]
    text = " → ".join(f"{m:.0f}" for m in means)
    return Finding(f"{text} % for σ = {' → '.join(f'{s:g}' for s in noises)}", means[-1] < means[0])


def better_with_more_samples(p: Percentages) -> Finding:
    count, fewest, most = p.wins(HUNDRED, ONE)
    return Finding(
        f"{count} of 25 cells; by 95 % intervals {fewest} to {most}", fewest <= 21 <= most
    )


def single_sample(p: Percentages) -> Finding:
    captured = (100 - p.overall(ONE)[0]) / (100 - p.overall(HUNDRED)[0])
    return Finding(f"{100 * captured:.0f} % of the gain over TS", captured > 0.5)


def greedy_with_few_arms(p: Percentages) -> Finding:
    greedy, ts_ucb = p.where(GREEDY, arms=3), p.where(HUNDRED, arms=3)
    text = f"K = 3: {greedy:.0f} %, {HUNDRED} {ts_ucb:.0f} %"
    return Finding(text, greedy < 100 and abs(greedy - ts_ucb) < 10)


def greedy_with_many_arms(p: Percentages) -> Finding:
    greedy = p.where(GREEDY, arms=60)
    return Finding(f"K = 60: {greedy:.0f} %", greedy > 100)


def ucb_with_little_noise(p: Percentages) -> Finding:
    ucb = p.where(UCB, noise=0.05)
    return Finding(f"σ = 0.05: {ucb:.0f} %", ucb > 100)


def beats_both(p: Percentages) -> Finding:
    count = int((p.mean(HUNDRED) < np.minimum(p.mean(GREEDY), p.mean(UCB))).sum())
    return Finding(f"{HUNDRED} in {count} of 25 cells", count >= 20)


def ids_across_the_board(p: Percentages) -> Finding:
    text, below_everywhere = across_the_board(IDS)(p)
    widths = np.array([half_width(cell[None]) for cell in p.of[IDS]])
    return Finding(text, below_everywhere or bool((p.mean(IDS) - widths < 100).all()))


def often_better_than_ids(p: Percentages) -> Finding:
    ours, theirs = p.overall(HUNDRED)[0], p.overall(IDS)[0]
    count = int((p.mean(HUNDRED) <= p.mean(IDS)).sum())
    text = f"{ours:.1f} against {theirs:.1f} %; better in {count} of 25 cells"
    # "as well", and in a third of the cells: "often"
    return Finding(text, ours <= theirs and count >= 9)


CHECKS: tuple[Check[Percentages], ...] = (
    Check(
        f"{ONE} outperforms TS across the board", "25 of 25 cells", (ONE,), across_the_board(ONE)
    ),
    Check(
        f"{HUNDRED} outperforms TS across the board",
        "25 of 25 cells",
        (HUNDRED,),
        across_the_board(HUNDRED),
    ),
    Check("TS-UCB almost halves regret in many instances", "many", (ONE, HUNDRED), halving),
    Check("TS-UCB improves more on TS when σ is higher", "falls with σ", (HUNDRED,), trend),
    Check(
        f"Over the 25 instances, regret of {ONE} in % of that of TS",
        "67.9 %",
        (ONE,),
        comes_to(ONE, 67.9),
        exact=True,
    ),
    Check(
        f"Over the 25 instances, regret of {HUNDRED} in % of that of TS",
        "66.6 %",
        (HUNDRED,),
        comes_to(HUNDRED, 66.6),
        exact=True,
    ),
    Check(
        f"{HUNDRED} outperforms {ONE} in most instances",
        "21 of 25 cells",
        (ONE, HUNDRED),
        better_with_more_samples,
    ),
    Check(
        f"On average, excess regret of {ONE} over {HUNDRED}",
        "+3.2 %",
        (ONE, HUNDRED),
        exceeds_by(ONE, HUNDRED, 3.2),
        exact=True,
    ),
    Check(
        "Most of the benefit is captured by a single sample",
        "96 % (from its means)",
        (ONE, HUNDRED),
        single_sample,
    ),
    Check(
        "Greedy is inconsistent relative to TS",
        "both sides of 100",
        (GREEDY,),
        inconsistent(GREEDY),
    ),
    Check("UCB is inconsistent relative to TS", "both sides of 100", (UCB,), inconsistent(UCB)),
    Check(
        "Greedy outperforms TS, and is similar to TS-UCB, when there are few arms",
        "below 100, similar",
        (GREEDY, HUNDRED),
        greedy_with_few_arms,
    ),
    Check("Greedy performs poorly when K is large", "above 100", (GREEDY,), greedy_with_many_arms),
    Check(
        "UCB performs poorly when the noise is small", "above 100", (UCB,), ucb_with_little_noise
    ),
    Check(
        "TS-UCB almost always outperforms both Greedy and UCB",
        "almost always",
        (HUNDRED, GREEDY, UCB),
        beats_both,
    ),
    Check(
        "IDS performs well across the board compared to TS",
        "not above 100",
        (IDS,),
        ids_across_the_board,
    ),
    Check(
        f"On average, excess regret of IDS over {HUNDRED}",
        "+5.6 %",
        (IDS, HUNDRED),
        exceeds_by(IDS, HUNDRED, 5.6),
        exact=True,
    ),
    Check(
        f"On average, excess regret of IDS over {ONE}",
        "+3.8 %",
        (IDS, ONE),
        exceeds_by(IDS, ONE, 3.8),
        exact=True,
    ),
    Check(
        "TS-UCB performs as well as IDS, and often better",
        "often",
        (HUNDRED, IDS),
        often_better_than_ids,
    ),
)

# The paper's figures again, where the authors' variant was measured too.
GRID_CHECKS: tuple[Check[Percentages], ...] = (
    Check(
        f"On average, excess regret of IDS as the authors searched it over {HUNDRED}",
        "+5.6 %",
        (GRID, HUNDRED),
        exceeds_by(GRID, HUNDRED, 5.6),
        exact=True,
    ),
    Check(
        f"On average, excess regret of IDS as the authors searched it over {ONE}",
        "+3.8 %",
        (GRID, ONE),
        exceeds_by(GRID, ONE, 3.8),
        exact=True,
    ),
)


def section_4_1_1(
    rows: pd.DataFrame,
    cells: tuple[tuple[int, float], ...],
    policies: tuple[str, ...],
) -> list[Claim]:
    """Every sentence that these numbers can check, in the paper's order.

    Parameters
    ----------
    rows : columns arms, noise, policy, run, regret
    cells : pairs (arms, noise); the paper's sentences are about all 25
    policies : those measured
    """
    names = {plain(policy): policy for policy in policies}

    def doubt(check: Check[Percentages]) -> str:
        for kind in (IDS, GRID):
            if check.exact and kind in check.needs and names[kind] != f"{kind}(1000)":
                return f"with {names[kind]}"
        return ""

    checks = (*CHECKS, *(GRID_CHECKS if GRID in names else ()))
    return check_claims(
        (check._replace(needs=(TS, *check.needs, ALL_CELLS)) for check in checks),
        Percentages(rows, cells, policies),
        {*names, *([ALL_CELLS] if len(cells) == 25 else [])},
        doubt=doubt,
    )
