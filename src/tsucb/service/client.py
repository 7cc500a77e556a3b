"""The Python client of the service, for threads and for event loops.

    with Client("http://127.0.0.1:8000", loop="drinks", key="…") as drinks:
        decision = drinks.decide({"hour": 9}, ["tea", "milk"])
        drinks.reward(decision.id, 1.0)

A request is repeated if the service was busy, or if the connection broke before the answer came. A
repeat has the same key as the first request, so the service counts both once.
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

import httpx

Given = ParamSpec("Given")
Found = TypeVar("Found")
Arms = Sequence[str] | Mapping[str, Mapping[str, Any] | None]

BUSY = (429, 503)
LONGEST_PAUSE = 2.0  # seconds between repeats, where the service does not say
LONGEST_WISH = 60.0  # seconds of a Retry-After beyond which it is not followed


class ServiceError(Exception):
    """The service refused a request: `status` of HTTP, `code` for programs, and a sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class ServedDecision:
    """The arm to play, and the id under which to report its reward.

    `probabilities` has every arm that it was chosen from. `arms` is the list, if one was asked for;
    `arm` is its first.
    """

    id: str
    arm: str
    probability: float
    probabilities: dict[str, float]
    arms: list[str] | None = None


class _Connected:
    """What both clients share: their connections, and when to repeat a request."""

    _new: Any

    def __init__(
        self, url: str, *, loop: str = "default", key: str, timeout: float = 10.0,
        retries: int = 5, verify: Any = True,
    ) -> None:  # fmt: skip
        self._base, self._retries = f"{url.rstrip('/')}/v1/loops/{quote(loop, safe='')}", retries
        headers = {"authorization": f"Bearer {key}"}
        self._http: Any = self._new(headers=headers, timeout=timeout, verify=verify)

    def _pause(self, tries: int, found: httpx.Response | httpx.TransportError) -> float | None:
        """Return the seconds to wait before the next try; None if there is to be none."""
        answer = found if isinstance(found, httpx.Response) else None
        if tries >= self._retries or (answer is not None and answer.status_code not in BUSY):
            return None
        wanted = "" if answer is None else answer.headers.get("retry-after", "")
        if wanted.isdecimal():
            return min(float(wanted), LONGEST_WISH)
        return min(0.05 * 2.0 ** min(tries, 10), LONGEST_PAUSE)


