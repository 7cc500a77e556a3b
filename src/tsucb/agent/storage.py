"""A file format for arrays and plain values; reading a file cannot execute code.

    tsucb 8\\n          the name and the version of the format
    8 bytes            length of the header, little-endian
    the header         JSON: the values, type and shape of every array, and which are sparse
    the arrays         raw, little-endian, one after the other
    32 bytes           SHA-256 of everything before

Of a large array that is mostly 0, a sparse one, the file has the places of the other entries, then
these entries.

A file is written under another name, flushed to the disk and renamed: at every moment there is the
old file or the new one. The checksum finds every accident. It is no signature: a forged file can
pass it, so sizes, shapes and ranges are checked as of any other input.
"""

import hashlib
import io
import json
import math
import os
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tsucb.checks import shown
from tsucb.files import written_whole
from tsucb.numeric.arrays import untouched

VERSION = 8
_KINDS = ("<f8", "<f4", "<i8", "<i4", "<u4", "<u8", "|b1")
_CHECKSUM = 32
_LENGTH = 8
_FIRST_LINE = 32
_MOST_AXES = 8
_LARGE = 2**14  # smaller arrays are never sparse
_MOST_SPARSE = 2**26  # entries of all sparse arrays of a file: it cannot ask for more than 512 MB
_PLACE = np.dtype("<u4")
MOST_COUNT = 2**53  # of anything: floats skip whole numbers beyond it


def write(path: str | os.PathLike[str], values: dict[str, Any], arrays: list[Any]) -> None:
    """Write JSON values and arrays to a file."""
    with written_whole(path) as file:
        _write(file, values, arrays)


def packed(values: dict[str, Any], arrays: list[Any]) -> bytes:
    """Return JSON values and arrays as the bytes of a file."""
    file = io.BytesIO()
    _write(file, values, arrays)
    return file.getvalue()


def _write(file: BinaryIO, values: dict[str, Any], arrays: list[Any]) -> None:
    parts = [np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")) for a in arrays]
    shapes = [[part.dtype.str, *part.shape] for part in parts]
    sparse, room = {}, _MOST_SPARSE
    for number, part in enumerate(parts):
        if _LARGE <= part.size <= room and 2 * np.count_nonzero(part) < part.size:
            entries = part.reshape(-1)
            places = np.flatnonzero(entries.view(f"u{part.itemsize}"))  # −0 is not 0 here
            sparse[number] = places.size
            parts[number] = np.frombuffer(
                places.astype(_PLACE).tobytes() + entries[places].tobytes(), np.uint8
            )
            room -= part.size
    header = json.dumps({"arrays": shapes, "values": values, "sparse": sparse}).encode()
    digest = hashlib.sha256()
    first = f"tsucb {VERSION}\n".encode() + len(header).to_bytes(_LENGTH, "little")
    for piece in (first, header, *(part.tobytes() for part in parts)):
        digest.update(piece)
        file.write(piece)
    file.write(digest.digest())


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Return the values and arrays of a file; raise ValueError if it is damaged.

    Every size is compared with that of the file before anything is read or allocated.
    """
    with open(os.fspath(path), "rb") as file:  # not the handle of an open file
        return _read(file, os.fstat(file.fileno()).st_size, str(path))


def unpacked(data: bytes) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Return the values and arrays in the bytes of a file; raise ValueError if it is damaged."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"give the bytes that `to_bytes` returned, not {shown(data)}")
    return _read(io.BytesIO(data), len(data), "it")


def _read(file: BinaryIO, size: int, path: str) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    first = file.readline(_FIRST_LINE)
    word, _, version = first.rstrip(b"\n").partition(b" ")
    if word != b"tsucb" or not first.endswith(b"\n") or not version.isdigit():
        raise ValueError(f"{path} is not a file of this library; give one that `save` wrote")
    if int(version) > VERSION:
        raise ValueError(
            f"{path} was written by a newer version of this library (format {int(version)}, "
            f"this one reads {VERSION}); upgrade tsucb to read it"
        )
    if int(version) < VERSION:
        raise ValueError(
            f"{path} was written before the first release (format {int(version)}, this one "
            f"reads {VERSION}); make the agent again and `fit` it to its history"
        )
    try:
        return _parse(file, size, first)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: {error}; use another copy") from None


def _parse(file: BinaryIO, size: int, first: bytes) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    digest = hashlib.sha256(first)
    left = size - len(first) - _CHECKSUM

    def piece(size: int) -> bytes:
        nonlocal left
        if size > left:
            raise ValueError("it is shorter than its header says, as after a truncated copy")
        data = file.read(size)
        left -= size
        digest.update(data)
        if len(data) < size:
            raise ValueError("it became shorter while it was read")
        return data

    header = json.loads(piece(int.from_bytes(piece(_LENGTH), "little")))
    shapes = [_type_and_shape(kind, shape) for kind, *shape in header["arrays"]]
    sizes = [dtype.itemsize * math.prod(shape) for dtype, shape in shapes]
    counts = {int(number): count for number, count in dict(header.get("sparse", {})).items()}
    if not counts.keys() <= set(range(len(shapes))):
        raise ValueError("it calls an array sparse that it does not have")
    spread = 0
    for number, count in counts.items():
        dtype, shape = shapes[number]
        spread += math.prod(shape)
        if type(count) is not int or not 0 <= count <= math.prod(shape) or spread > _MOST_SPARSE:
            raise ValueError("it has a sparse array of an impossible size")
        sizes[number] = count * (_PLACE.itemsize + dtype.itemsize)
    if sum(sizes) != left:
        raise ValueError("its length does not match its header")
    arrays = []
    for number, ((dtype, shape), size) in enumerate(zip(shapes, sizes, strict=True)):
        data = piece(size)
        entries = (
            _dense_entries(data, counts[number], dtype, math.prod(shape))
            if number in counts
            else np.frombuffer(data, dtype).copy()  # which can be changed
        )
        arrays.append(entries.reshape(shape).astype(dtype.newbyteorder("="), copy=False))
    if file.read(_CHECKSUM + 1) != digest.digest():
        raise ValueError("its checksum does not match what it holds, as after an edit")
    if not isinstance(header["values"], dict):
        raise ValueError("its values are not a mapping")
    return header["values"], arrays


def _dense_entries(data: bytes, count: int, dtype: np.dtype[Any], size: int) -> NDArray[Any]:
    """Return the entries of a sparse array, with zeros between them."""
    places = np.frombuffer(data, _PLACE, count).astype(np.int64)
    if count and (places[-1] >= size or (np.diff(places) <= 0).any()):
        raise ValueError("it has a sparse array with impossible places")
    entries = untouched(size) if dtype == np.float64 else np.zeros(size, dtype)
    entries[places] = np.frombuffer(data, dtype, count, count * _PLACE.itemsize)
    return entries


def _type_and_shape(kind: Any, shape: list[Any]) -> tuple[np.dtype[Any], list[int]]:
    """Return type and shape of an array; raise ValueError for those that `write` does not make."""
    good = all(type(n) is int and 0 <= n < 2**48 for n in shape) and len(shape) <= _MOST_AXES
    if kind not in _KINDS or not good:
        raise ValueError("it has an array of an unknown type or shape")
    return np.dtype(kind), shape


def count_of(value: Any) -> int:
    """Return a whole number of at least 0; raise ValueError otherwise."""
    if type(value) is not int or not 0 <= value <= MOST_COUNT:
        raise ValueError(f"{value!r} where a count belongs")
    return value
