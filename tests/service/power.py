"""A file system that keeps only flushed writes, as a disk does when the power fails."""

import random
from pathlib import Path
from typing import Any

import apsw


class Disk:
    """By file: the flushed content, and the writes since the last flush."""

    def __init__(self) -> None:
        self.certain: dict[str, bytes] = {}
        self.since: dict[str, list[tuple[int, bytes]]] = {}

    def image(self, folder: Path, rng: random.Random) -> None:
        """Write one possible content after a power failure: any later writes, whole or in part."""
        folder.mkdir(parents=True)
        for name, content in self.certain.items():
            found = bytearray(content)
            for offset, data in self.since[name]:
                fate = rng.random()
                if fate < 0.4:
                    continue
                if fate < 0.6:
                    data = data[: rng.randrange(len(data) + 1)]
                if len(found) < offset:
                    found.extend(bytes(offset - len(found)))
                found[offset : offset + len(data)] = data
            (folder / Path(name).name).write_bytes(found)


class Files(apsw.VFS):
    """SQLite's usual file system, which reports writes and flushes."""

    def __init__(self, name: str, disk: Disk) -> None:
        self.disk = disk
        super().__init__(name, "")

    def xOpen(self, name: Any, flags: list[int]) -> "Watched":
        return Watched(name, flags, self.disk)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        super().xDelete(filename, syncdir)
        self.disk.certain.pop(filename, None)
        self.disk.since.pop(filename, None)


class Watched(apsw.VFSFile):
    """An open file, which reports writes and flushes."""

    def __init__(self, name: Any, flags: list[int], disk: Disk) -> None:
        self.path = name if isinstance(name, str) or name is None else name.filename()
        super().__init__("", name, flags)
        self.disk = disk
        if self.path:
            disk.certain.setdefault(self.path, b"")
            disk.since.setdefault(self.path, [])

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        if self.path:
            self.disk.since[self.path].append((offset, bytes(data)))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        if self.path:  # counts as flushed: only writes get lost in this test
            self.disk.certain[self.path] = Path(self.path).read_bytes()
            self.disk.since[self.path] = []

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        if self.path:
            self.disk.certain[self.path] = Path(self.path).read_bytes()
            self.disk.since[self.path] = []
