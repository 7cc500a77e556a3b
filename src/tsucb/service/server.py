"""The process: settings from file and environment, keys on the first start, uvicorn."""

import asyncio
import json
import logging
import os
import re
import shlex
import signal
import socket
import sys
import time
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from tsucb.files import write_whole
from tsucb.service.application import Application, Options
from tsucb.service.connections import Connection
from tsucb.service.demo import NAME as DEMO
from tsucb.service.demo import play
from tsucb.service.service import Service
from tsucb.service.settings import COMING_MODEL, LoopSettings, loop_settings
from tsucb.service.sqlite import SqliteStore
from tsucb.service.store import Store

KEYS = "keys.json"
FIRST_LOOP = "default"
LOOPBACK = ("127.0.0.1", "localhost", "::1")
PREFIX = "TSUCB_SERVE_"
GRACE = 10  # seconds for requests to end when the server stops

log = logging.getLogger("tsucb.service")


class ServerSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How the server is set up; in a file, in the environment (TSUCB_SERVE_PORT=…), or as options.

    Parameters
    ----------
    data
        The folder of the log and the keys.
    postgres
        A PostgreSQL database to use instead, as a connection string.
    host, port
        Where it listens: on this machine alone, unless it is told otherwise.
    tls_certificate, tls_key
        Files, for https.
    insecure
        Listen to other machines without TLS, as behind a proxy that has it.
    most_bytes, most_requests, rate
        Of a request's body; at the same time; per second and key.
    loops
        Loops to be made, or brought to these settings: by name, with `arms` among their settings.
    """

    data: str = "tsucb-data"
    postgres: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    tls_certificate: str | None = None
    tls_key: str | None = None
    insecure: bool = False
    most_bytes: int = 1_000_000
    most_requests: int = 2_000
    rate: float | None = None
    loops: dict[str, dict[str, Any]] = {}


def read_settings(
    file: Path | None, environment: Mapping[str, str], options: Mapping[str, Any]
) -> ServerSettings:
    """Settings from a TOML file, changed by the environment, changed by options."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not TOML: {' '.join(str(error).split())}") from None
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
    if not 1 <= settings.port <= 65_535:
        raise ValueError(f"port must be from 1 to 65535, but it is {settings.port}")
    limits = settings.most_bytes, settings.most_requests, settings.rate
    if any(limit is not None and not limit > 0 for limit in limits):
        raise ValueError("most_bytes, most_requests and rate must be positive")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        raise ValueError("give both tls_certificate and tls_key, or none")
    if settings.host not in LOOPBACK and not settings.tls_certificate and not settings.insecure:
        raise ValueError(
            f"to listen on {settings.host} keys would cross the network unencrypted: give "
            "tls_certificate and tls_key, or say insecure if a proxy in front has TLS"
        )
    return settings


def open_store(settings: ServerSettings) -> Store:
    """The store that the settings name."""
    if settings.postgres is None:
        return SqliteStore(settings.data)
    from tsucb.service.postgres import PostgresStore

    return PostgresStore(settings.postgres)


