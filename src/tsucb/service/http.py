"""Requests, answers, the operations of a protocol, and what an exception means to a client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from tsucb.service.errors import HttpProblem, Problem
from tsucb.service.keys import Holder

if TYPE_CHECKING:
    from tsucb.service.loop import Loop
    from tsucb.service.service import Service

Headers = Sequence[tuple[bytes, bytes]]
JSON = b"application/json"

# Numbers of NumPy become those of Python; NaN and the infinite ones become null.
encode = msgspec.json.Encoder(enc_hook=lambda value: value.item()).encode


class Answer(NamedTuple):
    """An answer: its body, or a file that is sent in pieces and then closed."""

    status: int
    body: bytes = b""
    kind: bytes = JSON
    headers: Headers = ()
    file: IO[bytes] | None = None


def json_answer(value: Any, status: int = 200, headers: Headers = ()) -> Answer:
    """Return an answer with a value as JSON."""
    return Answer(status, encode(value), JSON, headers)


class Request(NamedTuple):
    """A request, with its path split."""

    method: str
    path: list[str]  # decoded, one by one
    raw_path: bytes
    query_string: bytes
    headers: Mapping[bytes, bytes]
    body: bytes
    secure: bool

    @property
    def query(self) -> dict[str, str]:
        """The parameters after the question mark, by name."""
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form, those that are empty included."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def key(self) -> str | None:
        """The Idempotency-Key, by which a repeat of an administrative request is recognised."""
        return self.header(b"idempotency-key") or None

    def header(self, name: bytes) -> str:
        """Return the value of a header, empty if there is none."""
        return self.headers.get(name, b"").decode("latin-1")


def as_problem(error: Exception, code: str = "BadRequest") -> Problem:
    """Return what an exception means to a client; `code` is the word for bad input.

    What nobody expected is not shown.
    """
    sentence = str(error)
    match error:
        case Problem():
            return error
        case RecursionError():
            sentence = "the body is nested too deeply"
        case msgspec.ValidationError():
            pass
        case msgspec.DecodeError() | UnicodeDecodeError():
            sentence = f"the body is not JSON: {error}"
        case ValueError() | TypeError():
            pass
        case _:
            message = "something went wrong here; the log of the service has it"
            return HttpProblem(500, "InternalError", message)
    return HttpProblem(400, code, sentence)


def check_allowed(holder: Holder | None, role: str, loop: str | None) -> Holder:
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
    """A request for an operation: the loop, who asks, and body and query as the operation has them.

    `places` are the words of the path that the operation leaves open; `version` is the generation
    of Personalizer's clients; `protocol` is whose operation it is.
    """

    service: "Service"
    loop: "Loop"
    request: Request
    holder: Holder
    places: Sequence[str] = ()
    body: Any = None
    query: Any = None
    version: str = ""
    protocol: Any = None

    @property
    def id(self) -> str:
        """The last word of the path that the operation leaves open."""
        return self.places[-1]


class Operation(NamedTuple):
    """What a path does.

    Parameters
    ----------
    path : its words; those in braces are left open
    action : what the key must grant
    function : returns a value for the body, None for none, or a whole Answer
    body, query, answer : types of the bodies and of the query, None where there is none
    status : of success
    code : of the error that bad input gets
    """

    method: str
    path: tuple[str, ...]
    action: str
    function: Callable[[Call], Awaitable[Any]]
    body: Any = None
    query: Any = None
    answer: Any = None
    status: int = 200
    code: str = "BadRequest"
    decode: Callable[[bytes], Any] = lambda _: None

    async def perform(self, call: Call) -> Answer:
        """Decode body and query, and answer the call; raise a HttpProblem if it cannot be done."""
        try:
            query = None
            if self.query is not None:
                query = msgspec.convert(call.request.query, self.query, strict=False)
            body = self.decode(call.request.body)
            found = await self.function(call._replace(body=body, query=query))
        except Exception as error:
            raise as_problem(error, self.code) from error
        if isinstance(found, Answer):
            return found
        return Answer(204) if found is None else Answer(self.status, encode(found))


class Operations:
    """The operations of a protocol, in a tree of the words of their paths."""

    def __init__(self) -> None:
        self.all: list[Operation] = []
        self._tree: dict[Any, Any] = {}  # of open words by ..., of methods by None

    def add(self, method: str, path: str, action: str, **more: Any) -> Callable[[Any], Any]:
        """Return a decorator that makes a function an operation; see `Operation`."""
        words = tuple(path.split("/"))
        if "body" in more:
            more["decode"] = msgspec.json.Decoder(more["body"]).decode

        def added(function: Any) -> Any:
            made = Operation(method, words, action, function, **more)
            node = self._tree
            for word in words:
                node = node.setdefault(... if word.startswith("{") else word, {})
            node.setdefault(None, {})[method] = made
            self.all.append(made)
            return function

        return added

    def find(self, method: str, words: Sequence[str]) -> tuple[Operation, list[str]]:
        """Return the operation, and the words of the path that it leaves open.

        Raise the problem of a wrong path, or of a wrong method.
        """
        node, places = self._tree, []
        for word in words:
            if word not in node:
                places.append(word)
            node = node.get(word) or node.get(..., {})
        methods: dict[str, Operation] = node.get(None, {})
        if not methods:
            raise HttpProblem(404, "NotFound", "there is nothing here; see /openapi.json")
        if method not in methods:
            raise HttpProblem(405, "MethodNotAllowed", f"this is for {' and '.join(methods)}")
        return methods[method], places
