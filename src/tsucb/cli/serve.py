"""`tsucb serve`: the decision service."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from tsucb.cli.options import grouped, option


@dataclass
class ServerOptions:
    """Settings of the server that override its file and its environment variables."""

    data: Path | None = option(None, "Folder of the log and the keys; ./tsucb-data by default.")
    host: str | None = option(None, "127.0.0.1 by default.")
    port: int | None = option(None, "8000 by default.")
    tls_certificate: Path | None = option(None, "For https, with --tls-key.")
    tls_key: Path | None = option(None, "For https.")
    insecure: bool | None = option(
        None, "Listen to other machines without TLS, behind a proxy.", "--insecure"
    )
    postgres: str | None = option(None, "A PostgreSQL database to keep the log in instead.")


@dataclass
class MaintenanceOptions:
    """What the command does instead of serving."""

    backup: Path | None = option(
        None, "Copy the log to this file, also while it is served, and leave."
    )
    check: bool = option(False, "Read the whole log, say what is damaged, and leave.", "--check")
    repair: bool = option(False, "Set aside what is damaged in the log, and leave.", "--repair")
    ready: bool = option(
        False,
        "Ask the server with these settings whether it is ready: exit code 0 or 1.",
        "--ready",
    )


@grouped
def serve(
    options: ServerOptions,
    maintenance: MaintenanceOptions,
    config: Annotated[
        Path | None, typer.Option(help="Settings in a TOML file.", envvar="TSUCB_SERVE_CONFIG")
    ] = None,
    demo: Annotated[
        bool, typer.Option("--demo", help="Play simulated visitors, to see a page that lives.")
    ] = False,
) -> None:
    """Serve decisions over HTTP; nothing acknowledged is lost.

    Settings can also come from the environment, such as TSUCB_SERVE_PORT=9000.
    """
    from tsucb.service import server, sqlite
    from tsucb.service.errors import StoreError

    values = asdict(options).items()
    overrides = {name: str(each) if isinstance(each, Path) else each for name, each in values}
    settings = server.read_settings(config, os.environ, overrides)
    server.set_up_logging(as_json=not server.at_terminal())
    try:
        if maintenance.backup is not None:
            sqlite.backup(settings.data, maintenance.backup)
        elif maintenance.ready:
            if not server.is_ready(settings):
                raise typer.Exit(1)
        elif maintenance.check or maintenance.repair:
            server.look_through(settings, maintenance.repair)
        else:
            server.Server(settings, demo).run()
    except StoreError as error:
        raise ValueError(str(error)) from None
