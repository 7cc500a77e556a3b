"""How requests of all generations are answered, and times as clients write them."""

import asyncio
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tsucb.service.errors import HttpProblem, Problem
from tsucb.service.http import Answer, Call, Headers, Operations, json_answer

CURRENT = "2022-09-01-preview"
WHO = "personalizer"  # in the audit trail
ROUTES = Operations(where="json", rename="camel")
Skip = Annotated[int, Meta(ge=0)]  # rows of a list
Top = Annotated[int, Meta(ge=1)]

# The codes of Personalizer for the errors of the service.
CODES = {
    "NotFound": "ResourceNotFound",
    "Forbidden": "OperationNotAllowed",
    "InternalError": "InternalServerError",
    "StoreUnavailable": "InternalServerError",
    "TooLarge": "PayloadSizeExceeded",
    "Conflict": "BadRequest",
    "MethodNotAllowed": "BadRequest",
}


class Personalizer:
    """Answers requests under /personalizer."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, str], asyncio.Task[None]] = {}  # evaluations, by loop and id
        self.one_at_a_time = asyncio.Lock()

    def problem(self, problem: Problem) -> Answer:
        """Return a problem in the form of this protocol."""
        code = CODES.get(problem.code, problem.code)
        error: dict[str, Any] = {"code": code, "message": str(problem)}
        error |= {"target": None, "details": [], "innerError": None}
        headers = [*problem.headers, (b"x-ms-error-code", code.encode())]
        return json_answer({"error": error}, problem.status, headers)

    async def answer(self, call: Call) -> Answer:
        """Return the answer to a call, after a check of its path and its key."""
        call.version, call.path = generation(call)
        route = ROUTES.find(call, call.path)
        if call.holder is None:
            message = "give a key of a loop in Ocp-Apim-Subscription-Key"
            raise HttpProblem(401, "Unauthorized", message)
        if call.holder.loop is None:
            message = "give a key of a loop, not the server's"
            raise HttpProblem(403, "OperationNotAllowed", message)
        call.check_allowed(route.action, call.holder.loop)
        call.loop, call.protocol = call.service.loop(call.holder.loop), self
        if "" in call.path_values:
            raise HttpProblem(400, route.code, "the id is empty")
        answer = await route.perform(call)
        return answer._replace(headers=original_url(call)) if answer.status == 204 else answer


def generation(call: Call) -> tuple[str, list[str]]:
    """Return the version of the protocol in a call, and the rest of the path."""
    rest = call.path[1:]
    if rest and re.fullmatch(r"v1\.0|v1\.1-preview(\.[0-9])?", rest[0]):
        return rest[0], rest[1:]
    asked = call.query.get("api-version", "")
    if asked != CURRENT:
        raise HttpProblem(
            404,
            "ResourceNotFound",
            f"the paths are /personalizer/v1.0, /personalizer/v1.1-preview.3, and those with "
            f"?api-version={CURRENT}; {asked[:40]!r} is another version",
        )
    return CURRENT, rest


def original_url(call: Call) -> Headers:
    """Return the header without which @azure-rest takes success for an error: the path's rest."""
    rest = b"/".join(call.raw_path.split(b"/")[-len(call.path) :])
    host = call.headers.get(b"host", b"")
    if not re.fullmatch(rb"[A-Za-z0-9.:\[\]_-]{1,255}", host):
        host = b"localhost"
    scheme = b"https" if call.secure else b"http"
    return [(b"x-ms-original-url", b"%s://%s/%s" % (scheme, host, rest))]


def one_page(rows: list[Any], call: Call, skip: int, top: int) -> dict[str, Any]:
    """Return `top` of the rows after the first `skip`, with a link to the next ones."""
    after = skip + top
    answer: dict[str, Any] = {"value": rows[skip:after]}
    if after < len(rows):
        base = call.raw_path.decode("latin-1")
        answer["nextLink"] = f"{base}?api-version={CURRENT}&skip={after}&top={top}"
    return answer


def moment(seconds: float) -> datetime:
    """Return a time in seconds since 1970 as a datetime, in whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC)


def seconds_since(time: datetime) -> float:
    """Return a datetime in seconds since 1970; without a time zone it is in UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def duration(seconds: float) -> str:
    """Return a duration in the form of ISO 8601, in the largest units.

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
    """Return the seconds of a duration in the form of ISO 8601 or of .NET.

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
