"""Times and stretches of time as its clients write them."""

import re
from datetime import UTC, datetime
from typing import Any


def timestamp(seconds: float) -> str:
    """A time as ISO 8601 has it.

    >>> timestamp(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str) -> float:
    """The same in seconds since 1970.

    >>> seconds_since("1970-01-01T01:00:00.000Z")
    3600.0
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text[:40]!r} is no time; give one such as 2026-01-31T12:00:00Z"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>[\d.]+)S)?)?"
)


def duration(seconds: float) -> str:
    """A stretch of time as ISO 8601 has it.

    >>> duration(600), duration(90_061), duration(0.5)
    ('PT10M', 'P1DT1H1M1S', 'PT0.5S')
    """
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    parts = [(hours, "H"), (minutes, "M"), (rest, "S")]
    time = "".join(f"{part:g}{letter}" for part, letter in parts if part)
    text = (f"{days:g}D" if days else "") + (f"T{time}" if time else "")
    return f"P{text or 'T0S'}"


def seconds_of(text: Any) -> float:
    """The same in seconds; also as .NET writes it.

    >>> seconds_of("PT10M"), seconds_of("P1DT2H"), seconds_of("00:10:00"), seconds_of("1.00:00:00")
    (600.0, 93600.0, 600.0, 86400.0)
    """
    if isinstance(text, str) and (match := DURATION.fullmatch(text)) and len(text) > 2:
        units = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}
        return float(sum(float(match[name] or 0) * size for name, size in units.items()))
    if isinstance(text, str) and (match := re.fullmatch(r"(?:(\d+)\.)?(\d+):(\d+):(\d+)", text)):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)
    raise ValueError(f"{str(text)[:40]!r} is no duration; give one such as PT10M")
