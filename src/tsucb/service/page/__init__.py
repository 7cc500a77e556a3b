"""The page: what a browser shows of the service, and what no protocol answers.

Whoever enters gives a key once; the browser then has a cookie that means nothing elsewhere, and
works for as long as the key does. Cookies are for these pages alone: the protocols do not take
them, so no other site can make a browser speak to them.
"""

import secrets
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from tsucb.pages.render import render, style
from tsucb.service import openapi
from tsucb.service.apprentice import gain
from tsucb.service.errors import NotFound
from tsucb.service.export import comparison, recent
from tsucb.service.http import Answer, HttpProblem, Request, allowed, json_answer
from tsucb.service.keys import ADMINISTER, GRANTS, READ, Holder, hashed
from tsucb.service.loop import Loop
from tsucb.service.metrics import Metrics
from tsucb.service.page import views
from tsucb.service.page.views import LoopView
from tsucb.service.service import Service
from tsucb.service.settings import LoopSettings

COOKIE = "tsucb"
SESSION = 12 * 3_600.0  # seconds that an entry is good for
LINK = 3_600.0  # seconds that a link which lets in is good for
MOST_SESSIONS = 1_000
RECENT = 4_000  # events that a page looks at
MOST_COMPARED = 20_000  # events that an evaluation from the page looks at
AT_ONCE = 60  # loops on a page

HTML = b"text/html; charset=utf-8"
SAFE = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
]


class Session(NamedTuple):
    """Someone who entered: the hash of the key, and until when."""

    key: bytes
    until: float


