"""Make news logs of the R6B form, of any size, whose true click rates are known.

The world behind a log, all of it drawn from the seed:

- 50,000 users in 12 segments. Feature 1 is always on; one user in ten has no other. The other 135
  features have popularities falling from 0.8 to a few per mille, tilted differently in each
  segment; 18 of them are on in an average user. They are written in an order that is not sorted.
- Articles enter the pool at random and stay 4 to 36 hours; the pool has 20 to 40 of them, changes
  only every ten minutes, and goes on over midnight. Later articles have larger numbers.
- Every feature has a place in a space of five topics, and so has every article. The logit of the
  click rate is the article's own level plus the product of the article's place with the sum of
  the places of the user's features: a `ClickModel`. Levels are such that rates are a few per cent.
- Visits are spread evenly over the day; user and displayed article are uniform; each click is a
  Bernoulli draw from the click rate.

Days 1 to n are the same whatever the number of days that are made.
"""

import os
import struct
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

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
SMALLEST, LARGEST = 20, 40  # articles in a pool
STAY = (24, 216)  # slots that an article stays: 4 to 36 hours
LEVEL = -3.4  # mean logit: a rate of 3.2 %
SPREAD = 0.4  # standard deviation of an article's own logit
TASTE = 0.5  # standard deviation of the part that depends on the user
FIRST_ARTICLE = 550_008
ID = np.frombuffer(b" id-", np.uint8)
USER = np.frombuffer(b" |user", np.uint8)
FIRST_DAY = datetime(2011, 10, 2, tzinfo=UTC)
ROWS = 10_000  # lines made at a time
MOST_LINES = 1_000_000_000  # a day
POPULATION, SCHEDULE, ARTICLES, VISITS = range(4)  # what a stream of random numbers is for
TRUTH = "truth.npz"  # the true click model, beside the log


class World(NamedTuple):
    """What stays the same over the days of a log; U users, A articles, 144 pools a day.

    `user_features[user_ends[u] : user_ends[u + 1]]` are the features of user u, from 0;
    `pool_articles[pool_ends[s] : pool_ends[s + 1]]` the articles of slot s, as rows of `weights`.
    """

    articles: NDArray[np.int32]
    intercept: NDArray[np.float64]
    weights: NDArray[np.float64]
    user_features: NDArray[np.uint8]
    user_ends: NDArray[np.int64]
    pool_articles: NDArray[np.int32]
    pool_ends: NDArray[np.int64]


class Texts(NamedTuple):
    """What is written of each user and of each slot's pool, as bytes laid end to end."""

    user: NDArray[np.uint8]
    user_ends: NDArray[np.int64]
    pool: NDArray[np.uint8]
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
    """Write a log of so many days and lines a day, and its true click model, to a folder.

    Every file says in the comment of its gzip header that it is generated, and the folder gets
    the truth as `truth.npz`. A file is there whole or not at all.

    Parameters
    ----------
    level : of gzip, 1 (fastest) to 9
    workers : days made side by side; by default one for each core
    progress : called with each file that is complete

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
    world = make_world(days, seed)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    ClickModel(world.articles, world.intercept, world.weights).save(folder / TRUTH)
    texts = Texts(
        *end_to_end(world.user_features + 1, world.user_ends, " {}"),
        *end_to_end(world.articles[world.pool_articles], world.pool_ends, " |id-{}"),
    )
    longest = 64 + np.diff(texts.user_ends).max() + np.diff(texts.pool_ends).max()

    def write(day: int) -> Path:
        midnight = FIRST_DAY + timedelta(day)
        path = folder / f"{NAME}{midnight:%Y%m%d}.gz"
        comment = GENERATED + f", seed {seed}; this is not Yahoo!'s log".encode()
        start = int(midnight.timestamp())
        buffer = np.empty(ROWS * longest, np.uint8)
        with written_whole(path) as file:
            # gzip header (RFC 1952): a comment, no time stamp
            file.write(b"\x1f\x8b\x08\x10\0\0\0\0\0\xff" + comment + b"\0")
            packer = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
            check = length = 0
            rng = np.random.default_rng((seed, VISITS, day))
            for begin in range(0, lines, ROWS):
                end = min(begin + ROWS, lines)
                size = write_lines(buffer, begin, end, lines, start, day * SLOTS, world, texts, rng)
                text = buffer[:size].data
                check = zlib.crc32(text, check)
                length += len(text)
                file.write(packer.compress(text))
            file.write(packer.flush() + struct.pack("<II", check, length & 0xFFFFFFFF))
        progress(path)
        return path

    with ThreadPoolExecutor(cores() if workers is None else workers) as pool:
        return list(pool.map(write, range(days)))


def make_world(days: int, seed: int) -> World:
    """Draw users, articles and pools; see the top of this file."""
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
    return World(
        # numbers grow with time, by steps of 17 on average
        articles=(FIRST_ARTICLE + 17 * np.arange(count) + 5 * draws[:, -1].clip(-1.6, 1.6)).astype(
            np.int32
        ),
        intercept=LEVEL + SPREAD * draws[:, TOPICS] - topics @ centre,
        weights=topics @ places.T,
        user_features=user_features,
        user_ends=user_ends,
        pool_articles=pool_articles,
        pool_ends=pool_ends,
    )


def make_users(rng: np.random.Generator) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Draw the features of all users: flat, from 0, and the ends of each user's."""
    popularity = 0.8 * np.exp(-0.8 / ON * np.arange(FEATURES - 1))  # the sum is about ON
    odds = popularity / (1 - popularity) * np.exp(rng.standard_normal((SEGMENTS, FEATURES - 1)))
    chance = (odds / (1 + odds))[rng.integers(SEGMENTS, size=USERS)]
    chance[rng.random(USERS) < ALONE] = 0
    on = np.ones((USERS, FEATURES), bool)
    on[:, 1:] = rng.random(chance.shape) < chance
    order = np.concatenate([[0], 1 + rng.permutation(FEATURES - 1)])  # that they are written in
    user, place = np.nonzero(on[:, order])
    ends = np.searchsorted(user, np.arange(USERS + 1))
    return order[place].astype(np.uint8), ends


