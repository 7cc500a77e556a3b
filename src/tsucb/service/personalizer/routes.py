"""The operations by their paths, the generations of the protocol, and times as clients write."""

import re
from datetime import UTC, datetime
from typing import Any

from tsucb.service.http import Headers, HttpProblem, Operations, Request

CURRENT = "2022-09-01-preview"
WHO = "personalizer"  # in the audit trail
ROUTES = Operations()


def generation(request: Request) -> tuple[str, list[str]]:
    """Return the version of the protocol that a client speaks, and the rest of the path."""
    words = request.path[1:]
    if words and re.fullmatch(r"v1\.0|v1\.1-preview(\.[0-9])?", words[0]):
        return words[0], words[1:]
    asked = request.query.get("api-version", "")
    if asked != CURRENT:
        raise HttpProblem(
            404,
            "ResourceNotFound",
            f"the paths are /personalizer/v1.0, /personalizer/v1.1-preview.3, and those with "
            f"?api-version={CURRENT}; {asked[:40]!r} is another version",
        )
    return CURRENT, words


def original_url(request: Request, words: list[str]) -> Headers:
    """Return the header that @azure-rest needs to accept a success: the path after its version."""
    raw = request.raw_path.split(b"/")
    rest = b"/".join(raw[len(raw) - len(words) :])
    host = request.headers.get(b"host", b"localhost")
    if not re.fullmatch(rb"[A-Za-z0-9.:\[\]_-]{1,255}", host):
        host = b"localhost"
    scheme = b"https" if request.secure else b"http"
    return [(b"x-ms-original-url", b"%s://%s/%s" % (scheme, host, rest))]


def paged(rows: list[Any], request: Request) -> dict[str, Any]:
    """Return some rows of a list, and where the next ones are."""
    query = request.query
    skip, top = int(query.get("skip", "0")), int(query.get("top", "100"))
    if skip < 0 or top < 1:
        raise ValueError("skip and top are numbers of rows")
    answer: dict[str, Any] = {"value": rows[skip : skip + top]}
    if skip + top < len(rows):
        base = request.raw_path.decode("latin-1")
        answer["nextLink"] = f"{base}?api-version={CURRENT}&skip={skip + top}&top={top}"
    return answer


def timestamp(seconds: float) -> str:
    """Return a time as ISO 8601 has it.

    >>> timestamp(0)
    '1970-01-01T00:00:00Z'
    """
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str) -> float:
    """Return a time of ISO 8601 in seconds since 1970.

    >>> seconds_since("1970-01-01T01:00:00.000Z")
    3600.0
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        message = f"{text[:40]!r} is no time; give one such as 2026-01-31T12:00:00Z"
        raise ValueError(message) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def duration(seconds: float) -> str:
    """Return a stretch of time as ISO 8601 has it.

    >>> duration(600), duration(90_061), duration(0.5)
    ('PT10M', 'P1DT1H1M1S', 'PT0.5S')
    """
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    time = "".join(f"{n:g}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if n)
    text = (f"{days:g}D" if days else "") + (f"T{time}" if time else "")
    return f"P{text or 'T0S'}"


# Days, hours, minutes, seconds: of ISO 8601, and as .NET writes them.
DURATIONS = (
    re.compile(r"P(?!$)(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:([\d.]+)S)?)?"),
    re.compile(r"(?:(\d+)\.)?(\d+):(\d+):(\d+)"),
)


def seconds_of(text: Any) -> float:
    """Return a stretch of time in seconds.

    >>> seconds_of("PT10M"), seconds_of("P1DT2H"), seconds_of("00:10:00"), seconds_of("1.00:00:00")
    (600.0, 93600.0, 600.0, 86400.0)
    """
    for form in DURATIONS:
        if isinstance(text, str) and text != "PT" and (match := form.fullmatch(text)):
            days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
            return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    raise ValueError(f"{str(text)[:40]!r} is no duration; give one such as PT10M")
