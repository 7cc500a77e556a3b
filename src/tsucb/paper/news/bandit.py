"""Personalised news: the visits of a day's click log, with clicks from a fitted model."""

import math

import numpy as np
from numpy.typing import NDArray

from tsucb.compiler import implements
from tsucb.environments.environment import Environment, World, advance, begin, reward
from tsucb.models.nig_linear import NIGLinear
from tsucb.numeric.arrays import Floats, Integers
from tsucb.paper.news.clicks import ClickModel
from tsucb.paper.news.day import Day


class NewsBandit(Environment):
    """A day of the news log as a bandit, whose users and articles come and go as they did.

    Each run draws its own share of the day's visits and keeps their order. At a visit the arms are
    those articles of its pool that the click model knows, the first ten in alphabetical order; a
    click is Bernoulli with the model's rate p̂, and regret is Σ (max p̂ − p̂).

    `NewsBandit.of(day, clicks)` makes one.

    Parameters
    ----------
    arms, steps
        K, and the length of a run.
    articles
        (K,) the article of every arm, by its number.
    intercept, weights
        Coefficients of the click model, for every arm.
    features, ends, pool
        The day's visits, as in `Day`.
    choices
        (pools, n) the arms of every pool, filled up with −1.
    visits
        The visits that have an arm.

    >>> import tempfile, tsucb
    >>> from tsucb.paper.news.clicks import ClickModel
    >>> from tsucb.paper.news.generate import make_news
    >>> from tsucb.paper.news.parser import read_day
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path] = make_news(folder, days=1, lines=5_000)
    ...     bandit = NewsBandit.of(read_day(path), ClickModel.load(f"{folder}/truth.npz"))
    >>> bandit.steps
    100
    >>> tsucb.simulate(bandit, bandit.model(), [tsucb.TSUCB(1)], horizon=100, runs=2).regret.shape
    (1, 2, 100)

    Reference: Baek and Farias (2023), Section 4.2.
    """

    arms: int
    steps: int
    articles: NDArray[np.int32]
    intercept: Floats
    weights: Floats
    features: NDArray[np.uint8]
    ends: Integers
    pool: NDArray[np.int32]
    choices: Integers
    visits: Integers

    @classmethod
    def of(
        cls, day: Day, clicks: ClickModel, fraction: float = 0.02, choices: int = 10
    ) -> "NewsBandit":
        """Return the bandit of a day.

        Parameters
        ----------
        day
            N visits, from `tsucb.paper.news.read_day`.
        clicks
            From `tsucb.paper.news.fit_clicks`, or the truth of a generated log.
        fraction
            The share of visits in a run.
        choices
            The most arms at a visit.
        """
        if not 0 < fraction <= 1 or choices < 1:
            raise ValueError(
                "fraction must be above 0 and at most 1, and choices at least 1, "
                f"but they are {fraction} and {choices}"
            )
        known = [pool[np.isin(pool, clicks.articles)] for pool in day.pools]
        # Alphabetical is not numerical: id-1000000 comes before id-999999.
        first = [sorted(pool.tolist(), key=str)[:choices] for pool in known]
        articles = np.array(sorted({a for pool in first for a in pool}), dtype=np.int32)
        arms = np.full((len(first), choices), -1)
        for p, pool in enumerate(first):
            arms[p, : len(pool)] = np.searchsorted(articles, pool)
        visits = np.flatnonzero(arms[day.pool, 0] >= 0)
        steps = round(fraction * visits.size)
        if steps < 1:
            raise ValueError(
                f"no step is left of day {day.name}: {visits.size} of its {len(day)} visits have "
                f"an article with a click model, and a run takes {fraction:g} of them"
            )
        rows = np.searchsorted(clicks.articles, articles)
        return cls(
            len(articles),
            steps,
            articles,
            clicks.intercept[rows],
            clicks.weights[rows],
            day.features,
            day.ends,
            day.pool,
            arms,
            visits,
        )

    @property
    def context_shape(self) -> tuple[int, ...]:
        """One entry for each of the d features."""
        return (self.weights.shape[1],)

    def model(self) -> NIGLinear:
        """Return the model of the paper's runs."""
        return NIGLinear(self.weights.shape[1])


@implements(begin, NewsBandit)
def begin_news(environment, rng):  # type: ignore[no-untyped-def]
    drawn = np.empty(environment.steps, np.int64)
    total = environment.visits.size
    n = 0
    for i in range(total):  # selection sampling: Knuth, The Art of Computer Programming, 3.4.2 S
        if rng.random() * (total - i) < environment.steps - n:
            drawn[n] = environment.visits[i]
            n += 1
    d = environment.weights.shape[1]
    # Arms that are not available keep the means of an earlier step.
    return World(drawn, np.zeros(d), np.zeros(environment.arms), np.arange(0), np.zeros(1))


@implements(advance, NewsBandit)
def advance_news(environment, world, step, rng):  # type: ignore[no-untyped-def]
    if step > world.parameters.size:
        raise ValueError("the horizon is longer than the steps of a run of this NewsBandit")
    visit = world.parameters[step - 1]
    features = environment.features[environment.ends[visit] : environment.ends[visit + 1]]
    world.context[:] = 0.0
    for f in features:
        world.context[f] = 1.0
    choices = environment.choices[environment.pool[visit]]
    n = 0
    while n < choices.size and choices[n] >= 0:
        arm = choices[n]
        logit = environment.intercept[arm]
        for f in features:
            logit += environment.weights[arm, f]
        world.means[arm] = 1 / (1 + math.exp(-logit))
        n += 1
    world.noise[0] = rng.random()
    return world.context, world.means, choices[:n]


@implements(reward, NewsBandit)
def reward_news(environment, world, arm):  # type: ignore[no-untyped-def]
    return 1.0 if world.noise[0] < world.means[arm] else 0.0
