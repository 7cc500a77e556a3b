"""Copies of the days of a news log: a file is parsed once, and its copy read from then on.

A copy is a Parquet file in the user's cache folder, with a row for each visit. It is made again if
the log has changed or the copy is damaged.
"""

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tsucb.files import cache_folder, written_whole
from tsucb.paper.news.day import Day, Problem, day_name, is_generated
from tsucb.paper.news.lines import Lines
from tsucb.paper.news.parser import FINE, GZIP, KINDS, TRUNCATED, Block, Parser

VERSION = 2  # of the copies; raise it when their meaning changes


def read_day(path: str | os.PathLike[str], *, strict: bool = False) -> Day:
    """Return one day of the log, from its copy if the file has not changed since.

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
    """Prepare the copy of a day if there is none; return its problems, or raise as `read_day`."""
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
    """Return the path in the cache folder of a file made from a day."""
    place = sha256(str(path.resolve()).encode()).hexdigest()[:12]
    return cache_folder() / "news" / f"{day_name(path)}-{place}{ending}"


def fingerprint(path: Path) -> list[Any]:
    """Return what tells one state of a file from another: size, time, gzip's own checksum."""
    try:
        status = path.stat()
        return [VERSION, status.st_size, status.st_mtime_ns, gzip_checksum(path)]
    except OSError as error:
        raise ValueError(f"cannot read the news log {path}: {error.strerror}") from error


def gzip_checksum(path: Path) -> str:
    """Return the checksum and length of the text, with which a gzip file ends."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8))
        return file.read().hex()


def description(copy: Path) -> dict[str, Any]:
    """Return what a copy says of its day; nothing if it is missing or broken."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        about = json.loads(pq.read_metadata(copy).metadata[b"tsucb"])
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError):
        return {}
    return about if isinstance(about, dict) else {}


def read_copy(copy: Path, name: str) -> Day:
    """Return the day in a copy; raise an error if a page does not agree with its checksum."""
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
    """Parse a gzip file into a copy, block by block."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            ("time", pa.int64()),
            ("article", pa.int32()),
            ("click", pa.uint8()),
            ("pool", pa.int32()),
            ("features", pa.large_binary()),  # a byte for each feature that is on
            ("new_pool", pa.large_list(pa.int32())),  # pools met first in this block, then null
        ]
    )
    parser, text = Parser(), Lines(path)
    counts, first = np.zeros((2, len(KINDS)), np.int64)  # of each kind of problem; its first line
    lines = visits = 0
    copy.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"compression": "zstd", "use_dictionary": False}
    with (
        written_whole(copy) as file,
        pq.ParquetWriter(file, schema, write_page_checksum=True, **options) as writer,
    ):
        for block_text in text:
            block = parser.parse(block_text)
            writer.write_table(pa.table(columns(block), schema=schema))
            visits += len(block.time)
            for kind in np.unique(block.faults[block.faults != FINE]):
                places = np.flatnonzero(block.faults == kind)
                first[kind] = first[kind] or lines + 1 + places[0]
                counts[kind] += places.size
            lines += len(block.faults)
        for kind, found in ((TRUNCATED, text.truncated), (GZIP, text.broken)):
            counts[kind], first[kind] = found, lines + 1
        about = {
            "source": source,
            "visits": visits,
            "generated": is_generated(path),
            "problems": [
                Problem(KINDS[kind], int(counts[kind]), int(first[kind]))
                for kind in np.flatnonzero(counts)
            ],
        }
        writer.add_key_value_metadata({"tsucb": json.dumps(about)})


def columns(block: Block) -> dict[str, Any]:
    """Return the columns of a copy for a block of visits.

    Every pool is met first at a visit, so the new pools of a block fit into its rows.
    """
    import pyarrow as pa

    rows = len(block.time)
    features = pa.py_buffer(block.features.astype(np.uint8))
    ends = pa.py_buffer(block.ends)
    return {
        "time": block.time,
        "article": block.article.astype(np.int32),
        "click": block.click.astype(np.uint8),
        "pool": block.pool.astype(np.int32),
        "features": pa.Array.from_buffers(pa.large_binary(), rows, [None, ends, features]),
        "new_pool": pa.array(
            [*block.new_pools, *[None] * (rows - len(block.new_pools))], pa.large_list(pa.int32())
        ),
    }
