"""`tsucb serve`: the decision service."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from tsucb.cli.options import grouped


@dataclass
class ServerOptions:
    """Settings of the server that override its file and its environment variables."""

    data: Annotated[
        Path | None, typer.Option(help="Folder of the log and the keys; ./tsucb-data by default.")
    ] = None
    host: Annotated[str | None, typer.Option(help="127.0.0.1 by default.")] = None
    port: Annotated[int | None, typer.Option(help="8000 by default.")] = None
    tls_certificate: Annotated[Path | None, typer.Option(help="For https, with --tls-key.")] = None
    tls_key: Annotated[Path | None, typer.Option(help="For https.")] = None
    insecure: Annotated[
        bool | None,
        typer.Option("--insecure", help="Listen to other machines without TLS, behind a proxy."),
    ] = None
    postgres: Annotated[
        str | None, typer.Option(help="A PostgreSQL database to keep the log in instead.")
    ] = None


# Most of its lines are the options with their help.
@grouped
def serve(
    options: ServerOptions,
    config: Annotated[
        Path | None,
        typer.Option(help="Settings in a TOML file.", envvar="TSUCB_SERVE_CONFIG"),
    ] = None,
    backup: Annotated[
        Path | None,
        typer.Option(help="Copy the log to this file, also while it is served, and leave."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read the whole log, say what is damaged, and leave.")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Set aside what is damaged in the log, and leave.")
    ] = False,
    ready: Annotated[
        bool,
        typer.Option(
            "--ready",
            help="Ask the server with these settings whether it is ready: exit code 0 or 1.",
        ),
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Play simulated visitors, to see a page that lives.")
    ] = False,
) -> None:
    """Serve decisions over HTTP; nothing acknowledged is lost.

    Settings can also come from the environment, such as TSUCB_SERVE_PORT=9000.
    """
    try:
        from tsucb.service.errors import StoreError
        from tsucb.service.server import (
            Server,
            at_terminal,
            is_ready,
            look_through,
            read_settings,
            set_up_logging,
        )
        from tsucb.service.sqlite import backup as copy_log
    except ModuleNotFoundError as error:
        raise ValueError(
            f"the service needs {error.name}; install it with pip install 'tsucb[serve]'"
        ) from None
    values = asdict(options).items()
    overrides = {name: str(each) if isinstance(each, Path) else each for name, each in values}
    settings = read_settings(config, os.environ, overrides)
    set_up_logging(as_json=not at_terminal())
    try:
        if backup is not None:
            copy_log(settings.data, backup)
        elif ready:
            if not is_ready(settings):
                raise typer.Exit(1)
        elif check or repair:
            look_through(settings, repair)
        else:
            Server(settings, demo).run()
    except StoreError as error:
        raise ValueError(str(error)) from None
