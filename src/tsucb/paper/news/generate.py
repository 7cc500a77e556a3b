"""Make news logs of the R6B form, of any size, with known true click rates.

The site behind a log is drawn from the seed:

- 50,000 users in 12 segments. Feature 1 is always on; one user in ten has no other. The popularity
  of the other 135 features falls from 0.8 to a few per mille and differs between segments; an
  average user has 18 of them. A line lists them in an order that is not sorted.
- Articles enter the pool at random and stay 4 to 36 hours. The pool has 20 to 40 of them, changes
  only every ten minutes, and goes on over midnight. Later articles have larger numbers.
- Every feature and every article has a place in a space of five topics. The logit of the click rate
  is the article's own level plus the inner product of the article's place and the sum of the places
  of the user's features: a `ClickModel`. With the levels, rates are a few per cent.
- Visits are spread evenly over the day; user and displayed article are uniform; each click is a
  Bernoulli draw with the click rate.

Day n is the same whatever the number of days.
"""

import gzip
import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import whole_number
from tsucb.compiler import compiled
from tsucb.files import written_whole
from tsucb.paper.news.clicks import ClickModel
from tsucb.paper.news.day import FEATURES, GENERATED, NAME
from tsucb.simulation import cores

USERS = 50_000
SEGMENTS = 12
TOPICS = 5
ALONE = 0.1  # share of users with feature 1 only
ON = 18  # other features of an average user
SLOT = 600  # seconds for which a pool lasts
SLOTS = 24 * 3600 // SLOT
FEWEST, MOST = 20, 40  # articles in a pool
STAY = (24, 216)  # slots that an article stays: 4 to 36 hours
LEVEL = -3.4  # mean logit: a rate of 3.2 %
SPREAD = 0.4  # standard deviation of an article's own part of the logit
TASTE = 0.5  # standard deviation of the part that depends on the user
FIRST_ARTICLE = 550_008
FIRST_DAY = datetime(2011, 10, 2, tzinfo=UTC)
ROWS = 10_000  # lines made at a time
MOST_LINES = 1_000_000_000  # a day
POPULATION, SCHEDULE, ARTICLES, VISITS = range(4)  # purposes of random streams
TRUTH = "truth.npz"  # the true click model, beside the log


class Site(NamedTuple):
    """The users, articles and pools of a log.

    `user_features[user_ends[u] : user_ends[u + 1]]` are the features of user u, from 0. The pool of
    slot s, of 144 a day, is `pool_articles[pool_ends[s] : pool_ends[s + 1]]`, rows of `clicks`.
    """

    clicks: ClickModel
    user_features: NDArray[np.uint8]
    user_ends: NDArray[np.int64]
    pool_articles: NDArray[np.int32]
    pool_ends: NDArray[np.int64]


def make_news(
    folder: str | os.PathLike[str],
    *,
    days: int = 10,
    lines: int = 1_500_000,
    seed: int = 0,
    level: int = 1,
    workers: int | None = None,
    progress: Callable[[Path], None] = lambda path: None,
) -> list[Path]:
    """Write a log of `days` files with `lines` visits each to a folder.

    Every file says in the comment of its gzip header that it is generated; the true click model is
    in `truth.npz`. A file is complete or absent.

    Parameters
    ----------
    level : of gzip, 1 (fastest) to 9
    workers : days made at once; by default one for each core
    progress : called with the path of each finished file

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in make_news(folder, days=2, lines=100)]
    ['ydata-fp-td-clicks-v2_0.20111002.gz', 'ydata-fp-td-clicks-v2_0.20111003.gz']
    """
    if not 1 <= days <= 365 or not 1 <= lines <= MOST_LINES:
        raise ValueError(
            f"cannot make {days} days of {lines} lines: expected 1 to 365 days of 1 to "
            f"{MOST_LINES:,} lines"
        )
    whole_number("seed", seed, least=0)
    if workers is not None:
        whole_number("workers", workers)
    site = make_site(days, seed)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    site.clicks.save(folder / TRUTH)
    articles = site.clicks.articles
    users = join_each(site.user_features + 1, site.user_ends, " {}")
    pools = join_each(articles[site.pool_articles], site.pool_ends, " |id-{}")
    interrupted = Event()

    def write(day: int) -> Path:
        path = folder / f"{NAME}{FIRST_DAY + timedelta(day):%Y%m%d}.gz"
        comment = GENERATED + f", seed {seed}; this is not Yahoo!'s log".encode()
        with written_whole(path) as file, open_generated(file, comment, level) as packed:
            for block in day_blocks(day, lines, seed, site, users, pools):
                if interrupted.is_set():
                    raise KeyboardInterrupt
                packed.write(block)
        progress(path)
        return path

    with ThreadPoolExecutor(cores() if workers is None else workers) as pool:
        try:
            return list(pool.map(write, range(days)))
        except BaseException:
            interrupted.set()  # makes every thread stop and remove its unfinished file
            raise


