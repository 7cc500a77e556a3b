"""Read the lines of a gzip file in blocks, as far as the file can be read.

The length of a line is bounded, and so is how much larger the text may be than the file.
"""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path

BLOCK = 1 << 22  # bytes of text parsed at a time
LONGEST = 1 << 20  # no line is longer; the longest of Yahoo!'s have a thousand bytes
SMALL = 1 << 28  # text up to this size may be any number of times as large as its file
EXPANSION = 100  # how many times as large as its file a longer text may be; Yahoo!'s: ten


class Lines:
    """The lines of a gzip file.

    After iteration, `truncated` says whether the last line had no end, and `broken` whether gzip
    found an error.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.truncated = self.broken = False

    def __iter__(self) -> Iterator[bytes]:
        """Yield blocks of whole lines."""
        rest = b""
        for block in self.blocks():
            text = rest + block
            cut = text.rfind(b"\n") + 1
            if len(text) - cut > LONGEST:
                raise ValueError(
                    f"{self.path} is no news log: it has no line end within {LONGEST:,} bytes; "
                    "expected one short line for each visit"
                )
            rest = text[cut:]
            yield text[:cut]
        self.truncated = bool(rest)

    def blocks(self) -> Iterator[bytes]:
        """Yield the text in pieces of about `BLOCK` bytes."""
        size = self.path.stat().st_size
        pieces: list[bytes] = []
        total = 0
        with gzip.open(self.path) as file:
            while piece := self.read_piece(file):
                pieces.append(piece)
                total += len(piece)
                if total > max(SMALL, EXPANSION * size):
                    raise ValueError(
                        f"{self.path} is no news log: it expands to more than {EXPANSION} times "
                        "its size; expected visits, which differ from one another"
                    )
                if sum(map(len, pieces)) >= BLOCK:
                    yield b"".join(pieces)
                    pieces = []
        yield b"".join(pieces)
        self.broken |= not size

    def read_piece(self, file: gzip.GzipFile) -> bytes:
        """Return the next bytes of the text; none at its end or after an error."""
        try:
            return file.read1(BLOCK)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            self.broken = True
            return b""
