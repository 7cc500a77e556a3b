"""The results of a simulation."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tsucb.display import html_table, text_table
from tsucb.extras import require
from tsucb.numeric.arrays import Floats, Integers
from tsucb.numeric.statistics import mean_interval, percent_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Simulation:
    """The regret of every policy in every run.

    Parameters
    ----------
    policies
        Names of the P policies.
    numbers
        Numbers of the R runs.
    checkpoints
        The C steps at which the regret was recorded.
    regret
        Cumulative regret (P, R, C).
    arms
        The arms played (P, R, T), or None if `keep_arms` was not set.

    >>> import numpy as np
    >>> regret = np.array([[[4.0], [6.0]], [[2.0], [3.0]]])
    >>> result = Simulation(("TS", "UCB"), (0, 1), np.array([100]), regret)
    >>> float(result.summary(baseline="TS").loc["UCB", "percent"])
    50.0
    """

    policies: tuple[str, ...]
    numbers: tuple[int, ...]
    checkpoints: Integers
    regret: Floats
    arms: Integers | None = None

    @property
    def runs(self) -> "pd.DataFrame":
        """The regret as a tidy table: policy, run, step, regret."""
        require("tables", "pandas")
        import pandas as pd

        index = pd.MultiIndex.from_product(
            (self.policies, self.numbers, self.checkpoints), names=("policy", "run", "step")
        )
        return pd.DataFrame({"regret": self.regret.ravel()}, index=index).reset_index()

    def final(self, policy: str) -> Floats:
        """Return a policy's regret at the end of every run (R,)."""
        if policy not in self.policies:
            raise ValueError(
                f"there is no policy {policy!r} here; there are {', '.join(self.policies)}"
            )
        final: Floats = self.regret[self.policies.index(policy), :, -1]
        return final

    def summary(self, baseline: str | None = None) -> "pd.DataFrame":
        """Return the mean regret at the horizon per policy, with error, 95 % interval and median.

        With a baseline also the regret as a percentage of the baseline's: the mean over runs of
        100 · regret / (baseline's regret in the same run), and its 95 % interval.
        """
        require("tables", "pandas")
        import pandas as pd

        names = ["runs", "regret_mean", "regret_se", "ci95_low", "ci95_high", "regret_median"]
        rows = []
        for policy in self.policies:
            final = self.final(policy)
            rows.append([final.size, *mean_interval(final), float(np.median(final))])
            if baseline is not None:
                percent, _, *ends = mean_interval(percent_of(final, self.final(baseline)))
                rows[-1] += [percent, *ends]
        if baseline is not None:
            names += ["percent", "percent_low", "percent_high"]
        return pd.DataFrame(rows, pd.Index(self.policies, name="policy"), names)

    def __str__(self) -> str:
        return f"{self._title()}\n{text_table(*self._rows())}"

    def _repr_html_(self) -> str:
        """Show the mean regrets as a table in a notebook."""
        return html_table(*self._rows(), caption=self._title())

    def _title(self) -> str:
        return f"Regret of {len(self.numbers)} runs after {self.checkpoints[-1]:,} steps"

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """Return a header, and a row per policy: mean regret, its 95 % interval, median."""
        rows = []
        for policy in self.policies:
            final = self.final(policy)
            mean, _, low, high = mean_interval(final)
            between = f"{low:,.1f} to {high:,.1f}"
            rows.append([policy, f"{mean:,.1f}", between, f"{np.median(final):,.1f}"])
        return ["policy", "mean", "95 % interval", "median"], rows

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the mean regret over time, with its 95 % band; return matplotlib's axes."""
        from tsucb.pages.figures import regret_curves

        return regret_curves(
            self.checkpoints, dict(zip(self.policies, self.regret, strict=True)), ax
        )
