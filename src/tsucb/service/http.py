"""Requests, answers, and what an exception means to a client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from tsucb.service.errors import Conflict, NotFound, TooLarge
from tsucb.service.journal import Overloaded
from tsucb.service.keys import Holder
from tsucb.service.store import StoreError

if TYPE_CHECKING:
    from tsucb.service.loop import Loop
    from tsucb.service.service import Service

Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"


class HttpProblem(Exception):
    """A request that is answered with an error.

    Parameters
    ----------
    status : of HTTP
    code : a word for programs
    message : a sentence for people
    headers : of the answer, beside the usual
    """

    def __init__(
        self, status: int, code: str, message: str, headers: Headers | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.headers = headers or []


class Answer(NamedTuple):
    """An answer: its body, or a file that is sent in pieces and then closed."""

    status: int
    body: bytes = b""
    kind: bytes = JSON
    headers: Sequence[tuple[bytes, bytes]] = ()
    file: IO[bytes] | None = None


def json_answer(value: Any, status: int = 200, headers: Headers | None = None) -> Answer:
    """Return an answer with a value as JSON."""
    return Answer(status, encode(value), JSON, headers or [])


class Request(NamedTuple):
    """A request, with its path split."""

    method: str
    path: list[str]  # decoded, one by one
    raw_path: bytes
    query_string: bytes
    headers: Mapping[bytes, bytes]
    body: bytes
    secure: bool
    address: str

    @property
    def query(self) -> dict[str, str]:
        """The parameters after the question mark, by name."""
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))

    @property
    def key(self) -> str | None:
        """The Idempotency-Key, by which a repeat of an administrative request is recognised."""
        return self.header(b"idempotency-key") or None

    def header(self, name: bytes) -> str:
        """Return the value of a header, empty if there is none."""
        return self.headers.get(name, b"").decode("latin-1")


encode = msgspec.json.Encoder().encode


def overloaded(seconds: int) -> HttpProblem:
    """Return the HttpProblem of a service past its capacity."""
    return HttpProblem(
        429,
        "TooManyRequests",
        f"the service is at its capacity; try again in {seconds} s",
        [(b"retry-after", b"%d" % seconds)],
    )


def as_problem(error: Exception) -> HttpProblem:
    """Return what an exception means to a client; one that nobody expected is not shown."""
    if isinstance(error, HttpProblem):
        return error
    if isinstance(error, Overloaded):
        return overloaded(error.seconds)
    if isinstance(error, NotFound):
        return HttpProblem(404, "NotFound", str(error))
    if isinstance(error, Conflict):
        return HttpProblem(409, "Conflict", str(error))
    if isinstance(error, TooLarge):
        return HttpProblem(413, "TooLarge", str(error))
    if isinstance(error, msgspec.ValidationError):
        return HttpProblem(400, "BadRequest", str(error))
    if isinstance(error, msgspec.DecodeError | UnicodeDecodeError):
        return HttpProblem(400, "BadRequest", f"the body is not JSON: {error}")
    if isinstance(error, RecursionError):
        return HttpProblem(400, "BadRequest", "the body is nested too deeply")
    if isinstance(error, ValueError | TypeError):
        return HttpProblem(400, "BadRequest", str(error))
    if isinstance(error, StoreError):
        return HttpProblem(503, "StoreUnavailable", str(error), [(b"retry-after", b"5")])
    return HttpProblem(
        500, "InternalError", "something went wrong here; the log of the service has it"
    )


def allowed(holder: Holder | None, role: str, loop: str | None) -> Holder:
    """Return the holder if it has this role; raise a HttpProblem otherwise.

    No key and a wrong one get the same answer, and so does a loop that does not exist.
    """
    if holder is None:
        raise HttpProblem(
            401,
            "Unauthorized",
            "give a key of this loop: Authorization: Bearer KEY, or Ocp-Apim-Subscription-Key: KEY",
            [(b"www-authenticate", b"Bearer")],
        )
    if not holder.may(role, loop):
        raise HttpProblem(403, "Forbidden", f"this key may not {role} here")
    return holder


class Call(NamedTuple):
    """A request for an operation: the loop, who asks, and the body as the operation takes it.

    `id` is the one in the path; `version` is the generation of Personalizer's clients, whose
    `evaluations` are kept.
    """

    service: "Service"
    loop: "Loop"
    request: Request
    holder: Holder
    body: Any = None
    id: str = ""
    version: str = ""
    evaluations: Any = None


class Operation(NamedTuple):
    """What a path does.

    Parameters
    ----------
    action : what the key must grant
    function : returns a value for the body, None for none, or a whole Answer
    body, answer : the types of both bodies, None where there is none
    status : of success
    code : of the error that bad input gets
    """

    method: str
    path: tuple[str, ...]
    action: str
    function: Callable[[Call], Awaitable[Any]]
    body: Any = None
    answer: Any = None
    status: int = 200
    code: str = "BadRequest"
    decode: Callable[[bytes], Any] = lambda _: None

    async def perform(self, call: Call) -> Answer:
        """Decode the body and answer the call."""
        found = await self.function(call._replace(body=self.decode(call.request.body)))
        if isinstance(found, Answer):
            return found
        return Answer(204) if found is None else Answer(self.status, encode(found))


class Operations:
    """The operations of a protocol, by method and path."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, tuple[str, ...]], Operation] = {}

    def add(self, method: str, path: str, action: str, **more: Any) -> Callable[[Any], Any]:
        """Return a decorator that makes a function an operation; see `Operation`."""

        def added(function: Any) -> Any:
            made = Operation(method, tuple(path.split("/")), action, function, **more)
            if made.body is not None:
                made = made._replace(decode=msgspec.json.Decoder(made.body).decode)
            self.all[method, made.path] = made
            return function

        return added

    def find(self, method: str, path: tuple[str, ...]) -> Operation:
        """Return the operation; raise the problem of a wrong path, or of a wrong method."""
        found = self.all.get((method, path))
        if found is not None:
            return found
        methods = [m for m, each in self.all if each == path]
        if not methods:
            raise HttpProblem(404, "NotFound", "there is nothing here; see /openapi.json")
        raise HttpProblem(405, "MethodNotAllowed", f"this is for {' and '.join(methods)}")
