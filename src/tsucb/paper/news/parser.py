"""Read a day of the news log: a gzip file with one visit per line.

A line has the time, the displayed article, the click, the ids of the user's non-zero binary
features, and the pool of articles from which the displayed one was drawn uniformly:

    1317513291 id-560620 0 |user 1 9 11 13 |id-552077 |id-555224 |id-560620

Lines of another form are counted by kind and skipped. The length of a line is bounded, and so is
the size of the text relative to its file. A day of 1.5 million visits takes about eight seconds,
much less than the experiments that read it, so the parsed visits are not kept on disk.
"""

import gzip
import os
import re
import zlib
from array import array
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import numpy as np

from tsucb.paper.news.day import FEATURES, NAME, Day, SkippedLines, is_generated

LONGEST = 1 << 20  # bytes of a line; Yahoo!'s longest have a thousand
SMALL = 1 << 28  # bytes of text that may come from a file of any size
EXPANSION = 100  # times that a longer text may be as long as its file; Yahoo!'s is ten times
MOST_SKIPPED = 1_000_000  # malformed lines of a day; Yahoo!'s days have 1.5 million lines in all
MOST_ARTICLES = 1_000  # articles in a pool; Yahoo!'s pools have about 40
FIELD = "wrong field"
DISPLAYED = "displayed article not in the pool"
FEATURE = f"feature id repeated or outside 1 to {FEATURES}"
POOL = f"pool of more than {MOST_ARTICLES:,} articles"
TRUNCATED = "truncated last line"
GZIP = "broken gzip"
BLANK = rb"[ \t\r]"  # both patterns write it as _
VISIT = re.compile(
    rb"([0-9]{1,10})_+id-([0-9]{1,9})_+([01])_+[|]user((?:_+[0-9]{1,10})+)_+".replace(b"_", BLANK)
)
ARTICLES = re.compile(rb"[|]id-[0-9]{1,9}(?:_+[|]id-[0-9]{1,9})*_*".replace(b"_", BLANK))
IDS = frozenset(range(1, FEATURES + 1))


def read_day(path: str | os.PathLike[str], *, strict: bool = False) -> Day:
    """Return one day of the log.

    Malformed lines are skipped and counted in `problems`. Raise ValueError if there is no good line
    or, with `strict`, any malformed one.
    """
    path = Path(path)
    visits = Visits()
    skipped: dict[str, SkippedLines] = {}
    number = 0
    try:
        generated = is_generated(path)
        for number, line in enumerate(read_lines(path), 1):
            if kind := visits.add(line):
                seen = skipped.get(kind, SkippedLines(kind, 0, number))
                skipped[kind] = seen._replace(lines=seen.lines + 1)
                if seen.lines == MOST_SKIPPED:
                    raise ValueError(
                        f"{path} is no news log: it has more than {MOST_SKIPPED:,} malformed lines "
                        f"({seen}); expected one line for each visit"
                    )
    except (EOFError, zlib.error, gzip.BadGzipFile):
        skipped[GZIP] = SkippedLines(GZIP, 1, number + 1)
    except OSError as error:
        raise ValueError(f"cannot read the news log {path}: {error.strerror}") from error
    problems = tuple(skipped.values())
    found = "; ".join(map(str, problems))
    if not visits.time:
        raise ValueError(f"{path} has no line of the news log's form: {found or 'it is empty'}")
    if strict and problems:
        raise ValueError(f"{path} has malformed lines: {found}; without strict they are skipped")
    name = path.name.removeprefix(NAME).removesuffix(".gz")
    return visits.day(name, problems, generated)


def read_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a gzip file with their line ends; the last may lack its own."""
    most, total = max(SMALL, EXPANSION * path.stat().st_size), 0
    with gzip.open(path) as file:
        while line := file.readline(LONGEST):
            total += len(line)
            if total > most:
                raise ValueError(
                    f"{path} is no news log: it expands to more than {EXPANSION} times its size; "
                    "expected visits, which differ from one another"
                )
            if len(line) == LONGEST:
                raise ValueError(
                    f"{path} is no news log: it has no line end within {LONGEST:,} bytes; expected "
                    "one short line for each visit"
                )
            yield line


class Visits:
    """The columns of a `Day`, which grow by a visit at a time."""

    def __init__(self) -> None:
        self.time, self.ends = array("q"), array("q", [0])
        self.article, self.pool = array("i"), array("i")
        self.click, self.features = bytearray(), bytearray()
        self.pools: dict[frozenset[int], int] = {}  # the numbers of pools, in order of appearance

    def add(self, line: bytes) -> str:
        """Add the visit in a line; return "" or, for a malformed line, its kind."""
        if not line.endswith(b"\n"):
            return TRUNCATED
        start = line.find(b"|id-")
        fields = VISIT.fullmatch(line, 0, max(start, 0))
        pool = parse_pool(line[start:-1])
        if fields is None or pool == FIELD:
            return FIELD
        time, article, click, users = fields.groups()
        features = [int(each) for each in users.split()]
        distinct = set(features)
        if len(distinct) < len(features) or not distinct <= IDS:
            return FEATURE
        if isinstance(pool, str):
            return pool
        if int(article) not in pool:
            return DISPLAYED
        self.time.append(int(time))
        self.article.append(int(article))
        self.click.append(int(click))
        self.features.extend([each - 1 for each in features])
        self.ends.append(len(self.features))
        self.pool.append(self.pools.setdefault(pool, len(self.pools)))
        return ""

    def day(self, name: str, problems: tuple[SkippedLines, ...], generated: bool) -> Day:
        """Return the visits as a day."""
        return Day(
            name=name,
            time=np.asarray(self.time, np.int64),
            article=np.asarray(self.article, np.int32),
            click=np.frombuffer(self.click, np.uint8),
            features=np.frombuffer(self.features, np.uint8),
            ends=np.asarray(self.ends, np.int64),
            pool=np.asarray(self.pool, np.int32),
            pools=tuple(np.array(sorted(pool), np.int32) for pool in self.pools),
            problems=problems,
            generated=generated,
        )


@lru_cache(maxsize=1024)
def parse_pool(text: bytes) -> frozenset[int] | str:
    """Return the articles of a pool or, for a malformed one, the kind of its line.

    Pools last for minutes, so most visits find theirs in the cache.
    """
    if not ARTICLES.fullmatch(text):
        return FIELD
    articles = [int(each) for each in text.split(b"|id-")[1:]]
    if len(articles) > MOST_ARTICLES:
        return POOL
    distinct = frozenset(articles)
    return distinct if len(distinct) == len(articles) else FIELD
