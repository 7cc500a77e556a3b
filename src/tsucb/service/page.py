"""The HTML pages, which are forms over the native protocol; health, metrics, the OpenAPI document.

A browser signs in with a key and gets a cookie, which is valid for as long as the key. Only these
pages take cookies: the protocols do not, so no other site can make a browser call them.
"""

import re
import secrets
from collections.abc import Callable
from http import HTTPStatus
from typing import Annotated, Any

from msgspec import Meta
from prometheus_client import CollectorRegistry, generate_latest

from tsucb.pages.render import asset, render
from tsucb.service import native, openapi, views
from tsucb.service.errors import HttpProblem, NotFound, Problem
from tsucb.service.export import RecentLog, comparison
from tsucb.service.http import Answer, Call, Operations, json_answer
from tsucb.service.keys import ADMINISTER, GRACE, GRANTS, READ, KeyRecord, hashed
from tsucb.service.loop import Loop
from tsucb.service.monitoring import all_alerts, loop_alerts
from tsucb.service.service import Service
from tsucb.service.state import LoopState

COOKIE = "tsucb"
SESSION = 12 * 3_600.0  # seconds that a cookie is valid
LINK = 3_600.0  # seconds that a link that signs in is valid
MOST_SESSIONS = 1_000
RECENT = 4_000  # events that the page of a loop reads
AT_ONCE = 60  # loops on one page of the list
MOST_LISTED = 50  # arms in the table of a loop