def make_pools(days: int, rng: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Draw which articles each slot's pool has: flat, as numbers from 0, and the slots' ends."""
    rate = (SMALLEST + LARGEST) / (STAY[0] + STAY[1])  # arrivals a slot that keep the mean size
    leaves: dict[int, int] = {}  # article -> slot in which it leaves, in order of arrival
    pools: list[list[int]] = []
    count = 0
    for slot in range(days * SLOTS):
        leaves = {article: end for article, end in leaves.items() if end > slot}
        arrivals = int(rng.poisson(rate))
        if slot == 0:
            arrivals = (SMALLEST + LARGEST) // 2
        arrivals = min(max(arrivals, SMALLEST - len(leaves)), LARGEST - len(leaves))
        for _ in range(arrivals):
            leaves[count] = slot + int(rng.integers(*STAY))
            count += 1
        pools.append(list(leaves))
    ends = np.cumsum([0] + [len(pool) for pool in pools])
    return np.concatenate([np.array(pool, np.int32) for pool in pools]), ends


def end_to_end(
    values: NDArray[np.integer], ends: NDArray[np.int64], form: str
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Each list `values[ends[i] : ends[i + 1]]` written as text, laid end to end, and the ends."""
    words = {value: form.format(value).encode() for value in np.unique(values).tolist()}
    written = [words[value] for value in values.tolist()]
    sizes = np.cumsum([0] + [len(word) for word in written])
    return np.frombuffer(b"".join(written), np.uint8), sizes[ends]


@compiled
def put_number(out: NDArray[np.uint8], at: int, value: int, digits: int) -> int:
    """Write a number of so many digits; return where it ends."""
    for i in range(digits - 1, -1, -1):
        out[at + i] = 48 + value % 10
        value //= 10
    return at + digits


@compiled
def put(out: NDArray[np.uint8], at: int, text: NDArray[np.uint8], begin: int, end: int) -> int:
    """Copy `text[begin:end]`; return where it ends."""
    for i in range(end - begin):
        out[at + i] = text[begin + i]
    return at + end - begin


@compiled
def write_lines(
    out: NDArray[np.uint8],
    begin: int,
    end: int,
    lines: int,
    midnight: int,
    slot: int,
    world: World,
    texts: Texts,
    rng: np.random.Generator,
) -> int:
    """Draw and write the visits numbered begin to end of a day; return the bytes written."""
    at = 0
    for line in range(begin, end):
        second = line * 86_400 // lines
        now = slot + second // SLOT
        shown = world.pool_articles[rng.integers(world.pool_ends[now], world.pool_ends[now + 1])]
        user = rng.integers(0, len(world.user_ends) - 1)
        logit = world.intercept[shown]
        for i in range(world.user_ends[user], world.user_ends[user + 1]):
            logit += world.weights[shown, world.user_features[i]]
        click = rng.random() < 1 / (1 + np.exp(-logit))
        at = put_number(out, at, midnight + second, 10)
        at = put(out, at, ID, 0, len(ID))
        at = put_number(out, at, world.articles[shown], 6)
        out[at] = 32
        out[at + 1] = 49 if click else 48
        at = put(out, at + 2, USER, 0, len(USER))
        at = put(out, at, texts.user, texts.user_ends[user], texts.user_ends[user + 1])
        at = put(out, at, texts.pool, texts.pool_ends[now], texts.pool_ends[now + 1])
        out[at] = 10
        at += 1
    return at
