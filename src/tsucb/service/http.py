"""Requests, answers, and the table of operations that every protocol has."""

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

# NumPy's numbers become Python's; NaN and infinite numbers become null.
encode = msgspec.json.Encoder(enc_hook=lambda value: value.item()).encode


class Answer(NamedTuple):
    """An answer with its body, or with a file that is sent in pieces and then closed."""

    status: int
    body: bytes = b""
    kind: bytes = JSON
    headers: Headers = ()
    file: IO[bytes] | None = None


def json_answer(value: Any, status: int = 200, headers: Headers = ()) -> Answer:
    """Return an answer with a value as JSON."""
    return Answer(status, encode(value), JSON, headers)


class Call(msgspec.Struct, eq=False):
    """A request, and what its protocol finds out about it.

    Parameters
    ----------
    path : the parts of the path between slashes, decoded one by one
    secure : whether it came over https
    holder : the key that came with it, as a `KeyRecord`; None without a valid one
    path_values : the parts of the path that stand for the braces of the operation's path
    loop : the loop that the operation is about, None for the server
    protocol, version : the protocol, and the generation of Personalizer's clients
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
        """The last of `path_values`."""
        return self.path_values[-1]

    @property
    def query(self) -> dict[str, str]:
        """The parameters after the question mark, by name."""
        return dict(parse_qsl(self.query_string.decode("latin-1"), keep_blank_values=True))

    @property
    def json(self) -> Any:
        """The body, decoded from JSON."""
        return msgspec.json.decode(self.body)

    @property
    def form(self) -> dict[str, str]:
        """The fields of a form by name, empty ones included."""
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def by(self) -> dict[str, Any]:
        """The arguments of an administrative call: the key's name, and the Idempotency-Key."""
        return {"who": self.holder.name, "key": self.header(b"idempotency-key") or None}

    def header(self, name: bytes) -> str:
        """Return the value of a header, empty if there is none."""
        return self.headers.get(name, b"").decode("latin-1")

    def check_allowed(self, action: str, loop: str | None) -> None:
        """Raise a HttpProblem unless the key grants an action on a loop; None is the server.

        A missing key and a wrong one get the same answer, and so do a loop that does not exist and
        a loop that the key is not for.
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
    """Return the problem that an exception is answered with; `code` is that of bad input.

    The message of an unexpected exception is not shown.
    """
    is_json = isinstance(error, msgspec.ValidationError)
    match error:
        case Problem():
            return error
        case RecursionError():
            sentence = "the body is nested too deeply"
        case msgspec.DecodeError() | UnicodeDecodeError() if not is_json:
            sentence = f"the body is not JSON: {error}"
        case ValueError() | TypeError():
            sentence = str(error)
        case _:
            message = "something went wrong here; the log of the service has it"
            return HttpProblem(500, "InternalError", message)
    return HttpProblem(400, code, sentence)


class Operation(NamedTuple):
    """What a method and a path do.

    Parameters
    ----------
    path : its parts; each one in braces matches any text
    action : what the key must grant
    function : takes the call and the keywords that `body` and `fields` describe; returns a value
        for the body of the answer, None for no body, or a whole `Answer`
    body : type of its argument `body`, which is the JSON of the request; None without one
    decode : decodes the body
    fields, where : type of its other keywords, and where they are: in `query`, `form` or `json`
    status : of success
    code : of the error for bad input
    answer : type of the answer, for the description; bytes for a Parquet file
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
        """Return the result of the function for a call."""
        keywords = {}
        if self.fields is not None:
            given = getattr(call, self.where)  # queries and forms hold text, JSON has types
            keywords = asdict(msgspec.convert(given, self.fields, strict=self.where == "json"))
        if self.body is not None:
            keywords["body"] = self.decode(call.body)
        return await self.function(call, **keywords)

    async def perform(self, call: Call) -> Answer:
        """Return the answer to a call; raise a Problem if there is none."""
        try:
            found = await self.result(call)
        except Exception as error:
            raise as_problem(error, self.code) from error
        if isinstance(found, Answer):
            return found
        return Answer(204) if found is None else Answer(self.status, encode(found))


class Operations:
    """The operations of a protocol.

    Parameters
    ----------
    where
        Where functions find their keywords, but for those of the query: `form` or `json`.
    settings
        Arguments of `msgspec.defstruct` for the type of these keywords.
    """

    def __init__(self, where: str, **settings: Any) -> None:
        self.all: list[Operation] = []
        self._where, self._settings = where, settings
        # A tree of the parts of paths; ... matches any part, None leads to the methods.
        self._tree: dict[Any, Any] = {}

    def add(
        self, method: str, path: str, action: str, *, name: str = "Fields", **more: Any
    ) -> Callable[[Function], Function]:
        """Return a decorator that makes a function an operation; `more` are its other fields.

        A request is checked with the types of the function's keyword-only arguments, which together
        have the name `name` in the description. They are in the query for GET, and where the
        function also has an argument `body`.
        """

        def added(function: Function) -> Function:
            types = get_type_hints(function, include_extras=True)
            body, where, settings = types.get("body"), self._where, self._settings
            if body is not None or method == "GET":
                where, settings = "query", {}
            keywords = [
                (p.name, types[p.name], *([] if p.default is p.empty else [p.default]))
                for p in signature(function).parameters.values()
                if p.kind is p.KEYWORD_ONLY
            ]
            fields, about = None, {"__doc__": function.__doc__}
            if keywords:
                fields = msgspec.defstruct(
                    name, keywords, namespace=about, kw_only=True, **settings
                )
            decode = msgspec.json.Decoder(body or Any).decode
            parts, node = path.split("/"), self._tree
            made = Operation(method, parts, action, function, body, decode, fields, where, **more)
            for part in parts:
                node = node.setdefault(... if part.startswith("{") else part, {})
            node.setdefault(None, {})[method] = made
            self.all.append(made)
            return function

        return added

    def find(self, call: Call, path: Sequence[str]) -> Operation:
        """Return the operation for a call and the rest of its path; set the call's `path_values`.

        Raise HttpProblem if there is no such path, or if it is for other methods.
        """
        node, values = self._tree, list[str]()
        for part in path:
            if part not in node:
                values.append(part)
            node = node.get(part) or node.get(..., {})
        methods: dict[str, Operation] = node.get(None, {})
        if not methods:
            raise HttpProblem(404, "NotFound", "there is nothing here; see /openapi.json")
        if call.method not in methods:
            raise HttpProblem(405, "MethodNotAllowed", f"this is for {' and '.join(methods)}")
        call.path_values = values
        return methods[call.method]
