"""Prepared copies of the days of a news log: each file is read once, then taken from a copy.

A copy is a Parquet file in the user's cache folder, with a row for each visit. It is made anew when
the log has changed since, and when it is damaged.
"""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tsucb.files import cache_folder, written_whole
from tsucb.paper.news.day import Day, Problem, day_name, is_generated
from tsucb.paper.news.parser import (
    GZIP,
    KINDS,
    TRUNCATED,
    Faults,
    Pools,
    Visits,
    empty_pools,
    empty_visits,
    grown,
    parse,
)
from tsucb.paper.news.text import whole_lines

if TYPE_CHECKING:
    import pyarrow

VERSION = 2  # of the copies: raise it when their meaning changes


def read_day(path: str | os.PathLike[str], *, strict: bool = False) -> Day:
    """One day of the log, from its copy when the file has not changed since it was last read.

    Malformed lines are skipped and counted in `problems`; with `strict` they are an error. A day
    without a good line is always an error.
    """
    import pyarrow as pa

    path = Path(path)
    check_day(path, strict=strict)
    copy = cache_file(path, ".parquet")
    try:
        return read_copy(copy, day_name(path))
    except (OSError, pa.ArrowInvalid):  # damaged since it was made
        copy.unlink(missing_ok=True)
        check_day(path, strict=strict)
        return read_copy(copy, day_name(path))


def check_day(path: Path, *, strict: bool = False) -> tuple[Problem, ...]:
    """Prepare the copy of a day if there is none; what was malformed, or an error as above."""
    copy = cache_file(path, ".parquet")
    source = fingerprint(path)
    about = description(copy)
    if about.get("source") != source:
        prepare(path, copy, source)
        about = description(copy)
    problems = tuple(Problem(*problem) for problem in about["problems"])
    found = "; ".join(map(str, problems))
    if not about["visits"]:
        copy.unlink()
        raise ValueError(f"{path} has no line of the news log's form: {found or 'it is empty'}")
    if strict and problems:
        raise ValueError(f"{path} has malformed lines: {found}; without strict they are skipped")
    return problems


def cache_file(path: Path, ending: str) -> Path:
    """The file of the cache folder for something made of a day."""
    place = sha256(str(path.resolve()).encode()).hexdigest()[:12]
    return cache_folder() / "news" / f"{day_name(path)}-{place}{ending}"


def fingerprint(path: Path) -> list[Any]:
    """What tells one state of a file from another: size, time of change, gzip's own checksum."""
    try:
        status = path.stat()
        return [VERSION, status.st_size, status.st_mtime_ns, gzip_checksum(path)]
    except OSError as error:
        raise ValueError(f"cannot read the news log {path}: {error.strerror}") from error


def gzip_checksum(path: Path) -> str:
    """Checksum and length of the text, with which a gzip file ends."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8))
        return file.read().hex()


def description(copy: Path) -> dict[str, Any]:
    """What a copy says of its day; nothing if there is no such file or it is broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        about = json.loads(pq.read_metadata(copy).metadata[b"tsucb"])
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def read_copy(copy: Path, name: str) -> Day:
    """The day in a copy, whose pages must agree with their checksums."""
    import pyarrow.parquet as pq

    table = pq.read_table(copy, page_checksum_verification=True)
    about = description(copy)
    _, offsets, values = table["features"].combine_chunks().buffers()
    pools = table["new_pool"].combine_chunks().drop_null()
    articles, ends = pools.flatten().to_numpy(), pools.offsets.to_numpy()
    return Day(
        name=name,
        time=table["time"].to_numpy(),
        article=table["article"].to_numpy(),
        click=table["click"].to_numpy(),
        features=np.frombuffer(values, np.uint8),
        ends=np.frombuffer(offsets, np.int64, len(table) + 1),
        pool=table["pool"].to_numpy(),
        pools=tuple(np.split(articles, ends[1:-1] - ends[0])),
        problems=tuple(Problem(*problem) for problem in about["problems"]),
        generated=about["generated"],
    )


def prepare(path: Path, copy: Path, source: list[Any]) -> None:
    """Stream a gzip file through the parser into a copy."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("time", pa.int64()),
            ("article", pa.int32()),
            ("click", pa.uint8()),
            ("pool", pa.int32()),
            ("features", pa.large_binary()),  # a byte for each feature that is on
            ("new_pool", pa.large_list(pa.int32())),  # pools met since the block before, then null
        ]
    )
    pools = empty_pools(1024)
    faults = Faults(np.zeros(len(KINDS), np.int64), np.zeros(len(KINDS), np.int64))
    lines = total = known = 0
    copy.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": False}
    with (
        written_whole(copy) as file,
        pq.ParquetWriter(file, schema, write_page_checksum=True, **options) as writer,
    ):
        for text in whole_lines(path, faults):
            visits = empty_visits(len(text))
            begin = stored = used = 0
            while True:
                begin, stored, used, lines = parse(
                    text, begin, stored, used, lines, visits, pools, faults
                )
                if begin == len(text):
                    break
                pools = grown(pools)
            total += stored
            writer.write_table(pa.table(columns(visits, stored, pools, known), schema=schema))
            known = int(pools.size[0])
        for kind in (TRUNCATED, GZIP):  # of the file's end: the line is known only now
            faults.first[kind] = lines + 1
        about = {
            "source": source,
            "visits": total,
            "generated": is_generated(path),
            "problems": [
                Problem(KINDS[kind], int(faults.lines[kind]), int(faults.first[kind]))
                for kind in np.flatnonzero(faults.lines)
            ],
        }
        writer.add_key_value_metadata({"tsucb": json.dumps(about)})


def columns(visits: Visits, stored: int, pools: Pools, known: int) -> "dict[str, pyarrow.Array]":
    """The filled part of the parser's arrays as the columns of a copy.

    Every pool is first met at a visit, so those that are new in a block find room in its rows.
    """
    import pyarrow as pa

    # A null takes no articles: its end is that of the one before.
    ends = np.full(stored + 1, pools.ends[pools.size[0]])
    ends[: pools.size[0] - known + 1] = pools.ends[known : pools.size[0] + 1]
    ends -= pools.ends[known]
    new = pools.articles[pools.ends[known] : pools.ends[pools.size[0]]]
    filled = np.arange(stored) < pools.size[0] - known
    return {
        "time": visits.time[:stored],
        "article": visits.article[:stored],
        "click": visits.click[:stored],
        "pool": visits.pool[:stored],
        "features": pa.Array.from_buffers(
            pa.large_binary(),
            stored,
            [None, pa.py_buffer(visits.ends), pa.py_buffer(visits.features)],
        ),
        "new_pool": pa.LargeListArray.from_arrays(
            pa.array(ends), pa.array(new), mask=pa.array(~filled)
        ),
    }