HTML = b"text/html; charset=utf-8"
HEALTH = ("healthz", "readyz")
STATIC = {"style.css": b"text/css; charset=utf-8", "page.js": b"text/javascript; charset=utf-8"}
SAFE = [
    (
        b"content-security-policy",
        b"default-src 'none'; style-src 'self'; script-src 'self'; img-src data:; "
        b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-frame-options", b"DENY"),
]
PAGES = Operations(where="form")  # for browsers that have signed in
ALL = "loops/{loop}"


class Page:
    """Answers all paths outside the protocols."""

    def __init__(
        self, service: Service, registry: CollectorRegistry, is_ready: Callable[[], bool]
    ) -> None:
        self.service, self.registry, self._is_ready = service, registry, is_ready
        # The hash of the key of every cookie, and the end of every cookie and of every link.
        self.sessions: dict[str, tuple[bytes, float]] = {}
        self.links: dict[str, float] = {}

    def link(self) -> str:
        """Return the path of a link that signs in with the server's key, once, within an hour."""
        token = secrets.token_urlsafe(24)
        self.links[token] = self.service.clock() + LINK
        return f"/login?once={token}"

    def problem(self, problem: Problem) -> Answer:
        """Return a problem as a page."""
        if problem.status == 401:
            return page_answer("login.html", status=401, wrong=False)
        title = HTTPStatus(problem.status).phrase
        answer = page_answer("problem.html", status=problem.status, problem=problem, title=title)
        return answer._replace(headers=[*answer.headers, *problem.headers])

    async def answer(self, call: Call) -> Answer:
        """Return the answer to a call; pages need a cookie, metrics a key."""
        name = call.path[0]
        if name in STATIC:
            return Answer(200, asset(name).encode(), STATIC[name])
        if name in HEALTH:
            return self.health(name)
        if name == "metrics":
            call.check_allowed(READ, None)
            text = await self.service.turns.in_background(generate_latest, self.registry)
            return Answer(200, text, b"text/plain; version=0.0.4; charset=utf-8")
        if name == "openapi.json":
            return json_answer(openapi.document())
        if name in ("login", "logout"):
            return self.sign_in(call) if name == "login" else self.sign_out(call)
        call.holder = call.holder or self.holder_of(call)
        if call.holder is None or not call.holder.may(READ, call.holder.loop):
            raise HttpProblem(401, "Unauthorized", "sign in first")
        site = call.header(b"sec-fetch-site")
        if call.method == "POST" and site not in ("same-origin", ""):
            raise HttpProblem(403, "Forbidden", "another site sent this form")
        try:
            operation = PAGES.find(call, call.path)
        except HttpProblem:
            raise NotFound("there is no such page") from None
        loop = call.path_values[0] if call.path_values else None
        if loop is not None or operation.action == ADMINISTER:
            call.check_allowed(operation.action, loop)
        call.loop = None if loop is None else self.service.loop(loop)
        try:
            found: Answer | str = await operation.result(call)
        except (ValueError, TypeError, LookupError) as error:
            if loop is None or call.method == "GET":
                raise
            found = await show_loop(call, 400, wrong=str(error))
        return found if isinstance(found, Answer) else await show_loop(call, done=found)

    def health(self, name: str) -> Answer:
        """Answer whether the process runs (healthz), or can decide (readyz)."""
        service, ready = self.service, self._is_ready()
        state: dict[str, Any] = {
            "ready": ready,
            "store": "working" if ready and not service.upkeep.failing else "failing",
            "position": service.ledger.position,
            "leads": service.ledger.leading,
            "unwritten": len(service.spool),
            "clock_skew": round(service.clock.skew, 1),
            "alerts": len(service.alerts),  # only their number, as they name loops
        }
        if service.upkeep.lost is not None:
            state["deciding"] = "from what was known when the store was lost"
            state["lost_seconds"] = service.clock() - service.upkeep.lost
        # Without a shared database every server still decides, so no other would do better.
        decides = state["store"] == "working" or service.store.shared
        return json_answer(state, 200 if name == "healthz" or (ready and decides) else 503)

    def sign_in(self, call: Call) -> Answer:
        """Show the form for a key; sign in with a key, or with a link that works once."""
        now, keys = self.service.clock(), self.service.keys
        key: bytes | None = None
        if call.method == "POST":
            key = hashed(call.form.get("key", "").strip())
        elif "once" not in call.query:
            return page_answer("login.html", wrong=False)
        elif self.links.pop(call.query["once"], 0.0) > now:
            key = keys.newest(None, ADMINISTER)
        holder = None if key is None else keys.holder_by_hash(key, now)
        if key is None or holder is None or not holder.may(READ, holder.loop):
            return page_answer("login.html", status=401, wrong=True)
        self.sessions = {t: s for t, s in self.sessions.items() if s[1] > now}
        if len(self.sessions) >= MOST_SESSIONS:
            self.sessions.clear()
        token = secrets.token_urlsafe(32)
        self.sessions[token] = key, now + SESSION
        secure = "; Secure" if call.secure else ""
        cookie = (
            f"{COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/; Max-Age={SESSION:.0f}{secure}"
        )
        # Not a redirection: browsers send strict cookies with none that began at another site.
        body = b'<meta http-equiv="refresh" content="0; url=/">'
        return Answer(200, body, HTML, [*SAFE, (b"set-cookie", cookie.encode())])

    def holder_of(self, call: Call) -> KeyRecord | None:
        """Return the key that a browser signed in with; None if it is not valid any more."""
        key, until = self.sessions.get(session_of(call), (b"", 0.0))
        now = self.service.clock()
        return self.service.keys.holder_by_hash(key, now) if now < until else None

    def sign_out(self, call: Call) -> Answer:
        """Forget the cookie."""
        self.sessions.pop(session_of(call), None)
        return page_answer("login.html", wrong=False)


def session_of(call: Call) -> str:
    """Return the value of the cookie, empty if there is none."""
    found = re.search(rf"(?:^|;) *{COOKIE}=([\w-]*)", call.header(b"cookie"))
    return "" if found is None else found[1]


@PAGES.add("GET", "", READ)
async def all_loops(call: Call, *, q: str = "", page: Annotated[int, Meta(ge=1)] = 1) -> Answer:
    """Show one page of the loops whose names contain the text `q`."""
    service, holder = call.service, call.holder
    is_server = holder.may(ADMINISTER, None)
    names = sorted(name for name in service.loops if holder.may(READ, name) and q in name)
    return page_answer(
        "loops.html",
        call,
        cards=[views.card(service.loops[n]) for n in names[AT_ONCE * (page - 1) :][:AT_ONCE]],
        q=q,
        page=page,
        pages=max(-(-len(names) // AT_ONCE), 1),
        count=len(names),
        is_server=is_server,
        alerts=await service.turns.in_background(all_alerts, service) if is_server else [],
    )


@PAGES.add("GET", "api", READ)
async def api(call: Call) -> Answer:
    """Show the operations of the native protocol."""
    paths = openapi.document()["paths"]
    return page_answer("api.html", call, paths=paths, tables=openapi.tables)


@PAGES.add("GET", ALL, READ)
async def show_loop(call: Call, status: int = 200, **more: Any) -> Answer:
    """Show a loop; `more` are values for the template."""
    loop = call.service.loop(call.loop.name)  # a form may have put another into its place
    seen = await call.service.look(
        loop, lambda: (loop.hold(), None if loop.learner is None else loop.arms_summary())
    )
    return await call.service.turns.in_background(loop_page, call, loop, *seen, status, more)


def loop_page(
    call: Call, loop: Loop, state: LoopState, arms: Any, status: int, more: dict[str, Any]
) -> Answer:
    """Render the page of a loop; blocks."""
    from tsucb.logs.report import LogReport

    log = RecentLog.of(call.service, loop, RECENT)
    try:
        calibration = LogReport(log.decisions()).calibration()
    except ValueError:  # no decisions yet
        calibration = None
    return page_answer(
        "loop.html",
        call,
        status,
        name=loop.name,
        state=state,
        rows=[] if arms is None else list(arms.nlargest(MOST_LISTED, "pulls").itertuples()),
        events=log.events(),
        alerts=list(loop_alerts(loop)),
        calibration=calibration,
        views=views,
        fields=openapi.document()["components"]["schemas"]["LoopSettings"]["properties"],
        roles=list(GRANTS),
        can_change=call.holder.may(ADMINISTER, loop.name),
        **{"done": "", "wrong": "", "keys": None, "compared": None, "form": {}, **more},
    )


# Forms: each calls an operation of the native protocol, and returns a sentence for the page.


@PAGES.add("POST", "loops", ADMINISTER)
async def create(call: Call, *, name: str = "", arms: str = "") -> Answer:
    """Create a loop."""
    made = await native.create(call, name=name, arms=views.split_commas(arms))
    return page_answer("keys.html", call, is_new=True, **made)


@PAGES.add("POST", "keys", ADMINISTER)
async def rotate_server_key(call: Call) -> Answer:
    """Issue a key of the server; the old one works for another day."""
    made = await native.rotate_server_key(call)
    keys = {"server": made["key"]}
    return page_answer("keys.html", call, is_new=False, name="server", keys=keys)


@PAGES.add("POST", f"{ALL}/settings", ADMINISTER)
async def change_settings(call: Call) -> str:
    """Change settings."""
    form = call.form
    relearn = form.pop("relearn", "true") == "true"
    changes = views.form_changes(call.loop.settings, form)
    if not changes:
        return "Nothing to change."
    await native.configure(call, changes, relearn=relearn)
    return f"Changed: {', '.join(changes).replace('_', ' ')}."


@PAGES.add("POST", f"{ALL}/arms", ADMINISTER)
async def change_arms(call: Call, *, add: str = "", remove: str = "") -> str:
    """Add arms, or remove one."""
    new = views.split_commas(add)
    await native.change_arms(call, add=new, remove=[remove] if remove else [])
    return f"Removed {remove}." if remove else f"Added {', '.join(new)}."


@PAGES.add("POST", f"{ALL}/keys", ADMINISTER)
async def rotate_key(call: Call, *, role: native.Role, grace: native.Grace = GRACE) -> Answer:
    """Issue a key."""
    made = await native.rotate(call, role=role, grace=grace)
    return await show_loop(call, keys={role: made["key"]})


@PAGES.add("POST", f"{ALL}/evaluate", ADMINISTER)
async def evaluate(call: Call, *, policy: str = "", forgetting: float = 1.0) -> Answer:
    """Estimate from the log what another configuration would have earned."""
    if not policy:
        raise ValueError("give the policy to compare")
    agents = {policy: {"policy": policy, "forgetting": forgetting}}
    found = await call.service.turns.at_length(
        "asked", comparison, call.service, call.loop, agents, native.MOST_COMPARED
    )
    return await show_loop(call, compared=found, form=call.form)


@PAGES.add("POST", f"{ALL}/forget", ADMINISTER)
async def forget(call: Call, *, ids: str = "", person: str = "") -> str:
    """Delete decisions and what was learned from them."""
    found = await native.forget(call, ids=views.split_commas(ids), person=person or None)
    return f"Deleted {found['events']:,} events, and what was learned from them."


@PAGES.add("POST", f"{ALL}/reset", ADMINISTER)
async def reset(call: Call, *, confirm: str = "") -> str:
    """Forget what was learned."""
    check_confirmed(call, confirm)
    await native.reset(call)
    return "What the loop had learned is forgotten; its log is still there."


@PAGES.add("POST", f"{ALL}/delete", ADMINISTER)
async def delete(call: Call, *, confirm: str = "") -> Answer:
    """Delete a loop."""
    check_confirmed(call, confirm)
    await native.delete(call)
    return Answer(303, b"", HTML, [*SAFE, (b"location", b"/")])


def check_confirmed(call: Call, typed: str) -> None:
    """Raise ValueError unless the text is the name of the loop."""
    if typed != call.loop.name:
        raise ValueError(f"type the name of the loop, {call.loop.name}, to confirm")


def page_answer(
    template: str, call: Call | None = None, status: int = 200, **values: Any
) -> Answer:
    """Return an answer with a page, for the browser that signed in if there is a call."""
    who = "" if call is None else call.holder.loop or "server"
    page = render(f"service/{template}", who=who, **values)
    return Answer(status, page.encode(), HTML, SAFE)
