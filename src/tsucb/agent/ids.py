"""The ids of decisions: written one by one or many at once, and read again."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tsucb.compiler import compiled
from tsucb.numeric.arrays import Integers

LONGEST_ID = 36  # 19 digits, a hyphen and 16 digits
NEWLINE, HYPHEN, DIGITS, LETTERS = 10, 45, 48, 87  # 0 to 9, a to f


def decision_id(number: int, checksum: int) -> str:
    """The number of the decision and a checksum over all decisions up to it.

    A process that was killed and goes on from an older file numbers its decisions anew; the
    checksum keeps a reward for one that was lost from being taken for another's, as decisions with
    the same id have the same arm and context.
    """
    return f"{number}-{checksum:x}"


def decision_ids(numbers: Integers, checksums: NDArray[np.uint64]) -> list[str]:
    """`decision_id` of many."""
    letters = np.empty(numbers.size * (LONGEST_ID + 1), dtype=np.uint8)
    first = write_ids(letters, numbers, checksums)
    return letters[first:].tobytes().decode("ascii").split("\n")[:-1]


def parsed(id: str) -> tuple[int, int] | None:
    """The number and the checksum in an id; None if it is none of `decision_id`."""
    number, _, checksum = id.partition("-")
    try:
        known = int(number), int(checksum, 16)
    except ValueError:
        return None
    good = 0 < known[0] < 10**18 and 0 <= known[1] < 2**64 and decision_id(*known) == id
    return known if good else None


def parsed_ids(ids: Sequence[str]) -> tuple[Integers, NDArray[np.uint64]]:
    """The numbers and the checksums in ids; 0 where there are none."""
    try:
        text = np.array(bytearray("\n".join([*ids, ""]), "ascii"))
    except (TypeError, UnicodeEncodeError):  # some are nobody's ids
        text = np.zeros(0, dtype=np.uint8)
    if np.count_nonzero(text == NEWLINE) == len(ids):
        numbers, checksums = np.zeros(len(ids), np.int64), np.zeros(len(ids), np.uint64)
        read_ids(text, numbers, checksums)
        return numbers, checksums
    known = [parsed(id) or (0, 0) if isinstance(id, str) else (0, 0) for id in ids]
    return np.array([n for n, _ in known], np.int64), np.array([c for _, c in known], np.uint64)


@compiled
def write_id(letters, end, number, checksum):  # type: ignore[no-untyped-def]
    """Write `decision_id` into the letters before an end, and say where it begins."""
    at = end
    while True:
        at -= 1
        digit = checksum & np.uint64(15)
        letters[at] = digit + (np.uint64(DIGITS) if digit < 10 else np.uint64(LETTERS))
        checksum >>= np.uint64(4)
        if checksum == 0:
            break
    at -= 1
    letters[at] = HYPHEN
    while True:
        at -= 1
        letters[at] = DIGITS + number % 10
        number //= 10
        if number == 0:
            break
    return at


@compiled
def write_ids(letters, numbers, checksums):  # type: ignore[no-untyped-def]
    """Write all ids, each before a newline, and say where the first begins."""
    at = letters.size
    for i in range(numbers.size - 1, -1, -1):
        at -= 1
        letters[at] = NEWLINE
        at = write_id(letters, at, numbers[i], checksums[i])
    return at


@compiled
def read_ids(text, numbers, checksums):  # type: ignore[no-untyped-def]
    """Read ids, each before a newline; 0 for what is none."""
    at = 0
    for i in range(numbers.size):
        first, number, checksum = at, 0, np.uint64(0)
        while DIGITS <= text[at] < DIGITS + 10:
            number = 10 * number + (text[at] - DIGITS)
            at += 1
        good = first < at < first + 19 and text[first] != DIGITS and text[at] == HYPHEN
        at += text[at] == HYPHEN
        first = at
        while DIGITS <= text[at] < DIGITS + 10 or LETTERS + 10 <= text[at] < LETTERS + 16:
            digit = text[at] - (DIGITS if text[at] < LETTERS else LETTERS)
            checksum = checksum << np.uint64(4) | np.uint64(digit)
            at += 1
        good &= first < at <= first + 16 and (text[first] != DIGITS or at == first + 1)
        if good and text[at] == NEWLINE:
            numbers[i], checksums[i] = number, checksum
        while text[at] != NEWLINE:
            at += 1
        at += 1
