"""The text of a news log's file: decompressed in blocks of whole lines, as far as it can be read.

What a file may ask for is bounded: the length of a line, the number of gzip members, and how much
larger the text is than the file.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tsucb.paper.news.parser import GZIP, TRUNCATED, Faults

BLOCK = 1 << 22  # bytes of text parsed at a time
LONGEST = 1 << 20  # no line is longer; the longest of Yahoo!'s have a thousand bytes
MEMBERS = 1_000  # of a gzip file; a log's has one, or a few joined together
SMALL = 1 << 28  # text up to this size may be compressed ever so well
EXPANSION = 100  # how many times as large as its file a longer text may be; Yahoo!'s: ten


def whole_lines(path: Path, faults: Faults) -> Iterator[NDArray[np.uint8]]:
    """Blocks of text of whole lines; what is left of a broken or truncated file is counted."""
    rest = b""
    for block in blocks(path, faults):
        text = rest + block
        cut = text.rfind(b"\n") + 1
        if len(text) - cut > LONGEST:
            raise ValueError(
                f"{path} is no news log: it has no line end within {LONGEST:,} bytes; "
                "expected one short line for each visit"
            )
        rest = text[cut:]
        yield np.frombuffer(text, np.uint8, cut)
    faults.lines[TRUNCATED] += bool(rest)


def blocks(path: Path, faults: Faults) -> Iterator[bytes]:
    """The text in pieces of about `BLOCK` bytes, however small the pieces it comes in."""
    gathered: list[bytes] = []
    size = 0
    for piece in decompressed(path, faults):
        gathered.append(piece)
        size += len(piece)
        if size >= BLOCK:
            yield b"".join(gathered)
            gathered, size = [], 0
    yield b"".join(gathered)


def decompressed(path: Path, faults: Faults) -> Iterator[bytes]:
    """The text of a gzip file of one or more members, as far as it can be read."""
    with path.open("rb") as file:
        member = zlib.decompressobj(zlib.MAX_WBITS | 16)
        inside = True  # a member, whose end is still to come
        members = packed = total = 0
        while data := file.read(BLOCK >> 3):
            packed += len(data)
            while data:
                inside = True
                before = member.copy()
                try:
                    piece = member.decompress(data, BLOCK)
                except zlib.error:
                    faults.lines[GZIP] += 1
                    yield b"".join(readable(before, data))
                    return
                total += len(piece)
                if total > max(SMALL, EXPANSION * packed):
                    raise ValueError(
                        f"{path} is no news log: it expands to more than {EXPANSION} times its "
                        "size; expected visits, which differ from one another"
                    )
                yield piece
                data = member.unconsumed_tail
                if member.eof:
                    data = member.unused_data.lstrip(b"\0")  # padding between members is allowed
                    member = zlib.decompressobj(zlib.MAX_WBITS | 16)
                    inside = False
                    members += 1
                    if members > MEMBERS:
                        raise ValueError(
                            f"{path} is no news log: it consists of more than {MEMBERS:,} gzip "
                            "files joined together; compress it again as one"
                        )
        faults.lines[GZIP] += inside


def readable(member: "zlib._Decompress", data: bytes) -> Iterator[bytes]:
    """What can be decompressed of data that hold an error, byte by byte up to the error."""
    for i in range(len(data)):
        try:
            yield member.decompress(data[i : i + 1])
        except zlib.error:
            return
