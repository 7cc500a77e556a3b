"""The errors of the service; each protocol answers them in its own form."""

from collections.abc import Sequence


class Problem(Exception):
    """A request cannot be answered: an HTTP status, a code for programs, and a sentence."""

    status, code = 400, "BadRequest"
    headers: Sequence[tuple[bytes, bytes]] = ()


class HttpProblem(Problem):
    """A problem with a status and a code that only one protocol has."""

    def __init__(
        self, status: int, code: str, message: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


class NotFound(Problem, LookupError):
    """There is no such loop, decision or document."""

    status, code = 404, "NotFound"


class TooLarge(Problem, ValueError):
    """The request, or the model that it would lead to, is larger than allowed."""

    status, code = 413, "TooLarge"


class Conflict(Problem, ValueError):
    """What is to be created exists already, or the loop was changed meanwhile."""

    status, code = 409, "Conflict"


class StoreError(Problem):
    """The store cannot be reached, or refused what it was given; nothing was acknowledged."""

    status, code, headers = 503, "StoreUnavailable", [(b"retry-after", b"5")]


class Overloaded(Problem):
    """The service, or a loop, is at its limit; try again in this many seconds."""

    status, code = 429, "TooManyRequests"

    def __init__(self, seconds: int = 1) -> None:
        super().__init__(f"the service is at its capacity; try again in {seconds} s")
        self.seconds, self.headers = seconds, [(b"retry-after", b"%d" % seconds)]