def day_blocks(
    day: int, lines: int, seed: int, site: Site, users: list[str], pools: list[str]
) -> Iterator[bytes]:
    """Yield the lines of a day in the form of the log, `ROWS` at a time.

    `users` and `pools` are those of the site as text.
    """
    articles = site.clicks.articles.tolist()
    midnight = int((FIRST_DAY + timedelta(day)).timestamp())
    rng = np.random.default_rng((seed, VISITS, day))
    for first in range(0, lines, ROWS):
        second = np.arange(first, min(first + ROWS, lines)) * 86_400 // lines
        slot = day * SLOTS + second // SLOT
        columns = midnight + second, slot, *draw_visits(slot, site, rng)
        yield "".join(
            f"{time} id-{articles[shown]} {click} |user{users[user]}{pools[slot]}\n"
            for time, slot, shown, user, click in zip(*map(np.ndarray.tolist, columns), strict=True)
        ).encode()


def open_generated(file: BinaryIO, comment: bytes, level: int) -> gzip.GzipFile:
    """Return a gzip file without a time stamp and with a comment in its header (RFC 1952).

    Python cannot write the comment, so an empty member with the comment comes first.
    """
    file.write(b"\x1f\x8b\x08\x10\0\0\0\0\0\xff" + comment + b"\0\x03\0" + bytes(8))
    return gzip.GzipFile("", "wb", level, file, mtime=0)


def make_site(days: int, seed: int) -> Site:
    """Draw users, articles and pools as the module's docstring says."""
    user_features, user_ends = make_users(np.random.default_rng((seed, POPULATION)))
    pool_articles, pool_ends = make_pools(days, np.random.default_rng((seed, SCHEDULE)))
    count = pool_articles.max() + 1
    rng = np.random.default_rng((seed, ARTICLES))
    places = rng.standard_normal((FEATURES, TOPICS))
    places[0] = 0
    sums = np.add.reduceat(places[user_features], user_ends[:-1])
    places /= sums.std(axis=0)
    centre = (sums / sums.std(axis=0)).mean(axis=0)
    draws = rng.standard_normal((count, TOPICS + 2))
    topics = TASTE / np.sqrt(TOPICS) * draws[:, :TOPICS]
    # Later articles have larger numbers, by 17 on average.
    numbers = FIRST_ARTICLE + 17 * np.arange(count) + 5 * draws[:, -1].clip(-1.6, 1.6)
    level = LEVEL + SPREAD * draws[:, TOPICS] - topics @ centre
    clicks = ClickModel(numbers.astype(np.int32), level, topics @ places.T)
    return Site(clicks, user_features, user_ends, pool_articles, pool_ends)


def make_users(rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Draw the features of all users; return `user_features` and `user_ends` of a `Site`."""
    popularity = 0.8 * np.exp(-0.8 / ON * np.arange(FEATURES - 1))  # the sum is about ON
    odds = popularity / (1 - popularity) * np.exp(rng.standard_normal((SEGMENTS, FEATURES - 1)))
    chance = (odds / (1 + odds))[rng.integers(SEGMENTS, size=USERS)]
    chance[rng.random(USERS) < ALONE] = 0
    on = np.ones((USERS, FEATURES), bool)
    on[:, 1:] = rng.random(chance.shape) < chance
    order = np.concatenate([[0], 1 + rng.permutation(FEATURES - 1)])  # in which a line lists them
    user, place = np.nonzero(on[:, order])
    ends = np.searchsorted(user, np.arange(USERS + 1))
    return order[place].astype(np.uint8), ends


def make_pools(days: int, rng: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Draw the pool of each slot; return `pool_articles` and `pool_ends` of a `Site`."""
    rate = (FEWEST + MOST) / (STAY[0] + STAY[1])  # arrivals per slot that keep the mean size
    leaves: dict[int, int] = {}  # article -> slot in which it leaves, in order of arrival
    pools: list[list[int]] = []
    count = 0
    for slot in range(days * SLOTS):
        leaves = {article: end for article, end in leaves.items() if end > slot}
        arrivals = int(rng.poisson(rate))
        if slot == 0:
            arrivals = (FEWEST + MOST) // 2
        arrivals = min(max(arrivals, FEWEST - len(leaves)), MOST - len(leaves))
        for _ in range(arrivals):
            leaves[count] = slot + int(rng.integers(*STAY))
            count += 1
        pools.append(list(leaves))
    ends = np.cumsum([0] + [len(pool) for pool in pools])
    return np.concatenate([np.array(pool, np.int32) for pool in pools]), ends


def join_each(values: NDArray[np.integer], ends: NDArray[np.int64], form: str) -> list[str]:
    """Return each list `values[ends[i] : ends[i + 1]]` as text, with every value in this form."""
    words = [form.format(value) for value in values.tolist()]
    return ["".join(words[a:b]) for a, b in itertools.pairwise(ends.tolist())]


@compiled
def draw_visits(slot, site, rng):  # type: ignore[no-untyped-def]
    """Draw the visits in these slots: rows of the articles shown, users, and clicks."""
    shown, user, click = np.empty((3, slot.size), np.int64)
    for i in range(slot.size):
        first, last = site.pool_ends[slot[i]], site.pool_ends[slot[i] + 1]
        shown[i] = site.pool_articles[rng.integers(first, last)]
        user[i] = rng.integers(0, len(site.user_ends) - 1)
        logit = site.clicks.intercept[shown[i]]
        for j in range(site.user_ends[user[i]], site.user_ends[user[i] + 1]):
            logit += site.clicks.weights[shown[i], site.user_features[j]]
        click[i] = rng.random() < 1 / (1 + np.exp(-logit))
    return shown, user, click
