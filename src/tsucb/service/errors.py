"""What can be wrong with a call, whatever the protocol."""

from collections.abc import Sequence


class Problem(Exception):
    """What a request is answered with instead: a status, a word for programs, and a sentence."""

    status, code = 400, "BadRequest"
    headers: Sequence[tuple[bytes, bytes]] = ()


class HttpProblem(Problem):
    """One that only a protocol knows of."""

    def __init__(
        self, status: int, code: str, message: str, headers: Sequence[tuple[bytes, bytes]] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.headers = status, code, headers


class NotFound(Problem, LookupError):
    """There is no such loop, or decision."""

    status, code = 404, "NotFound"


class TooLarge(Problem, ValueError):
    """The model of the loop would need more memory than it may have."""

    status, code = 413, "TooLarge"


class Conflict(Problem, ValueError):
    """It is there already."""

    status, code = 409, "Conflict"


class StoreError(Problem):
    """The store could not do what was asked; nothing was acknowledged."""

    status, code, headers = 503, "StoreUnavailable", [(b"retry-after", b"5")]


class Overloaded(Problem):
    """More requests wait than may wait; `seconds` is when to try again."""

    status, code = 429, "TooManyRequests"

    def __init__(self, seconds: int = 1) -> None:
        super().__init__(f"the service is at its capacity; try again in {seconds} s")
        self.seconds, self.headers = seconds, [(b"retry-after", b"%d" % seconds)]
