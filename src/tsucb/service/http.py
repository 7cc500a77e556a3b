"""Calls, answers, the operations of a protocol, and what an exception means to a client."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import signature
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from msgspec.structs import asdict

from tsucb.service.errors import HttpProblem, Problem

if TYPE_CHECKING:
    from tsucb.service.service import Service

Headers = Sequence[tuple[bytes, bytes]]
Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])
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


class Call(msgspec.Struct, eq=False):
    """A request, and what the protocols find out about it.

    Parameters
    ----------
    path : its words, decoded one by one
    holder : who asks, by the key that came with it
    path_values : the words of the path that the operation leaves open
    loop : which the operation is about, None for the server
    protocol, version : whose operation it is, in which generation of Personalizer's clients
    """

    service: "Service"
    method: str
    path: list[str]
    raw_path: bytes
    query_string: bytes
    headers: Mapping[bytes, bytes]
    body: bytes
    secure: bool
    holder: Any = None
    path_values: Sequence[str] = ()
    loop: Any = None
    protocol: Any = None
    version: str = ""

    @property
    def id(self) -> str:
        """The last word of the path that the operation leaves open."""
        return self.path_values[-1]

    @property
    def query(self) -> dict[str, str]:
        """The parameters after the question mark, by name."""
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))

    @property
    def json(self) -> Any:
        """The body, if it is JSON."""
        return msgspec.json.decode(self.body)

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form, those that are empty included."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def by(self) -> dict[str, Any]:
        """Who changes something, and the Idempotency-Key: a repeat of the request has the same."""
        return {"who": self.holder.name, "key": self.header(b"idempotency-key") or None}

    def header(self, name: bytes) -> str:
        """Return the value of a header, empty if there is none."""
        return self.headers.get(name, b"").decode("latin-1")

    def check_allowed(self, action: str, loop: str | None) -> None:
        """Raise a HttpProblem unless the key may do this to a loop, or with None to the server.

        No key and a wrong one get the same answer, and so does a loop that does not exist.
        """
        if self.holder is None:
            raise HttpProblem(
                401,
                "Unauthorized",
                "give a key of this loop: Authorization: Bearer KEY, or "
                "Ocp-Apim-Subscription-Key: KEY",
                [(b"www-authenticate", b"Bearer")],
            )
        if not self.holder.may(action, loop):
            raise HttpProblem(403, "Forbidden", f"this key may not {action} here")


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


class Operation(NamedTuple):
    """What a path does.

    Parameters
    ----------
    path : its words; those in braces are left open
    action : what the key must grant
    function : takes the call, and with keywords what the request must have; returns a value for the
        body of the answer, None for none, or a whole `Answer`
    body : type of what it takes as `body`, which is JSON
    fields, where : type of what else it takes, and where that is: in `query`, `form` or `json`
    status : of success
    code : of the error that bad input gets
    answer : type of the answer, for the description
    """

    method: str
    path: list[str]
    action: str
    function: Callable[..., Awaitable[Any]]
    body: Any
    decode: Callable[[bytes], Any]
    fields: Any
    where: str
    status: int = 200
    code: str = "BadRequest"
    answer: Any = None

    async def result(self, call: Call) -> Any:
        """Return what the function makes of a call."""
        given = {}
        if self.fields is not None:
            found = getattr(call, self.where)  # of which all but JSON is text
            given = asdict(msgspec.convert(found, self.fields, strict=self.where == "json"))
        if self.body is not None:
            given["body"] = self.decode(call.body)
        return await self.function(call, **given)

    async def perform(self, call: Call) -> Answer:
        """Answer a call; raise a Problem if it cannot be done."""
        try:
            found = await self.result(call)
        except Exception as error:
            raise as_problem(error, self.code) from error
        if isinstance(found, Answer):
            return found
        return Answer(204) if found is None else Answer(self.status, encode(found))


class Operations:
    """The operations of a protocol, in a tree of the words of their paths.

    Parameters
    ----------
    where
        Where functions find what they take by keywords, but for the query: `form` or `json`.
    settings
        How that is checked, as settings of `msgspec.Struct`.
    """

    def __init__(self, where: str, **settings: Any) -> None:
        self.all: list[Operation] = []
        self._where, self._settings = where, settings
        self._tree: dict[Any, Any] = {}  # of open words by ..., of methods by None

    def add(
        self, method: str, path: str, action: str, *, name: str = "Fields", **more: Any
    ) -> Callable[[Function], Function]:
        """Return a decorator that makes a function an operation; see `Operation`.

        The annotations of the function are the types that a request is checked with. `name` is that
        of its keywords together. They are in the query if there is `body` too, or with GET.
        """

        def added(function: Function) -> Function:
            types = get_type_hints(function, include_extras=True)
            body = types.get("body")
            decode = msgspec.json.Decoder(body or Any).decode
            where, settings = self._where, {"kw_only": True, **self._settings}
            if body is not None or method == "GET":
                where, settings = "query", {"kw_only": True}
            fields = [
                (p.name, types[p.name], *([] if p.default is p.empty else [p.default]))
                for p in signature(function).parameters.values()
                if p.kind is p.KEYWORD_ONLY
            ]
            about = {"__doc__": function.__doc__}
            kind = msgspec.defstruct(name, fields, namespace=about, **settings) if fields else None
            words, node = path.split("/"), self._tree
            made = Operation(method, words, action, function, body, decode, kind, where, **more)
            for word in words:
                node = node.setdefault(... if word.startswith("{") else word, {})
            node.setdefault(None, {})[method] = made
            self.all.append(made)
            return function

        return added

    def find(self, call: Call, words: Sequence[str]) -> Operation:
        """Return the operation, and tell the call the words of the path that it leaves open.

        Raise the problem of a wrong path, or of a wrong method.
        """
        node, places = self._tree, list[str]()
        for word in words:
            if word not in node:
                places.append(word)
            node = node.get(word) or node.get(..., {})
        methods: dict[str, Operation] = node.get(None, {})
        if not methods:
            raise HttpProblem(404, "NotFound", "there is nothing here; see /openapi.json")
        if call.method not in methods:
            raise HttpProblem(405, "MethodNotAllowed", f"this is for {' and '.join(methods)}")
        call.path_values = places
        return methods[call.method]
