"""The page: what a browser shows of the service, and what no protocol answers.

Whoever enters gives a key once; the browser then has a cookie that means nothing elsewhere. Cookies
are for these pages alone: the protocols do not take them, so no other site can make a browser speak
to them.
"""

import asyncio
import secrets
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl

from tsucb.service import openapi
from tsucb.service.apprentice import gain
from tsucb.service.errors import NotFound
from tsucb.service.export import comparison, recent
from tsucb.service.http import Answer, Problem, Request, allowed, json_answer
from tsucb.service.keys import ADMINISTER, Holder
from tsucb.service.loop import Loop
from tsucb.service.metrics import Metrics
from tsucb.service.native import Native
from tsucb.service.page import views
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings

COOKIE = "tsucb"
SESSION = 12 * 3_600.0  # seconds that an entry is good for
MOST_SESSIONS = 1_000
RECENT = 4_000  # events that a page looks at

HTML = b"text/html; charset=utf-8"
SAFE = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
]
STATIC = {
    "style.css": b"text/css; charset=utf-8",
    "page.js": b"text/javascript; charset=utf-8",
}


class Page:
    """Answers what no protocol answers."""

    def __init__(self, service: Service, metrics: Metrics, native: Native) -> None:
        self.service, self.metrics = service, metrics
        self.sessions: dict[str, tuple[Holder, float]] = {}
        self.once: dict[str, float] = {}  # links that let in whoever has them, until when
        self._document = openapi.document(native)

    def link(self) -> str:
        """The path of a link that lets in once, within an hour, as the server."""
        token = secrets.token_urlsafe(24)
        self.once[token] = self.service.clock() + 3_600
        return f"/login?once={token}"

    def holder_of(self, request: Request) -> Holder | None:
        """Who entered, by the cookie."""
        cookies = dict(
            part.strip().partition("=")[::2] for part in request.header(b"cookie").split(";")
        )
        found = self.sessions.get(cookies.get(COOKIE, ""))
        return None if found is None or found[1] <= self.service.clock() else found[0]

    def problem(self, problem: Problem) -> Answer:
        """An error as a page."""
        if problem.status == 401:
            return Answer(401, views.login().encode(), HTML, SAFE)
        body = views.problem(problem.status, problem.message).encode()
        return Answer(problem.status, body, HTML, [*SAFE, *problem.headers])

    async def answer(self, request: Request, holder: Holder | None) -> Answer:
        """Find the page."""
        word = request.path[0]
        if word in STATIC:
            body = files(__package__).joinpath(word).read_bytes()
            return Answer(200, body, STATIC[word])
        if word in ("healthz", "readyz"):
            return self.health(word)
        if word == "metrics":
            allowed(holder, ADMINISTER, None)
            return Answer(200, self.metrics.text().encode(), b"text/plain; version=0.0.4")
        if word == "openapi.json":
            return json_answer(self._document)
        if word in ("login", "logout"):
            return self.enter(request) if word == "login" else self.leave(request)
        holder = holder or self.holder_of(request)
        if holder is None or holder.role != ADMINISTER:
            raise Problem(401, "Unauthorized", "enter first")
        if request.method == "POST" and request.header(b"sec-fetch-site") not in (
            "same-origin",
            "",
        ):
            raise Problem(403, "Forbidden", "another site sent this form")
        who = holder.loop or "server"
        if request.path == [""]:
            loops = [x for x in self.service.loops.values() if holder.may(ADMINISTER, x.name)]
            return shown(views.all_loops(loops, who, holder.loop is None))
        if word == "api":
            return shown(views.api(self._document, who))
        if word == "loops" and len(request.path) == 1 and request.method == "POST":
            return await self.create(request, allowed(holder, ADMINISTER, None))
        if word == "loops" and len(request.path) in (2, 3):
            allowed(holder, ADMINISTER, request.path[1])
            return await self.loop(request, self.service.loop(request.path[1]), holder)
        raise NotFound("there is no such page")

    def health(self, word: str) -> Answer:
        """Whether the process lives; whether it can take requests."""
        service = self.service
        begun = hasattr(service, "journal")
        state: dict[str, Any] = {
            "ready": service.ready,
            "store": "working" if begun and not service.failing else "failing",
            "position": service.position,
            "leads": service.leading,
            "unwritten": len(service.unwritten),
        }
        if service.lost is not None:
            state["deciding"] = "from what was known when the store was lost"
            state["lost_seconds"] = service.clock() - service.lost
        # Without the database of all servers this one still decides: nobody else would do better.
        decides = state["store"] == "working" or service.store.shared
        good = word == "healthz" or (service.ready and decides)
        return json_answer(state, 200 if good else 503)

    # Coming and going

    def enter(self, request: Request) -> Answer:
        """Take a key, or a link that works once."""
        now = self.service.clock()
        if request.method == "POST":
            key = dict(parse_qsl(request.body.decode("latin-1"))).get("key", "")
            holder = self.service.keys.holder(key.strip(), now)
        else:
            until = self.once.pop(request.query.get("once", ""), 0.0)
            holder = Holder(None, ADMINISTER, "link") if until > now else None
            if holder is None and "once" not in request.query:
                return shown(views.login())
        if holder is None or holder.role != ADMINISTER:
            return Answer(401, views.login(wrong=True).encode(), HTML, SAFE)
        self.sessions = {t: s for t, s in self.sessions.items() if s[1] > now}
        if len(self.sessions) >= MOST_SESSIONS:
            self.sessions.clear()
        token = secrets.token_urlsafe(32)
        self.sessions[token] = holder, now + SESSION
        secure = "; Secure" if request.secure else ""
        cookie = (
            f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION:.0f}{secure}"
        )
        # A page of its own and no redirection: a strict cookie does not follow those from outside.
        body = '<meta http-equiv="refresh" content="0; url=/">'
        return Answer(200, body.encode(), HTML, [*SAFE, (b"set-cookie", cookie.encode())])

    def leave(self, request: Request) -> Answer:
        """Forget who entered."""
        holder = self.holder_of(request)
        self.sessions = {t: s for t, s in self.sessions.items() if s[0] is not holder}
        return shown(views.login())

    # Loops

    async def create(self, request: Request, holder: Holder) -> Answer:
        """Make a loop."""
        form = dict(parse_qsl(request.body.decode()))
        arms = [arm.strip() for arm in form.get("arms", "").split(",") if arm.strip()]
        keys = await self.service.create(form.get("name", ""), LoopSettings(), arms, holder.name)
        return shown(views.made(form["name"], keys, holder.loop or "server"))

    async def loop(self, request: Request, loop: Loop, holder: Holder) -> Answer:
        """Show a loop, after doing what a form asks for."""
        notice, found = "", None
        word = request.path[2] if len(request.path) == 3 else ""
        form = dict(parse_qsl(request.body.decode()))
        if request.method == "POST" and word == "settings":
            numbers = {k: float(v) for k, v in form.items() if k in ("exploration", "reward_wait")}
            await self.service.configure(loop, {**form, **numbers}, holder.name)
            notice = '<p class="notice">Changed.</p>'
        elif request.method == "POST" and word == "evaluate":
            settings = {"policy": form["policy"], "forgetting": float(form["forgetting"])}
            name = form["policy"]
            try:
                found = await asyncio.to_thread(
                    comparison, self.service, loop, {name: settings}, 20_000
                )
            except (ValueError, TypeError) as error:
                notice = f'<p class="notice wrong">{escape(str(error))}</p>'
        elif word or request.method != "GET":
            raise NotFound("there is no such page")
        events, calibration = await asyncio.to_thread(self._look, loop)
        chance = gain(events) if loop.settings.mode == "apprentice" else None
        who = holder.loop or "server"
        return shown(views.loop_page(loop, events, calibration, chance, who, notice, found))

    def _look(self, loop: Loop) -> tuple[list[Any], Any]:
        """The last events of a loop, and how its beliefs fared."""
        from tsucb.logs.live import Live

        events = list(self.service.newest(loop, RECENT))
        try:
            return events, Live.of(recent(self.service, loop, RECENT)).calibration()
        except ValueError:  # no decisions yet
            return events, None


def shown(page: str) -> Answer:
    """A page."""
    return Answer(200, page.encode(), HTML, SAFE)
