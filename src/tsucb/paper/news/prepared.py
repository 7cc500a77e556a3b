"""Copies of the days of a news log: a file is parsed once, and its copy read from then on.

A copy is an `.npz` file in the user's cache folder. It is made again if the log has changed or the
copy is damaged.
"""

import json
import os
import zipfile
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from tsucb.files import cache_folder, written_whole
from tsucb.paper.news.day import Day, SkippedLines, day_name, is_generated
from tsucb.paper.news.parser import FINE, GZIP, KINDS, TRUNCATED, Block, Lines, Parser

VERSION = 3  # of the copies; raise it when their meaning changes
DAMAGE = (OSError, EOFError, KeyError, ValueError, TypeError, zlib.error, zipfile.BadZipFile)


def read_day(path: str | os.PathLike[str], *, strict: bool = False) -> Day:
    """Return one day of the log, from its copy if the file has not changed since.

    Malformed lines are skipped and counted in `problems`; with `strict` they are an error. A day
    without a good line is always an error.
    """
    path = Path(path)
    check_day(path, strict=strict)
    copy = cache_file(path, "-day.npz")
    try:
        return read_copy(copy, day_name(path))
    except DAMAGE:
        copy.unlink(missing_ok=True)
        check_day(path, strict=strict)
        return read_copy(copy, day_name(path))


def check_day(path: Path, *, strict: bool = False) -> tuple[SkippedLines, ...]:
    """Prepare the copy of a day if there is none; return its problems, or raise as `read_day`."""
    copy = cache_file(path, "-day.npz")
    source = fingerprint(path)
    about = description(copy)
    if about.get("source") != source:
        prepare(path, copy, source)
        about = description(copy)
    problems = tuple(SkippedLines(*problem) for problem in about["problems"])
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
    try:
        with np.load(copy) as file:
            about = json.loads(str(file["about"]))
    except DAMAGE:
        return {}
    return about if isinstance(about, dict) else {}


def read_copy(copy: Path, name: str) -> Day:
    """Return the day in a copy; raise an error if the copy is damaged."""
    about = description(copy)
    problems = tuple(SkippedLines(*problem) for problem in about["problems"])
    with np.load(copy) as file:
        pools = np.split(file["pool_articles"], file["pool_ends"][1:-1])
        fields = ("time", "article", "click", "features", "ends", "pool")
        arrays = {field: file[field] for field in fields}
    return Day(name, **arrays, pools=tuple(pools), problems=problems, generated=about["generated"])


def prepare(path: Path, copy: Path, source: list[Any]) -> None:
    """Parse a gzip file, block by block, into a copy."""
    parser, text = Parser(), Lines(path)
    blocks: list[Block] = []
    counts, first = np.zeros((2, len(KINDS)), np.int64)  # of each kind of problem; its first line
    lines = 0
    for block_text in text:
        block = parser.parse(block_text)
        for kind in np.unique(block.faults[block.faults != FINE]):
            places = np.flatnonzero(block.faults == kind)
            first[kind] = first[kind] or lines + 1 + places[0]
            counts[kind] += places.size
        lines += len(block.faults)
        blocks.append(block)
    for kind, found in ((TRUNCATED, text.truncated), (GZIP, text.broken)):
        counts[kind], first[kind] = found, lines + 1
    problems = [
        SkippedLines(KINDS[kind], int(counts[kind]), int(first[kind]))
        for kind in np.flatnonzero(counts)
    ]
    arrays = join(blocks, list(parser.numbers))
    about = {"source": source, "visits": len(arrays["time"]), "generated": is_generated(path)}
    copy.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(copy) as file:
        np.savez_compressed(file, about=json.dumps(about | {"problems": problems}), **arrays)


def join(blocks: list[Block], pools: list[tuple[int, ...]]) -> dict[str, Any]:
    """Return the arrays of a day: its blocks one after the other, and its pools."""
    kinds = {"time": np.int64, "article": np.int32, "click": np.uint8, "features": np.uint8}
    arrays: dict[str, Any] = {
        field: np.concatenate([getattr(block, field) for block in blocks]).astype(kind)
        for field, kind in (kinds | {"pool": np.int32}).items()
    }
    sizes = np.concatenate([np.diff(block.ends) for block in blocks])
    return arrays | {
        "ends": np.append(0, sizes.cumsum()),
        "pool_articles": np.array([each for pool in pools for each in pool], np.int32),
        "pool_ends": np.cumsum([0, *(len(pool) for pool in pools)]),
    }
