"""The process: settings from file and environment, keys on the first start, uvicorn."""

import gc
import json
import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import httpx
import msgspec
import uvicorn
from msgspec import Meta

from tsucb.extras import require
from tsucb.files import read_toml, write_whole
from tsucb.service.application import Application, Connection, Options
from tsucb.service.demo import NAME as DEMO
from tsucb.service.demo import play
from tsucb.service.service import Service
from tsucb.service.settings import COMING_MODEL, LoopSettings, loop_settings
from tsucb.service.sqlite import SqliteStore
from tsucb.service.store import Store

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

KEYS = "keys.json"
FIRST_LOOP = "default"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PREFIX = "TSUCB_SERVE_"
GRACE = 10  # seconds for requests to end when the server stops
READY_SECONDS = 4.0  # for a server to say whether it is ready
OTHER_FILES = 100  # that the process has open beside its connections
GARBAGE = 50_000, 20, 100  # objects, and younger collections, before garbage is looked for
SWITCH = 0.001  # seconds, after which a thread that computes lets the event loop go on

log = logging.getLogger("tsucb.service")


class ServerSettings(Options, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the server is set up: in a file, in the environment (TSUCB_SERVE_PORT=…), or as options.

    Parameters
    ----------
    data
        The folder of the log and the keys.
    postgres
        A PostgreSQL database to use instead, as a connection string; or as a file that holds it,
        with an @ in front.
    host, port
        Where it listens, by default on this machine alone.
    tls_certificate, tls_key
        Files, for https.
    insecure
        Listen to other machines without TLS, as behind a proxy that has it.
    loops
        Loops to be made, or brought to these settings: by name, with `arms` among their settings.

    How much the server takes is set as well: see `Options`.
    """

    data: str = "tsucb-data"
    postgres: str | None = None
    host: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=1, le=65_535)] = 8000
    tls_certificate: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    loops: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address of the server."""
        scheme = "https" if self.tls_certificate else "http"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{self.port}"


def read_settings(
    file: Path | None, environment: Mapping[str, str], options: Mapping[str, Any]
) -> ServerSettings:
    """Return the settings of a TOML file, changed by the environment, changed by options."""
    values = {} if file is None else read_toml(file)
    given = {
        name.removeprefix(PREFIX).lower(): text
        for name, text in environment.items()
        if name.startswith(PREFIX) and name != f"{PREFIX}CONFIG"
    }
    if "loops" in given:
        raise ValueError(f"loops are set in the file, not by {PREFIX}LOOPS")
    chosen = {name: value for name, value in options.items() if value is not None}
    try:
        # Texts of the environment become numbers where numbers belong.
        settings = msgspec.convert({**values, **given, **chosen}, ServerSettings, strict=False)
        for loop in settings.loops.values():
            loop_settings(LoopSettings(), loop)
    except msgspec.ValidationError as error:
        raise ValueError(f"{file or 'the settings'}: {error}") from None
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise ValueError("give both tls_certificate and tls_key, or none")
    if settings.host not in LOOPBACK and not settings.tls_certificate and not settings.insecure:
        raise ValueError(
            f"to listen on {settings.host} keys would cross the network unencrypted: give "
            "tls_certificate and tls_key, or say insecure if a proxy in front has TLS"
        )
    if settings.postgres is not None and settings.postgres.startswith("@"):
        secret = Path(settings.postgres[1:]).read_text(encoding="utf-8").strip()
        settings = msgspec.structs.replace(settings, postgres=secret)
    return settings


def open_store(settings: ServerSettings) -> Store:
    """Open the store that the settings name."""
    if settings.postgres is None:
        return SqliteStore(settings.data)
    require("postgres", "psycopg")
    from tsucb.service.postgres import PostgresStore

    return PostgresStore(settings.postgres)


def connection_limit(wanted: int) -> int:
    """Raise the number of files this process may have open; return how many connections fit."""
    if resource is None:
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    needed = wanted + OTHER_FILES if unlimited else min(wanted + OTHER_FILES, hard)
    if soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        soft = needed
    return min(wanted, max(soft - OTHER_FILES, 1))


class Server:
    """A service with its application and its keys; in a demo, simulated visitors come."""

    def __init__(self, settings: ServerSettings, demo: bool = False) -> None:
        self.settings, self.demo, self.url = settings, demo, settings.url
        self.folder = Path(settings.data)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.store = open_store(settings)
        self.service = Service(self.store, folder=settings.data)
        most = connection_limit(settings.most_connections)
        if most < settings.most_connections:
            log.warning("at most %d connections: the limit of open files allows no more", most)
        options = msgspec.structs.replace(settings, most_connections=most)
        self.application = Application(self.service, options)
        self.application.prepare = self.prepare

    async def prepare(self) -> None:
        """Make the loops of the settings and, on the first start, the keys; say where it serves."""
        wanted = self.settings.loops
        if not self.service.loops and not wanted:
            wanted = {FIRST_LOOP: {"model": COMING_MODEL}}
        await self.service.prepare(wanted, self._write_keys)
        if self.demo:
            self.service.turns.begin(play(self.service))
        # What is there now stays: to go through all of it for garbage stops every thread for 0.1 s.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GARBAGE)
        # Not into a log that others read: the link in the greeting lets in.
        plain = f"serving {len(self.service.loops)} loops on {self.url}"
        log.info(self.greeting() if at_terminal() else plain)

    def _write_keys(self, issued: dict[str, Any]) -> None:
        """Add keys to the file, which only its owner can read."""
        path = self.folder / KEYS
        before = json.loads(path.read_text()) if path.exists() else {}
        path.touch(mode=0o600)
        write_whole(path, json.dumps({**before, **issued}, indent=2) + "\n")
        path.chmod(0o600)
        if not at_terminal():  # where the greeting says so
            log.info("the keys are in %s", path)

    def greeting(self) -> str:
        """Return what a person at a terminal needs to know to go on."""
        keys = self.folder / KEYS
        lines = [
            "",
            f"  Serving decisions on {self.url}",
            "",
            f"  Look at it    {self.url}{self.application.page.link()}",
            "                (lets your browser in once, within the hour)",
            f"  Keys          {keys}",
        ]
        known = json.loads(keys.read_text()) if keys.exists() else {}
        name = next((name for name in known if name in self.service.loops), None)
        if name is not None:
            body = "{}" if self.service.loop(name).arms else '{"arms": ["article", "video"]}'
            certificate, trust = self.settings.tls_certificate, ""
            if certificate is not None:
                trust = f"--cacert {shlex.quote(certificate)} "
            find = f"import json; print(json.load(open({str(keys)!r}))[{name!r}]['decide'])"
            lines += [
                f"  A first call  KEY=$({Path(sys.executable).name} -c {shlex.quote(find)})",
                f'                curl {trust}-H "Authorization: Bearer $KEY" \\',
                f"                  {self.url}/v1/loops/{name}/decide -d {shlex.quote(body)}",
            ]
        if self.demo:
            lines.append(f"  Demo          simulated visitors come to the loop {DEMO!r}")
        return "\n".join([*lines, "  To stop       Ctrl-C; nothing is lost", ""])

    def _bound_socket(self) -> socket.socket:
        """Return a socket bound to the port; raise ValueError if another process has it."""
        family = socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET
        bound = socket.socket(family, proto=socket.IPPROTO_TCP)  # proto is needed for TCP_NODELAY
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((self.settings.host, self.settings.port))
        except OSError as error:
            bound.close()
            raise ValueError(f"cannot listen on {self.url}: {error.strerror or error}") from None
        return bound

    def run(self) -> None:
        """Serve until the process is told to stop."""
        os.umask(0o077)  # whatever it writes is for its owner alone
        sys.setswitchinterval(SWITCH)
        log.info("Getting ready; the very first start compiles for a minute.")
        config = uvicorn.Config(
            self.application,
            host=self.settings.host,
            port=self.settings.port,
            ssl_certfile=self.settings.tls_certificate,
            ssl_keyfile=self.settings.tls_key,
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=60,
            timeout_graceful_shutdown=GRACE,
            backlog=4_096,
            ws="none",
            http=Connection,
        )
        server = uvicorn.Server(config)
        self.application.give_up = lambda: setattr(server, "should_exit", True)
        try:
            bound = self._bound_socket()
            # uvicorn raises the signal again once it has stopped in good order; that is the end.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: None)
            server.run(sockets=[bound])
        finally:
            self.store.close()
        if self.application.failed is not None:
            raise OSError(f"the server could not be started: {self.application.failed}")
        if not server.started:
            raise OSError(f"the server could not be started on {self.url}; see above")
        log.info("Stopped in good order.")


def look_through(settings: ServerSettings, repair: bool) -> None:
    """Print what is damaged in the log, or set it aside; raise ValueError if anything is left."""
    store = open_store(settings)
    try:
        for sentence in store.repair() if repair else ():
            print(sentence)
        damaged = list(store.damage())
        for each in store.set_aside():
            print(f"{each.what} is set aside: {each.reason}")
    finally:
        store.close()
    if damaged:
        raise ValueError(f"the log is damaged: {'; '.join(damaged[:100])}")
    print("the log is whole")


def is_ready(settings: ServerSettings) -> bool:
    """Return whether the server with these settings, on this machine, answers that it is ready."""
    if settings.host not in LOOPBACK:
        settings = msgspec.structs.replace(settings, host="127.0.0.1")
    try:
        # Its certificate is for another name than this machine has for itself.
        answer = httpx.get(f"{settings.url}/readyz", timeout=READY_SECONDS, verify=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200


def at_terminal() -> bool:
    """Return whether a person reads what is logged."""
    return sys.stderr.isatty()


class JsonLines(logging.Formatter):
    """Formats every record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """See `logging.Formatter`."""
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        elif hasattr(record, "trace"):
            line["trace"] = record.trace
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(as_json: bool) -> None:
    """Log to standard error: lines of JSON, or for a terminal plain ones."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if as_json else logging.Formatter("%(message)s"))
    root = logging.getLogger()
    root.handlers, root.level = [handler], logging.INFO
    for noisy in ("uvicorn.error", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