class Page:
    """Answers what no protocol answers."""

    def __init__(self, service: Service, metrics: Metrics, is_ready: Callable[[], bool]) -> None:
        self.service, self.metrics, self._is_ready = service, metrics, is_ready
        self.sessions: dict[str, Session] = {}
        self.links: dict[str, float] = {}  # that let in whoever has them, until when
        self._document = openapi.document()
        script = files(__package__).joinpath("page.js").read_bytes()
        self._static = {
            "style.css": (style().encode(), b"text/css; charset=utf-8"),
            "page.js": (script, b"text/javascript; charset=utf-8"),
        }
        self._actions: dict[str, Callable[[Loop, dict[str, str], Holder], Any]] = {
            "settings": self.change_settings,
            "arms": self.change_arms,
            "keys": self.rotate_key,
            "evaluate": self.evaluate,
            "reset": self.reset,
        }

    def link(self) -> str:
        """Return the path of a link that lets in once, within an hour, as the server."""
        token = secrets.token_urlsafe(24)
        self.links[token] = self.service.clock() + LINK
        return f"/login?once={token}"

    def holder_of(self, request: Request) -> Holder | None:
        """Return who entered, by the cookie; None if the key is no longer valid."""
        cookies = dict(
            part.strip().partition("=")[::2] for part in request.header(b"cookie").split(";")
        )
        session, now = self.sessions.get(cookies.get(COOKIE, "")), self.service.clock()
        if session is None or session.until <= now:
            return None
        return self.service.keys.holder_by_hash(session.key, now)

    def problem(self, problem: HttpProblem) -> Answer:
        """Return an error as a page."""
        if problem.status == 401:
            return shown("login.html", 401, wrong=False)
        status, message = problem.status, problem.message
        answer = shown("problem.html", status, status_code=status, message=message)
        return answer._replace(headers=[*answer.headers, *problem.headers])

    async def answer(self, request: Request, holder: Holder | None) -> Answer:
        """Find the page."""
        word = request.path[0]
        if word in self._static:
            body, kind = self._static[word]
            return Answer(200, body, kind)
        if word in ("healthz", "readyz"):
            return self.health(word)
        if not self._is_ready():
            raise HttpProblem(503, "NotReady", "the service is starting; try again soon")
        if word == "metrics":
            allowed(holder, READ, None)
            text = await self.service.turns.in_background(self.metrics.text)
            return Answer(200, text, b"text/plain; version=0.0.4; charset=utf-8")
        if word == "openapi.json":
            return json_answer(self._document)
        if word in ("login", "logout"):
            return self.enter(request) if word == "login" else self.leave(request)
        holder = holder or self.holder_of(request)
        if holder is None or not holder.may(READ, holder.loop):
            raise HttpProblem(401, "Unauthorized", "enter first")
        site = request.header(b"sec-fetch-site")
        if request.method == "POST" and site not in ("same-origin", ""):
            raise HttpProblem(403, "Forbidden", "another site sent this form")
        return await self._inside(request, holder)

    async def _inside(self, request: Request, holder: Holder) -> Answer:
        """Answer someone who has entered."""
        word, who = request.path[0], holder.loop or "server"
        if request.path == [""]:
            return self.all_loops(request, holder)
        if word == "api":
            return shown("api.html", who=who, document=self._document, encode=pretty)
        if request.path == ["loops"] and request.method == "POST":
            return await self.create(request, allowed(holder, ADMINISTER, None))
        if request.path == ["keys"] and request.method == "POST":
            return await self.rotate_server_key(allowed(holder, ADMINISTER, None))
        if word == "loops" and len(request.path) in (2, 3):
            allowed(holder, ADMINISTER if request.method == "POST" else READ, request.path[1])
            return await self.loop(request, self.service.loop(request.path[1]), holder)
        raise NotFound("there is no such page")

    def health(self, word: str) -> Answer:
        """Answer whether the process lives (healthz), or can decide (readyz)."""
        service, ready = self.service, self._is_ready()
        state: dict[str, Any] = {
            "ready": ready,
            "store": "working" if ready and not service.failing else "failing",
            "position": service.position,
            "leads": service.leading,
            "unwritten": len(service.unwritten),
            "clock_skew": round(service.clock.skew, 1),
            "alerts": len(service.alerts),  # which name loops: the page says what they are
        }
        if service.lost is not None:
            state["deciding"] = "from what was known when the store was lost"
            state["lost_seconds"] = service.clock() - service.lost
        # Without the database of all servers this one still decides: nobody else would do better.
        decides = state["store"] == "working" or service.store.shared
        return json_answer(state, 200 if word == "healthz" or (ready and decides) else 503)

    # Entering and leaving

    def enter(self, request: Request) -> Answer:
        """Take a key, or a link that works once."""
        now, keys = self.service.clock(), self.service.keys
        key: bytes | None = None
        if request.method == "POST":
            key = hashed(form_of(request).get("key", "").strip())
        elif "once" in request.query:
            if self.links.pop(request.query["once"], 0.0) > now:
                key = keys.newest(None, ADMINISTER)
        else:
            return shown("login.html", wrong=False)
        holder = None if key is None else keys.holder_by_hash(key, now)
        if key is None or holder is None or not holder.may(READ, holder.loop):
            return shown("login.html", 401, wrong=True)
        self.sessions = {t: s for t, s in self.sessions.items() if s.until > now}
        if len(self.sessions) >= MOST_SESSIONS:
            self.sessions.clear()
        token = secrets.token_urlsafe(32)
        self.sessions[token] = Session(key, now + SESSION)
        secure = "; Secure" if request.secure else ""
        cookie = (
            f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION:.0f}{secure}"
        )
        # A page of its own and no redirection: a strict cookie does not follow those from outside.
        body = b'<meta http-equiv="refresh" content="0; url=/">'
        return Answer(200, body, HTML, [*SAFE, (b"set-cookie", cookie.encode())])

    def leave(self, request: Request) -> Answer:
        """Forget who entered."""
        cookie = request.header(b"cookie")
        self.sessions = {t: s for t, s in self.sessions.items() if t not in cookie}
        return shown("login.html", wrong=False)

    # Loops

    def all_loops(self, request: Request, holder: Holder) -> Answer:
        """Show the loops, some at a time, or those whose name contains a text."""
        wanted = request.query.get("q", "")
        names = sorted(
            name for name in self.service.loops if holder.may(READ, name) and wanted in name
        )
        number = request.query.get("page", "1")
        first = AT_ONCE * (int(number) - 1) if number.isdecimal() and int(number) > 0 else 0
        return shown(
            "loops.html",
            who=holder.loop or "server",
            cards=[views.card(self.service.loops[n]) for n in names[first : first + AT_ONCE]],
            q=wanted,
            page=first // AT_ONCE + 1,
            pages=max(-(-len(names) // AT_ONCE), 1),
            count=len(names),
            is_server=holder.may(ADMINISTER, None),
            alerts=list(self.service.alerts.values()) if holder.loop is None else [],
        )

    async def create(self, request: Request, holder: Holder) -> Answer:
        """Make a loop."""
        form = form_of(request)
        keys = await self.service.create(
            form.get("name", ""), LoopSettings(), listed(form.get("arms", "")), holder.name
        )
        return shown("keys.html", who="server", name=form["name"], keys=keys, is_new=True)

    async def rotate_server_key(self, holder: Holder) -> Answer:
        """Issue a new key of the server; the old one works for another day."""
        key = await self.service.issue_key(None, ADMINISTER, holder.name)
        return shown("keys.html", who="server", name="server", keys={"server": key}, is_new=False)

    async def loop(self, request: Request, loop: Loop, holder: Holder) -> Answer:
        """Show a loop, after doing what a form asks for."""
        word = request.path[2] if len(request.path) == 3 else ""
        more: dict[str, Any] = {}
        if request.method == "POST" and word == "delete":
            return await self.delete(loop, form_of(request), holder)
        if request.method == "POST" and word in self._actions:
            try:
                more = await self._actions[word](loop, form_of(request), holder)
            except (ValueError, TypeError, LookupError, msgspec.ValidationError) as error:
                more = {"wrong": str(error), "status": 400}
        elif word or request.method != "GET":
            raise NotFound("there is no such page")
        loop = self.service.loop(loop.name)  # which may be another by now
        view = await self.service.look(loop, partial(LoopView.of, loop))
        return await self.service.turns.in_background(self._loop_page, loop, view, holder, more)

    def _loop_page(
        self, loop: Loop, view: LoopView, holder: Holder, more: dict[str, Any]
    ) -> Answer:
        """Render the page of a loop; blocks."""
        from tsucb.logs.live import Live

        events = list(self.service.newest(loop, RECENT))
        try:
            calibration = Live.of(recent(self.service, loop, RECENT)).calibration()
        except ValueError:  # no decisions yet
            calibration = None
        chance = gain(events) if view.settings.mode == "apprentice" else None
        values = {"done": "", "wrong": "", "keys": None, "compared": None, "form": {}, **more}
        return shown(
            "loop.html",
            values.pop("status", 200),
            who=holder.loop or "server",
            view=view,
            views=views,
            recent=views.decisions(events),
            calibration=calibration,
            gain=chance,
            fields=views.setting_fields(view.settings),
            roles=list(GRANTS),
            can_change=holder.may(ADMINISTER, view.name),
            **values,
        )

    # What the forms of a loop ask for

    async def change_settings(
        self, loop: Loop, form: dict[str, str], holder: Holder
    ) -> dict[str, Any]:
        """Change some settings."""
        changes = views.form_changes(loop.settings, form)
        if not changes:
            return {"done": "Nothing to change."}
        await self.service.configure(loop, changes, holder.name)
        return {"done": f"Changed: {', '.join(changes).replace('_', ' ')}."}

    async def change_arms(self, loop: Loop, form: dict[str, str], holder: Holder) -> dict[str, Any]:
        """Add arms, or remove one."""
        add, remove = listed(form.get("add", "")), [form["remove"]] if "remove" in form else []
        await self.service.change_arms(loop, add, remove, holder.name)
        return {"done": f"Removed {remove[0]}." if remove else f"Added {', '.join(add)}."}

    async def rotate_key(self, loop: Loop, form: dict[str, str], holder: Holder) -> dict[str, Any]:
        """Issue a key."""
        role = form.get("role", "")
        key = await self.service.issue_key(loop, role, holder.name)
        return {"keys": {role: key}}

    async def evaluate(self, loop: Loop, form: dict[str, str], holder: Holder) -> dict[str, Any]:
        """Compare another configuration on the log."""
        policy, forgetting = form.get("policy", ""), form.get("forgetting", "1")
        if not policy:
            raise ValueError("give the policy that is to be compared")
        settings = {"policy": policy, "forgetting": float(forgetting)}
        found = await self.service.turns.in_background(
            comparison, self.service, loop, {policy: settings}, MOST_COMPARED
        )
        return {"compared": found, "form": form}

    async def reset(self, loop: Loop, form: dict[str, str], holder: Holder) -> dict[str, Any]:
        """Forget what was learned."""
        check_confirmed(loop, form)
        await self.service.reset(loop, holder.name)
        return {"done": "What the loop had learned is forgotten; its log is still there."}

    async def delete(self, loop: Loop, form: dict[str, str], holder: Holder) -> Answer:
        """Delete a loop."""
        check_confirmed(loop, form)
        await self.service.delete(loop.name, holder.name)
        return Answer(303, b"", HTML, [*SAFE, (b"location", b"/")])


def shown(template: str, status: int = 200, **values: Any) -> Answer:
    """Return a page."""
    page = render(f"service/{template}", **{"who": "", **values})
    return Answer(status, page.encode(), HTML, SAFE)


def form_of(request: Request) -> dict[str, str]:
    """Return the fields of a form, those that are empty included."""
    return dict(parse_qsl(request.body.decode(), keep_blank_values=True))


def listed(text: str) -> list[str]:
    """Return what commas separate."""
    return [part.strip() for part in text.split(",") if part.strip()]


def check_confirmed(loop: Loop, form: dict[str, str]) -> None:
    """Raise ValueError unless the name of the loop was typed."""
    if form.get("confirm", "") != loop.name:
        raise ValueError(f"type the name of the loop, {loop.name}, to confirm")


def pretty(value: Any) -> str:
    """Return a value as JSON for people."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
