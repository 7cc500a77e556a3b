"""A file format for arrays and plain values that cannot execute anything.

    tsucb 3\\n          what it is, and the version of the format
    8 bytes            length of the header, little-endian
    the header         JSON: the values, and type and shape of every array
    the arrays         raw, little-endian, one after the other
    32 bytes           SHA-256 of everything before

A file is written aside, flushed to the disk and renamed, so that whatever happens there is the old
file or the new one. The checksum finds every accident; it is no signature, so a file made to
deceive can pass it, and is then checked for shapes and ranges like any other input.
"""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tsucb.files import written_whole

VERSION = 3
_KINDS = ("<f8", "<f4", "<i8", "<i4", "<u4", "<u8")
_CHECKSUM = 32
_LENGTH = 8


def write(path: str | os.PathLike[str], values: dict[str, Any], arrays: list[Any]) -> None:
    """Write values that JSON knows, and arrays, to one file."""
    parts = [np.ascontiguousarray(a, dtype=a.dtype.newbyteorder("<")) for a in arrays]
    shapes = [[part.dtype.str, *part.shape] for part in parts]
    header = json.dumps({"arrays": shapes, "values": values}).encode()
    digest = hashlib.sha256()
    with written_whole(path) as file:
        first = f"tsucb {VERSION}\n".encode() + len(header).to_bytes(_LENGTH, "little")
        for piece in (first, header, *(part.tobytes() for part in parts)):
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """The values and arrays of a file, or a sentence on what is wrong with it."""
    data = Path(path).read_bytes()
    first, newline, _ = data[:32].partition(b"\n")
    word, _, version = first.partition(b" ")
    if word != b"tsucb" or not newline or not version.isdigit():
        raise ValueError(f"{path} is not a file of this library; give one that `save` wrote")
    if int(version) > VERSION:
        raise ValueError(
            f"{path} was written by a newer version of this library (format {int(version)}, this "
            f"one reads {VERSION}); upgrade tsucb to read it"
        )
    if int(version) < VERSION:
        raise ValueError(
            f"{path} was written before the first release (format {int(version)}, this one reads "
            f"{VERSION}); make the agent anew and `fit` it to its history"
        )
    body, checksum = data[:-_CHECKSUM], data[-_CHECKSUM:]
    if hashlib.sha256(body).digest() != checksum:
        raise ValueError(
            f"{path} is damaged: its checksum does not match what it holds, as after a truncated "
            "copy or an edit; use another copy"
        )
    try:
        return _parse(body[len(first) + 1 :])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{path} is not well formed ({error}); use another copy") from None


def _parse(body: bytes) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    end = _LENGTH + int.from_bytes(body[:_LENGTH], "little")
    if end > len(body):
        raise ValueError("the header is longer than the file")
    header = json.loads(body[_LENGTH:end])
    arrays = []
    for kind, *shape in header["arrays"]:
        if kind not in _KINDS or not all(type(n) is int and 0 <= n < 2**48 for n in shape):
            raise ValueError(f"an array of {kind} with shape {shape}")
        dtype = np.dtype(kind)
        size = dtype.itemsize
        for n in shape:
            size *= n
        if end + size > len(body):
            raise ValueError("an array is longer than the file")
        array = np.frombuffer(body, dtype, size // dtype.itemsize, end).reshape(shape)
        arrays.append(array.astype(dtype.newbyteorder("=")))  # a copy, which can be changed
        end += size
    if end != len(body):
        raise ValueError("there is something after the last array")
    if not isinstance(header["values"], dict):
        raise ValueError("the values are not a mapping")
    return header["values"], arrays
