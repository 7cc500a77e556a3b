"""Read the lines of a news log, as far as its file can be read, and parse them into arrays.

A day is one gzip file, one visit a line: time, displayed article, click, the ids of the user's
non-zero binary features, and the pool of articles the displayed one was drawn from, uniformly:

    1317513291 id-560620 0 |user 1 9 11 13 |id-552077 |id-555224 |id-560620

Lines that do not have this form are counted by kind and skipped. The length of a line is bounded,
and so is how much larger the text may be than its file.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tsucb.numeric.arrays import Integers
from tsucb.paper.news.day import FEATURES

BLOCK = 1 << 22  # bytes of text parsed at a time
LONGEST = 1 << 20  # no line is longer; the longest of Yahoo!'s have a thousand bytes
SMALL = 1 << 28  # text up to this size may be any number of times as large as its file
EXPANSION = 100  # how many times as large as its file a longer text may be; Yahoo!'s: ten
MOST_ARTICLES = 1_000  # articles in a pool; those of Yahoo!'s have about 40
KINDS = (
    "wrong field",
    "displayed article not in the pool",
    f"feature id repeated or outside 1 to {FEATURES}",
    f"pool of more than {MOST_ARTICLES:,} articles",
    "truncated last line",
    "broken gzip",
)
FINE = -1
FIELD, DISPLAYED, FEATURE, POOL, TRUNCATED, GZIP = range(len(KINDS))
BLANK = "[ \t\r]"
LINE = (
    f"^(?P<time>[0-9]{{1,10}}){BLANK}+id-(?P<article>[0-9]{{1,9}}){BLANK}+(?P<click>[01])"
    f"{BLANK}+[|]user(?P<features>(?:{BLANK}+[0-9]{{1,10}})+)"
    f"{BLANK}+(?P<pool>[|]id-[0-9]{{1,9}}(?:{BLANK}+[|]id-[0-9]{{1,9}})*){BLANK}*$"
)


class Lines:
    """The lines of a gzip file.

    After iteration, `truncated` says whether the last line had no end, and `broken` whether gzip
    found an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = self.broken = False

    def __iter__(self) -> Iterator[bytes]:
        """Yield blocks of whole lines, of about `BLOCK` bytes."""
        size, total, ended = self.path.stat().st_size, 0, False
        pieces: list[bytes] = []
        with gzip.open(self.path) as file:
            while not ended:
                pieces.append(self.read_piece(file))
                total += len(pieces[-1])
                ended = not pieces[-1]
                if total > max(SMALL, EXPANSION * size):
                    raise ValueError(
                        f"{self.path} is no news log: it expands to more than {EXPANSION} times "
                        "its size; expected visits, which differ from one another"
                    )
                if ended or sum(map(len, pieces)) >= BLOCK:
                    text = b"".join(pieces)
                    cut = text.rfind(b"\n") + 1
                    if len(text) - cut > LONGEST:
                        raise ValueError(
                            f"{self.path} is no news log: it has no line end within {LONGEST:,} "
                            "bytes; expected one short line for each visit"
                        )
                    pieces = [text[cut:]]
                    yield text[:cut]
        self.truncated = bool(pieces[0])
        self.broken |= not size

    def read_piece(self, file: gzip.GzipFile) -> bytes:
        """Return the next bytes of the text; none at its end or after an error."""
        try:
            return file.read1(BLOCK)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.broken = True
            return b""


class Block(NamedTuple):
    """The visits of a block of lines; see `Day`."""

    time: Integers
    article: Integers
    click: Integers
    pool: Integers  # (N,) numbers of pools, over all blocks
    features: Integers  # flat, from 0
    ends: Integers  # (N + 1,)
    faults: Integers  # (lines,) the kind of every line, `FINE` for a visit


class Parser:
    """Parses block after block, and numbers the different pools in the order of their visits."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, ...], int] = {}

    def parse(self, text: bytes) -> Block:
        """Parse whole lines."""
        lines = pa.array(text.split(b"\n")[:-1], pa.binary())
        fields = pc.extract_regex(lines, LINE)
        matches = fields.is_valid().to_numpy(zero_copy_only=False)
        faults = np.where(matches, FINE, FIELD)
        rows = np.flatnonzero(matches)
        fields = fields.filter(pa.array(matches))
        time, article, click = (
            np.asarray(fields.field(name).cast(pa.string()).cast(pa.int64()))
            for name in ("time", "article", "click")
        )
        on, counts = split_features(fields.field("features"))
        place = np.repeat(np.arange(rows.size), counts)
        seen = np.zeros((rows.size, FEATURES + 1), dtype=bool)
        seen[place, np.where(on > FEATURES, 0, on)] = True
        faults[rows[seen[:, 0] | (seen.sum(axis=1) != counts)]] = FEATURE
        pools, which = split_pools(fields.field("pool"))
        wrong = np.array([pool if isinstance(pool, int) else FINE for pool in pools], np.int64)
        members = [() if isinstance(pool, int) else pool for pool in pools]
        shown = contains(members, which, article)
        pool_faults = np.where(wrong[which] != FINE, wrong[which], np.where(shown, FINE, DISPLAYED))
        faults[rows] = np.where(faults[rows] == FINE, pool_faults, faults[rows])
        good = faults[rows] == FINE
        used, first = np.unique(which[good], return_index=True)
        for code in used[np.argsort(first)]:
            self.numbers.setdefault(members[code], len(self.numbers))
        number = np.array([self.numbers.get(pool, -1) for pool in members], np.int64)
        return Block(
            time[good],
            article[good],
            click[good],
            number[which[good]],
            on[good[place]] - 1,
            np.append(0, counts[good].cumsum()),
            faults,
        )


def split_features(texts: Any) -> tuple[Integers, Integers]:
    """Return the feature ids of all users, flat, and how many each user has."""
    lists = pc.utf8_split_whitespace(pc.utf8_trim_whitespace(texts.cast(pa.string())))
    return np.asarray(lists.flatten().cast(pa.int64())), np.asarray(lists.value_lengths(), np.int64)


def split_pools(texts: Any) -> tuple[list[tuple[int, ...] | int], Integers]:
    """Return the different pools, sorted, and which one every visit has.

    A kind of fault stands for a pool that is too large or names an article twice.
    """
    codes = texts.dictionary_encode()
    pools: list[tuple[int, ...] | int] = []
    for text in codes.dictionary.to_pylist():
        ids = [int(part) for part in text.split(b"|id-")[1:]]
        if len(ids) > MOST_ARTICLES:
            pools.append(POOL)
        else:
            pools.append(tuple(sorted(ids)) if len(set(ids)) == len(ids) else FIELD)
    return pools, np.asarray(codes.indices, np.int64)


def contains(pools: list[tuple[int, ...]], which: Integers, article: Integers) -> Any:
    """Return for every visit whether its article is in its pool."""
    sizes = [len(pool) for pool in pools]
    members = np.fromiter((each for pool in pools for each in pool), np.int64, sum(sizes))
    keys = np.repeat(np.arange(len(pools)), sizes) << 32 | members
    return np.isin(which << 32 | article, keys)