class Server:
    """A service with its application and its keys.

    Parameters
    ----------
    settings
        See `ServerSettings`.
    demo
        Whether simulated visitors come.
    """

    def __init__(self, settings: ServerSettings, demo: bool = False) -> None:
        self.settings, self.demo = settings, demo
        self.folder = Path(settings.data)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.store = open_store(settings)
        self.service = Prepared(self.store, self)
        options = Options(settings.most_bytes, settings.most_requests, settings.rate)
        self.application = Application(self.service, options)

    @property
    def url(self) -> str:
        """Where it can be reached."""
        scheme = "https" if self.settings.tls_certificate else "http"
        host = f"[{self.settings.host}]" if ":" in self.settings.host else self.settings.host
        return f"{scheme}://{host}:{self.settings.port}"

    async def prepare(self) -> None:
        """Make the loops that there should be, and on the first start the keys."""
        wanted = self.settings.loops
        if not self.service.loops and not wanted:
            wanted = {FIRST_LOOP: {"model": COMING_MODEL}}
        await self.service.prepare(wanted, self._write_keys)

    def _write_keys(self, issued: dict[str, Any]) -> None:
        """Add keys to the file, which only its owner can read."""
        path = self.folder / KEYS
        before = json.loads(path.read_text()) if path.exists() else {}
        if not path.exists():
            path.touch(mode=0o600)
        write_whole(path, json.dumps({**before, **issued}, indent=2) + "\n")
        if not at_terminal():  # where the greeting says so
            say(f"the keys are in {path}")

    def greeting(self) -> str:
        """What a person at a terminal needs to know to go on."""
        keys = self.folder / KEYS
        lines = [
            "",
            f"  Serving decisions on {self.url}",
            "",
            f"  Look at it    {self.url}{self.application.page.link()}",
            "                (lets your browser in once, within the hour)",
            f"  Keys          {keys}",
        ]
        if (name := self._first_key(keys)) is not None:
            loop = self.service.loop(name)
            body = "{}" if loop.arms else '{"arms": ["article", "video"]}'
            trust = ""
            if self.settings.tls_certificate:
                trust = f"--cacert {shlex.quote(self.settings.tls_certificate)} "
            find = f"import json; print(json.load(open({str(keys)!r}))[{name!r}]['decide'])"
            plain = re.fullmatch(r"[^\"$`!\\]+", find) is not None
            find = f'"{find}"' if plain else shlex.quote(find)
            lines += [
                f"  A first call  KEY=$({Path(sys.executable).name} -c {find})",
                f'                curl {trust}-H "Authorization: Bearer $KEY" \\',
                f"                  {self.url}/v1/loops/{name}/decide -d {shlex.quote(body)}",
            ]
        if self.demo:
            lines.append(f"  Demo          simulated visitors come to the loop {DEMO!r}")
        return "\n".join([*lines, "  To stop       Ctrl-C; nothing is lost", ""])

    def _first_key(self, keys: Path) -> str | None:
        """The first loop whose key is in the file."""
        known = json.loads(keys.read_text()) if keys.exists() else {}
        return next((name for name in known if name in self.service.loops), None)

    def _take_place(self) -> socket.socket:
        """Bind the port before anybody is told that it serves; it listens when all is ready."""
        family = socket.AF_INET6 if ":" in self.settings.host else socket.AF_INET
        # Without the protocol the answers would wait for the acknowledgement of their headers.
        place = socket.socket(family, proto=socket.IPPROTO_TCP)
        try:
            place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            place.bind((self.settings.host, self.settings.port))
        except OSError as error:
            place.close()
            raise ValueError(f"cannot listen on {self.url}: {error.strerror or error}") from None
        return place

    def run(self) -> None:
        """Serve until the process is told to stop."""
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
            ws="none",
            http=Connection,
        )
        server = uvicorn.Server(config)
        try:
            place = self._take_place()
            # uvicorn raises the signal again once it has stopped in good order; that is the end.
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: None)
            server.run(sockets=[place])
        finally:
            self.store.close()
        say("Stopped in good order.")
        if not server.started:
            raise OSError(f"the server could not be started on {self.url}; see above")


class Prepared(Service):
    """A service that is set up by its server when it starts."""

    def __init__(self, store: Store, server: Server) -> None:
        super().__init__(store, folder=server.settings.data)
        self._server = server
        self._playing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the store, then see to the loops and keys."""
        say("Getting ready; the very first start compiles for a minute.")
        await super().start()
        await self._server.prepare()
        if self._server.demo:
            self._playing = asyncio.create_task(play(self))
        if at_terminal():  # not into a log that others read: the link lets in
            say(self._server.greeting())
        else:
            say(f"serving {len(self.loops)} loops on {self._server.url}")

    async def stop(self) -> None:
        """Send the visitors away, then stop."""
        if self._playing is not None:
            self._playing.cancel()
        await super().stop()


def at_terminal() -> bool:
    """Whether a person reads what is logged."""
    return sys.stderr.isatty()


def say(text: str) -> None:
    """Tell whoever started the process."""
    log.info("%s", text)


class JsonLines(logging.Formatter):
    """Every record as one line of JSON."""

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


def environment() -> Mapping[str, str]:
    """The environment of this process."""
    return os.environ
