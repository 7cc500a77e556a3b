"""The Python client of the service, for threads and for event loops.

    with Client("http://127.0.0.1:8000", loop="drinks", key="…") as drinks:
        decision = drinks.decide({"hour": 9}, ["tea", "milk"])
        drinks.reward(decision.id, 1.0)

Requests that were refused because the service was busy, or whose answer got lost, are repeated; a
repeat carries the same key, so it counts once.
"""

import asyncio
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

Arms = Sequence[str] | Mapping[str, Mapping[str, Any] | None]

BUSY = (429, 503)
LONGEST_PAUSE = 2.0  # seconds between repeats, unless the service asks for more
LONGEST_WISH = 60.0  # that is granted to the service


class ServiceError(Exception):
    """The service refused: `status` of HTTP, `code` for programs, and a sentence."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass(frozen=True)
class ServedDecision:
    """The arm to play, and the id under which to report its reward.

    `probabilities` are those of the arms it was chosen from; `arms` is the list, if one was asked
    for: then `arm` is its first entry.
    """

    id: str
    arm: str
    probability: float
    probabilities: dict[str, float]
    arms: list[str] | None = None


class _Call(NamedTuple):
    method: str
    path: str
    body: Any = None


class _Calls:
    """What is sent, and what is made of the answers; the same for both clients."""

    _new: Any  # a client of httpx, for threads or for event loops

    def __init__(
        self, url: str, *, loop: str = "default", key: str, timeout: float = 10.0,
        retries: int = 5, verify: Any = True,
    ) -> None:  # fmt: skip
        self._base, self._retries = f"{url.rstrip('/')}/v1/loops/{quote(loop, safe='')}", retries
        headers = {"authorization": f"Bearer {key}"}
        self._http: Any = self._new(headers=headers, timeout=timeout, verify=verify)

    @staticmethod
    def _decide(
        context: Mapping[str, Any] | None, arms: Arms | None, exclude: Sequence[str],
        k: int | None, id: str | None, deferred: bool, person: str | None,
    ) -> _Call:  # fmt: skip
        body: dict[str, Any] = {"context": context, "key": secrets.token_hex(12)}
        if arms is not None:
            body["arms"] = dict(arms) if isinstance(arms, Mapping) else list(arms)
        optional = {"exclude": list(exclude), "k": k, "id": id, "deferred": deferred}
        body |= {name: value for name, value in optional.items() if value}
        if person is not None:
            body["person"] = person
        return _Call("POST", "/decide", body)

    @staticmethod
    def _reward(id: str, reward: float, place: int | None) -> _Call:
        body: dict[str, Any] = {"id": id, "reward": reward, "key": secrets.token_hex(12)}
        return _Call("POST", "/reward", body if place is None else {**body, "place": place})

    def _pause(self, tries: int, found: httpx.Response | httpx.TransportError) -> float | None:
        """Return how long to wait before trying again; None to give up."""
        answer = found if isinstance(found, httpx.Response) else None
        if tries >= self._retries or (answer is not None and answer.status_code not in BUSY):
            return None
        wanted = "" if answer is None else answer.headers.get("retry-after", "")
        if wanted.isdecimal():
            return min(float(wanted), LONGEST_WISH)
        return min(0.05 * 2.0 ** min(tries, 10), LONGEST_PAUSE)

    @staticmethod
    def _result(response: httpx.Response | httpx.TransportError) -> Any:
        """Return what the service answered; raise what went wrong."""
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


class Client(_Calls):
    """Asks one loop of a service.

    Parameters
    ----------
    url
        Of the service, such as http://127.0.0.1:8000.
    loop, key
        The loop, and one of its keys.
    timeout
        Seconds to wait for an answer.
    retries
        How often a request is repeated at most.
    verify
        As httpx has it: False, or the path of a certificate, for a service with one of its own.
    """

    _new = httpx.Client

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _send(self, call: _Call) -> Any:
        for tries in count():
            try:
                found = self._http.request(call.method, self._base + call.path, json=call.body)
            except httpx.TransportError as error:
                found = error
            if (pause := self._pause(tries, found)) is None:
                break
            time.sleep(pause)
        return self._result(found)

    def decide(
        self, context: Mapping[str, Any] | None = None, arms: Arms | None = None, *,
        exclude: Sequence[str] = (), k: int | None = None, id: str | None = None,
        deferred: bool = False, person: str | None = None,
    ) -> ServedDecision:  # fmt: skip
        """Choose an arm, or a list of k.

        Parameters
        ----------
        context
            What is known now; names to numbers, texts, booleans.
        arms
            Those to choose from, as names or as names with features; all that are known if absent.
        exclude
            Arms that must not be chosen.
        id
            An id of your own for the decision.
        deferred
            Whether it only counts once it is activated.
        person
            Whose decision it is; `forget` deletes all of a person.
        """
        call = self._decide(context, arms, exclude, k, id, deferred, person)
        return ServedDecision(**self._send(call))

    def reward(self, id: str, reward: float, *, place: int | None = None) -> str:
        """Report a reward; `place` is that in the list, if one was decided.

        "taken", "repeated", or "not waiting" if the wait was over: then it is kept, not learned.
        """
        return str(self._send(self._reward(id, reward, place))["result"])

    def activate(self, id: str) -> str:
        """Put a deferred decision to use."""
        return str(self._send(_Call("POST", "/activate", {"id": id}))["result"])

    def explain(self, id: str) -> dict[str, Any]:
        """Why a decision was made, and what became of it."""
        return dict(self._send(_Call("GET", f"/decisions/{quote(id, safe='')}")))

    def estimates(self, context: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """What is believed about the arms' rewards in a context."""
        return list(self._send(_Call("POST", "/estimates", {"context": context}))["arms"])

    def arms(self) -> list[dict[str, Any]]:
        """The arms, with their pulls and mean rewards."""
        return list(self._send(_Call("GET", "/arms"))["arms"])

    def change_arms(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add arms, and remove some."""
        self._send(_Call("POST", "/arms", {"add": list(add), "remove": list(remove)}))

    def configuration(self) -> dict[str, Any]:
        """The settings of the loop."""
        return dict(self._send(_Call("GET", "/configuration")))

    def configure(self, *, relearn: bool = True, **changes: Any) -> dict[str, Any]:
        """Change some settings; another model learns from the log, or begins anew."""
        path = "/configuration" if relearn else "/configuration?relearn=false"
        return dict(self._send(_Call("PATCH", path, changes)))

    def forget(self, *, ids: Sequence[str] = (), person: str | None = None) -> int:
        """Delete decisions and all that was learned from them; returns how many events went."""
        body = {"ids": list(ids), "person": person}
        return int(self._send(_Call("POST", "/forget", body))["events"])

    def evaluate(self, agents: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """What other configurations would have earned."""
        return dict(self._send(_Call("POST", "/evaluate", {"agents": dict(agents)})))

    def export(self) -> bytes:
        """The log as a Parquet file that `tsucb evaluate` reads."""
        return bytes(self._send(_Call("GET", "/export")))


class AsyncClient(_Calls):
    """The same for event loops; see `Client`."""

    _new = httpx.AsyncClient

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _send(self, call: _Call) -> Any:
        for tries in count():
            try:
                address = self._base + call.path
                found = await self._http.request(call.method, address, json=call.body)
            except httpx.TransportError as error:
                found = error
            if (pause := self._pause(tries, found)) is None:
                break
            await asyncio.sleep(pause)
        return self._result(found)

    async def decide(
        self, context: Mapping[str, Any] | None = None, arms: Arms | None = None, *,
        exclude: Sequence[str] = (), k: int | None = None, id: str | None = None,
        deferred: bool = False, person: str | None = None,
    ) -> ServedDecision:  # fmt: skip
        """See `Client.decide`."""
        call = self._decide(context, arms, exclude, k, id, deferred, person)
        return ServedDecision(**await self._send(call))

    async def reward(self, id: str, reward: float, *, place: int | None = None) -> str:
        """See `Client.reward`."""
        return str((await self._send(self._reward(id, reward, place)))["result"])

    async def activate(self, id: str) -> str:
        """See `Client.activate`."""
        return str((await self._send(_Call("POST", "/activate", {"id": id})))["result"])

    async def explain(self, id: str) -> dict[str, Any]:
        """See `Client.explain`."""
        return dict(await self._send(_Call("GET", f"/decisions/{quote(id, safe='')}")))

    async def estimates(self, context: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """See `Client.estimates`."""
        return list((await self._send(_Call("POST", "/estimates", {"context": context})))["arms"])
