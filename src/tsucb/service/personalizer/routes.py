"""The operations by their paths, the generations of the protocol, and times as clients write."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tsucb.service.errors import HttpProblem
from tsucb.service.http import Call, Headers, Operations

CURRENT = "2022-09-01-preview"
WHO = "personalizer"  # in the audit trail
ROUTES = Operations(where="json", rename="camel")
Skip = Annotated[int, Meta(ge=0)]  # rows of a list
Top = Annotated[int, Meta(ge=1)]


def generation(call: Call) -> tuple[str, list[str]]:
    """Return the version of the protocol that a client speaks, and the rest of the path."""
    words = call.path[1:]
    if words and re.fullmatch(r"v1\.0|v1\.1-preview(\.[0-9])?", words[0]):
        return words[0], words[1:]
    asked = call.query.get("api-version", "")
    if asked != CURRENT:
        raise HttpProblem(
            404,
            "ResourceNotFound",
            f"the paths are /personalizer/v1.0, /personalizer/v1.1-preview.3, and those with "
            f"?api-version={CURRENT}; {asked[:40]!r} is another version",
        )
    return CURRENT, words


def original_url(call: Call) -> Headers:
    """Return the header that @azure-rest needs to accept a success: the path after its version."""
    rest = b"/".join(call.raw_path.split(b"/")[-len(call.path) :])
    host = call.headers.get(b"host", b"")
    if not re.fullmatch(rb"[A-Za-z0-9.:\[\]_-]{1,255}", host):
        host = b"localhost"
    scheme = b"https" if call.secure else b"http"
    return [(b"x-ms-original-url", b"%s://%s/%s" % (scheme, host, rest))]


def one_page(rows: list[Any], call: Call, skip: int, top: int) -> dict[str, Any]:
    """Return the rows that are wanted, and where the next ones are."""
    after = skip + top
    answer: dict[str, Any] = {"value": rows[skip:after]}
    if after < len(rows):
        base = call.raw_path.decode("latin-1")
        answer["nextLink"] = f"{base}?api-version={CURRENT}&skip={after}&top={top}"
    return answer


def moment(seconds: float) -> datetime:
    """Return a time in seconds since 1970, to the second, as answers have it."""
    return datetime.fromtimestamp(int(seconds), UTC)


def seconds_since(time: datetime) -> float:
    """Return a time of a client in seconds since 1970; one without a time zone is in UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def duration(seconds: float) -> str:
    """Return a stretch of time as ISO 8601 has it, in the largest units.

    >>> duration(600), duration(90_061), duration(0.5)
    ('PT10M', 'P1DT1H1M1S', 'PT0.5S')
    """
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3_600)
    minutes, rest = divmod(rest, 60)
    time = "".join(f"{n:g}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (rest, "S")) if n)
    text = (f"{days:g}D" if days else "") + (f"T{time}" if time else "")
    return f"P{text or 'T0S'}"


def seconds_of(given: Any) -> float:
    """Return a stretch of time in seconds: of ISO 8601, or as .NET writes it.

    >>> seconds_of("PT10M"), seconds_of("P1DT2H"), seconds_of("00:10:00"), seconds_of("1.00:00:00")
    (600.0, 93600.0, 600.0, 86400.0)
    """
    text = str(given)
    if dotnet := re.fullmatch(r"(?:(\d+)\.)?(\d+):(\d+):(\d+)", text):
        text = "P{}DT{}H{}M{}S".format(*dotnet.groups(default="0"))
    try:
        return msgspec.convert(text, timedelta).total_seconds()
    except msgspec.ValidationError:
        raise ValueError(f"{text[:40]!r} is no duration; give one such as PT10M") from None
