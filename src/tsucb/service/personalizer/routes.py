"""The operations of the protocol, by their paths, and what they have in common."""

import re
from typing import Any

from tsucb.service.http import Headers, HttpProblem, Operations, Request

CURRENT = "2022-09-01-preview"


ROUTES = Operations()  # with "*" for the id in a path


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
