"""Compiled code that parses the lines of a news log into arrays.

A day is one gzip file, one visit a line: time, displayed article, click, the ids of the user's
non-zero binary features, and the pool of articles the displayed one was drawn from, uniformly:

    1317513291 id-560620 0 |user 1 9 11 13 |id-552077 |id-555224 |id-560620

Lines that do not have this form are counted by kind and skipped.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsucb.compiler import compiled
from tsucb.paper.news.day import FEATURES

LARGEST = 1_000  # articles in a pool; those of Yahoo!'s have about 40
KINDS = (
    "wrong field",
    "displayed article not in the pool",
    f"feature id repeated or outside 1 to {FEATURES}",
    f"pool of more than {LARGEST:,} articles",
    "truncated last line",
    "broken gzip",
)
FINE, FULL = -1, -2  # a good line; a line whose pool finds no room yet
FIELD, DISPLAYED, FEATURE, POOL, TRUNCATED, GZIP = range(len(KINDS))

SHORTEST = len(b"1 id-1 0 |user 1 |id-1\n")  # bytes of the shortest good line


class Visits(NamedTuple):
    """Arrays the parser fills, with room for every good line of a block; see `Day`."""

    time: NDArray[np.int64]
    article: NDArray[np.int32]
    click: NDArray[np.uint8]
    pool: NDArray[np.int32]
    features: NDArray[np.uint8]
    ends: NDArray[np.int64]


class Pools(NamedTuple):
    """The different pools met so far: pool p holds `articles[ends[p] : ends[p + 1]]`.

    `slots` is a hash table with open addressing: the index of a pool, or -1.
    """

    size: NDArray[np.int64]
    slots: NDArray[np.int32]
    articles: NDArray[np.int32]
    ends: NDArray[np.int64]


class Faults(NamedTuple):
    """For each kind of malformed line, how many there were and the number of the first."""

    lines: NDArray[np.int64]
    first: NDArray[np.int64]


def empty_visits(length: int) -> Visits:
    """Room for the good lines in so many bytes; every feature takes two bytes or more."""
    rows = length // SHORTEST + 1
    return Visits(
        np.empty(rows, np.int64),
        np.empty(rows, np.int32),
        np.empty(rows, np.uint8),
        np.empty(rows, np.int32),
        np.empty(length // 2 + 1, np.uint8),
        np.zeros(rows + 1, np.int64),
    )


def empty_pools(room: int) -> Pools:
    """Room for so many pools of 64 articles on average."""
    return Pools(
        np.zeros(1, np.int64),
        np.full(2 * room, -1, np.int32),
        np.empty(64 * room, np.int32),
        np.zeros(room + 1, np.int64),
    )


def grown(pools: Pools) -> Pools:
    """The same pools with twice the room."""
    wider = empty_pools(2 * (len(pools.ends) - 1))
    copy_pools(pools, wider)
    return wider


@compiled
def copy_pools(pools: Pools, wider: Pools) -> None:
    """Enter all pools into empty ones with more room."""
    used = pools.ends[pools.size[0]]
    wider.articles[:used] = pools.articles[:used]
    for p in range(pools.size[0]):
        pool_index(wider, pools.ends[p], pools.ends[p + 1])


@compiled
def pool_index(pools: Pools, begin: int, end: int) -> np.int64:
    """The index of the pool in `articles[begin:end]`, added if it is the last and new."""
    mask = len(pools.slots) - 1
    key = np.uint64(14695981039346656037)
    for i in range(begin, end):  # FNV-1a over the article numbers
        key = (key ^ np.uint64(pools.articles[i])) * np.uint64(1099511628211)
    slot = np.int64((key ^ (key >> np.uint64(32))) & np.uint64(mask))
    while pools.slots[slot] >= 0:
        p = pools.slots[slot]
        first = pools.ends[p]
        if pools.ends[p + 1] - first == end - begin:
            i = 0
            while i < end - begin and pools.articles[first + i] == pools.articles[begin + i]:
                i += 1
            if i == end - begin:
                return np.int64(p)
        slot = (slot + 1) & mask
    p = np.int64(pools.size[0])
    pools.slots[slot] = p
    pools.ends[p + 1] = end
    pools.size[0] += 1
    return p


@compiled
def number(text: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """The decimal number that begins at i, and where it ends: i itself if there is none."""
    value = 0
    end = i
    while 48 <= text[end] <= 57 and end < i + 10:
        value = 10 * value + text[end] - 48
        end += 1
    return value, end


@compiled
def article_number(text: NDArray[np.uint8], i: int) -> tuple[int, int]:
    """The number after `id-` at i and where it ends: i if the form is wrong."""
    if text[i] == 105 and text[i + 1] == 100 and text[i + 2] == 45:
        value, end = number(text, i + 3)
        if i + 3 < end < i + 13:  # nine digits at most: they fit 32 bits
            return value, end
    return 0, i


@compiled
def skip_blanks(text: NDArray[np.uint8], i: int) -> int:
    """Where the spaces, tabs and carriage returns that begin at i end."""
    while text[i] == 32 or text[i] == 9 or text[i] == 13:
        i += 1
    return i


@compiled
def ends_field(text: NDArray[np.uint8], i: int) -> bool:
    """Whether a field ends at i: a blank or the end of the line is there."""
    return bool(text[i] == 32 or text[i] == 10 or text[i] == 9 or text[i] == 13)


@compiled
def parse_line(
    text: NDArray[np.uint8], i: int, row: int, used: int, visits: Visits, pools: Pools
) -> tuple[int, int, int]:
    """Parse the line that begins at i into `row`: its fault, where parsing ended, features used.

    A line ends with a line feed, which no field contains, so no check can run past its end.
    """
    time, end = number(text, i)
    if end == i or not ends_field(text, end):
        return FIELD, end, used
    i = skip_blanks(text, end)
    article, end = article_number(text, i)
    if end == i or not ends_field(text, end):
        return FIELD, end, used
    i = skip_blanks(text, end)
    click, end = number(text, i)
    if end != i + 1 or click > 1 or not ends_field(text, end):
        return FIELD, i, used
    i = skip_blanks(text, end)
    for letter in (124, 117, 115, 101, 114):  # |user
        if text[i] != letter:
            return FIELD, i, used
        i += 1
    if not ends_field(text, i):
        return FIELD, i, used
    i = skip_blanks(text, i)
    low, high, top = np.uint64(0), np.uint64(0), np.uint64(0)  # the features seen, as bits
    begin = used
    while text[i] != 124 and text[i] != 10:
        feature, end = number(text, i)
        if end == i or not ends_field(text, end):
            return FIELD, end, used
        if not 1 <= feature <= FEATURES:
            return FEATURE, end, used
        bit = np.uint64(1) << np.uint64(feature & 63)
        word = low if feature < 64 else (high if feature < 128 else top)
        if word & bit:
            return FEATURE, end, used
        if feature < 64:
            low |= bit
        elif feature < 128:
            high |= bit
        else:
            top |= bit
        visits.features[used] = feature - 1
        used += 1
        i = skip_blanks(text, end)
    if used == begin:
        return FIELD, i, used
    shown = False
    first = pools.ends[pools.size[0]]
    last = first
    while text[i] == 124:
        i += 1
        member, end = article_number(text, i)
        if end == i or not ends_field(text, end):
            return FIELD, end, used
        i = skip_blanks(text, end)
        shown |= member == article
        if last - first == LARGEST:  # also bounds the work of keeping it in order
            return POOL, i, used
        if last == len(pools.articles):
            return FULL, i, used
        k = last  # insertion keeps the pool in order; logs already have it so
        while k > first and pools.articles[k - 1] > member:
            pools.articles[k] = pools.articles[k - 1]
            k -= 1
        if k > first and pools.articles[k - 1] == member:
            return FIELD, i, used
        pools.articles[k] = member
        last += 1
    if text[i] != 10 or last == first:
        return FIELD, i, used
    if not shown:
        return DISPLAYED, i, used
    visits.time[row] = time
    visits.article[row] = article
    visits.click[row] = click
    visits.pool[row] = pool_index(pools, first, last)
    return FINE, i, used


@compiled
def parse(
    text: NDArray[np.uint8],
    begin: int,
    row: int,
    used: int,
    line: int,
    visits: Visits,
    pools: Pools,
    faults: Faults,
) -> tuple[int, int, int, int]:
    """Parse whole lines from `begin` on: where it stopped, visits and features stored, lines read.

    It stops before the end of the text when there is no room for another pool.
    """
    while begin < len(text):
        if pools.size[0] == len(pools.ends) - 1:
            break
        fault, end, filled = parse_line(text, begin, row, used, visits, pools)
        if fault == FULL:
            break
        line += 1
        if fault == FINE:
            row += 1
            used = filled
            visits.ends[row] = used
        else:
            faults.lines[fault] += 1
            if faults.lines[fault] == 1:
                faults.first[fault] = line
            while text[end] != 10:
                end += 1
        begin = end + 1
    return begin, row, used, line
