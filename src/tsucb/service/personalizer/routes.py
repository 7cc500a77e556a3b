"""Which operation a path stands for, in which generation."""

import re
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from tsucb.service.http import Answer, Headers, HttpProblem, Request, json_answer
from tsucb.service.loop import Loop

CURRENT = "2022-09-01-preview"


class Version(NamedTuple):
    """Which generation a client speaks."""

    name: str

    @property
    def current(self) -> bool:
        """Whether it is that of 2022, where evaluations look different."""
        return self.name == CURRENT


Operation = Callable[[Loop, Request, str, Version], Awaitable[Answer]]


class Route(NamedTuple):
    """What a path does: who may, the error it makes of bad input, and the function."""

    role: str
    code: str
    operation: Operation


Routes = dict[tuple[str, str], Route]  # by method and path, with "*" for the id


def generation(request: Request) -> tuple[Version, list[str]]:
    """Which generation is spoken, and the rest of the path."""
    words = request.path[1:]
    if words and words[0] == "v1.0":
        return Version("v1.0"), words[1:]
    if words and re.fullmatch(r"v1\.1-preview(\.[0-9])?", words[0]):
        return Version("v1.1"), words[1:]
    asked = request.query.get("api-version", "")
    if asked != CURRENT:
        raise HttpProblem(
            404,
            "ResourceNotFound",
            f"the paths are /personalizer/v1.0, /personalizer/v1.1-preview.3, and those with "
            f"?api-version={CURRENT}; {asked[:40]!r} is another version",
        )
    return Version(CURRENT), words


def original_url(request: Request, words: list[str]) -> Headers:
    """What @azure-rest looks at to accept a success: the path without its beginning."""
    raw = request.raw_path.split(b"/")
    rest = b"/".join(raw[len(raw) - len(words) :])
    host = request.headers.get(b"host", b"localhost")
    if not re.fullmatch(rb"[A-Za-z0-9.:\[\]_-]{1,255}", host):
        host = b"localhost"
    scheme = b"https" if request.secure else b"http"
    return [(b"x-ms-original-url", b"%s://%s/%s" % (scheme, host, rest))]


def paged(rows: list[Any], request: Request) -> Answer:
    """Some rows of a list, and where the next ones are."""
    query = request.query
    skip, top = int(query.get("skip", "0")), int(query.get("top", "100"))
    if skip < 0 or top < 1:
        raise ValueError("skip and top are numbers of rows")
    answer: dict[str, Any] = {"value": rows[skip : skip + top]}
    if skip + top < len(rows):
        base = request.raw_path.decode("latin-1")
        answer["nextLink"] = f"{base}?api-version={CURRENT}&skip={skip + top}&top={top}"
    return json_answer(answer)
