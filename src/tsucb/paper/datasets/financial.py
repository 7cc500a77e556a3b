"""Stock returns: eight portfolios of 21 stocks."""

import math
from pathlib import Path
from typing import Annotated, Any

from tsucb.compiler import implements
from tsucb.environments.environment import advance, begin, fill_normal, reward
from tsucb.paper.datasets.bandits import Table, matrix, new_world, next_row
from tsucb.paper.datasets.dataset import Dataset
from tsucb.paper.datasets.files import File
from tsucb.paper.datasets.tables import read_table

FILE = File(
    name="raw_stock_contexts",
    url="https://storage.googleapis.com/bandits_datasets/raw_stock_contexts",
    sha256="ca5b8ea4a6b73c9cbda3d0354150b7d9aedbeb76701edb377e6fd9225b9dcc7e",
    length=1_987_116,
)
PORTFOLIOS = 8
NOISE = 0.01  # of the first portfolio; that of the k-th is k times as large


class PortfolioBandit(Table):
    """Choose one of eight portfolios of d stocks by the stocks' returns.

    Portfolio k pays xᵀwₖ plus N(0, (0.01 k)²), k = 1, …, 8. Its weights are drawn for every run,
    uniform in (−1, 1)^d and scaled to unit norm.

    Parameters
    ----------
    contexts
        (days, d) returns.
    """

    contexts: Annotated[Any, matrix]

    @property
    def arms(self) -> int:
        """The portfolios."""
        return PORTFOLIOS


@implements(begin, PortfolioBandit)
def begin_portfolios(environment, rng):  # type: ignore[no-untyped-def]
    rows, stocks = environment.contexts.shape
    world = new_world(rows, stocks, PORTFOLIOS, PORTFOLIOS * stocks)
    weights = world.parameters.reshape(PORTFOLIOS, stocks)
    for a in range(PORTFOLIOS):
        for i in range(stocks):
            weights[a, i] = rng.uniform(-1.0, 1.0)
        weights[a] /= math.sqrt((weights[a] ** 2).sum())
    return world


@implements(advance, PortfolioBandit)
def advance_portfolios(environment, world, step, rng):  # type: ignore[no-untyped-def]
    stocks = world.context.size
    world.context[:] = environment.contexts[next_row(world, step, rng)]
    for a in range(PORTFOLIOS):
        weights = world.parameters[a * stocks : (a + 1) * stocks]
        world.means[a] = (world.context * weights).sum()
    fill_normal(world.noise, NOISE, rng)
    return world.context, world.means, world.available


@implements(reward, PortfolioBandit)
def reward_portfolios(environment, world, arm):  # type: ignore[no-untyped-def]
    return world.means[arm] + (arm + 1) * world.noise[0]


def read(folder: Path) -> PortfolioBandit:
    """Return the raw daily price differences of 21 stocks, below a header of their names."""
    return PortfolioBandit(read_table(folder, FILE, separator=" ", skip=1).to_numpy(float))


FINANCIAL = Dataset(
    name="financial",
    files=(FILE,),
    rows=3_713,
    features=21,
    arms=8,
    read=read,
)