class Client(_Connected):
    """Call one loop of a service.

    Parameters
    ----------
    url
        The address of the service, such as http://127.0.0.1:8000.
    loop, key
        The name of the loop, and one of its keys.
    timeout
        Seconds to wait for an answer.
    retries
        How often to repeat a request at most.
    verify
        As in httpx: the path of a certificate that the service made itself, or False for no check.
    """

    _new = httpx.Client

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, method: str, path: str, body: Any, read: Callable[[Any], Found]) -> Found:
        """Send a request, and repeat it while that may help; return `read` of the answer."""
        for tries in count():
            try:
                found = self._http.request(method, self._base + path, json=body)
            except httpx.TransportError as error:
                found = error
            if (pause := self._pause(tries, found)) is None:
                break
            time.sleep(pause)
        return read(result(found))

    def decide(
        self, context: Mapping[str, Any] | None = None, arms: Arms | None = None, *,
        exclude: Sequence[str] = (), k: int | None = None, id: str | None = None,
        deferred: bool = False, person: str | None = None,
    ) -> ServedDecision:  # fmt: skip
        """Choose an arm, or a list of `k` arms.

        Parameters
        ----------
        context
            Features of the decision: names to numbers, texts, booleans.
        arms
            The arms to choose from, as names or as names with features; by default, all arms of the
            loop.
        exclude
            Arms that must not be chosen.
        id
            An id of your own for the decision.
        deferred
            Whether the decision only counts once it is activated.
        person
            The person whom the decision is for; `forget` deletes all decisions of a person.
        """
        body = {
            "context": context, "exclude": list(exclude), "k": k, "id": id, "deferred": deferred,
            "person": person, "key": secrets.token_hex(12),
        }  # fmt: skip
        if arms is not None:
            body["arms"] = dict(arms) if isinstance(arms, Mapping) else list(arms)
        return self._send("POST", "/decide", body, lambda found: ServedDecision(**found))

    def reward(self, id: str, reward: float, *, place: int | None = None) -> str:
        """Report a reward; `place`, from 0, says of which arm of a list.

        Return "taken", "repeated", or "not waiting" if the wait was over: a late reward is kept in
        the log, and not learned.
        """
        body = {"id": id, "reward": reward, "place": place, "key": secrets.token_hex(12)}
        return self._send("POST", "/reward", body, lambda found: str(found["result"]))

    def activate(self, id: str) -> str:
        """Put a deferred decision to use; return "taken", "repeated" or "not waiting"."""
        return self._send("POST", "/activate", {"id": id}, lambda found: str(found["result"]))

    def explain(self, id: str) -> dict[str, Any]:
        """Return why a decision was made, and which rewards came."""
        return self._send("GET", f"/decisions/{quote(id, safe='')}", None, dict[str, Any])

    def estimates(self, context: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Return the estimate of every arm's reward in a context; decide nothing."""
        return self._send("POST", "/estimates", {"context": context}, lambda f: list(f["arms"]))

    def arms(self) -> list[dict[str, Any]]:
        """Return the arms, with their pulls and mean rewards."""
        return self._send("GET", "/arms", None, lambda found: list(found["arms"]))

    def change_arms(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add and remove arms."""
        body = {"add": list(add), "remove": list(remove)}
        return self._send("POST", "/arms", body, lambda _: None)

    def configuration(self) -> dict[str, Any]:
        """Return the settings of the loop."""
        return self._send("GET", "/configuration", None, dict[str, Any])

    def configure(self, /, *, relearn: bool = True, **changes: Any) -> dict[str, Any]:
        """Change settings; a new model learns from the log, or with relearn=False begins empty."""
        path = "/configuration" if relearn else "/configuration?relearn=false"
        return self._send("PATCH", path, changes, dict[str, Any])

    def forget(self, *, ids: Sequence[str] = (), person: str | None = None) -> int:
        """Delete decisions, and what was learned from them; return how many events were deleted."""
        body = {"ids": list(ids), "person": person}
        return self._send("POST", "/forget", body, lambda found: int(found["events"]))

    def evaluate(self, agents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Estimate what other configurations would have earned; see `POST evaluate`."""
        return self._send("POST", "/evaluate", {"agents": dict(agents)}, dict[str, Any])

    def export(self) -> bytes:
        """Return the log as a Parquet file that `tsucb evaluate` reads."""
        return self._send("GET", "/export", None, bytes)


def as_coroutine(
    method: Callable[Concatenate[Any, Given], Found],
) -> Callable[Concatenate[Any, Given], Awaitable[Found]]:
    """Return a method of `Client` with the type that it has if `_send` returns a coroutine."""
    return method  # type: ignore[return-value]


class AsyncClient(_Connected):
    """A `Client` for asyncio: all of its methods are to be awaited."""

    _new = httpx.AsyncClient

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, method: str, path: str, body: Any, read: Callable[[Any], Found]) -> Found:
        for tries in count():
            try:
                found = await self._http.request(method, self._base + path, json=body)
            except httpx.TransportError as error:
                found = error
            if (pause := self._pause(tries, found)) is None:
                break
            await asyncio.sleep(pause)
        return read(result(found))

    decide, reward = as_coroutine(Client.decide), as_coroutine(Client.reward)
    activate, explain = as_coroutine(Client.activate), as_coroutine(Client.explain)
    estimates, arms = as_coroutine(Client.estimates), as_coroutine(Client.arms)
    change_arms, forget = as_coroutine(Client.change_arms), as_coroutine(Client.forget)
    configuration, configure = as_coroutine(Client.configuration), as_coroutine(Client.configure)
    evaluate, export = as_coroutine(Client.evaluate), as_coroutine(Client.export)


def result(response: httpx.Response | httpx.TransportError) -> Any:
    """Return the body of a successful answer; raise the error otherwise."""
    if isinstance(response, httpx.TransportError):
        raise response
    if response.status_code == 204:
        return None
    if response.is_success:
        is_json = response.headers.get("content-type", "").startswith("application/json")
        return response.json() if is_json else response.content
    try:
        error = response.json()["error"]
        raise ServiceError(response.status_code, error["code"], error["message"])
    except (ValueError, KeyError, TypeError):
        text = f"the service answered {response.status_code}: {response.text[:200]}"
        raise ServiceError(response.status_code, "Unknown", text) from None
