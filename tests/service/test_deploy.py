"""The container and the systemd unit: closed by default, and their health check works with TLS."""

import configparser
import re
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from tests.service.serving import served
from tsucb.cli.commands import application
from tsucb.service.server import is_ready, read_settings

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.mark.parametrize("tls", [False, True])
def test_the_health_check_asks_as_the_server_listens(tmp_path, clock, tls, request):
    files = request.getfixturevalue("certificate") if tls else None
    with served(tmp_path / "data", clock, tls=files) as found:
        port = found.url.rpartition(":")[2]
        environment = {"TSUCB_SERVE_PORT": port, "TSUCB_SERVE_HOST": "0.0.0.0"}
        if files is None:
            environment["TSUCB_SERVE_INSECURE"] = "true"
        else:
            environment["TSUCB_SERVE_TLS_CERTIFICATE"], environment["TSUCB_SERVE_TLS_KEY"] = files
        settings = read_settings(None, environment, {})
        assert is_ready(settings)
        found.application.ready = False
        assert not is_ready(settings)
        asked = CliRunner(env=environment).invoke(application(["serve"]), ["serve", "--ready"])
        assert asked.exit_code == 1, asked.output
        found.application.ready = True
        assert httpx.get(found.url + "/healthz", verify=False).status_code == 200
    assert not is_ready(settings)  # nobody listens


def test_the_container_is_closed_by_default():
    text = (DEPLOY / "Dockerfile").read_text()
    commands = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "0.0.0.0" not in commands
    assert "INSECURE" not in commands
    base = re.search(r"^ARG BASE=(\S+)$", commands, re.MULTILINE)[1]
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", base)
    assert '"serve", "--ready"' in commands
    for line in re.findall(r"docker run .*", text):  # whoever publishes on all interfaces has TLS
        rest = text[text.index(line) :].split("\n#\n")[0]
        assert "-p 127.0.0.1:" in line or "TLS_CERTIFICATE" in rest.split("docker run")[1]


def test_the_unit_is_locked_down():
    parser = configparser.RawConfigParser(strict=False, comment_prefixes="#")
    parser.optionxform = str
    parser.read(DEPLOY / "tsucb.service")
    unit = parser["Service"]
    assert int(unit["LimitNOFILE"]) >= 10_100
    assert unit["SystemCallErrorNumber"] == "EPERM"
    assert "SystemCallFilter=@system-service" in (DEPLOY / "tsucb.service").read_text()
    assert (unit["UMask"], unit["NoNewPrivileges"]) == ("0077", "yes")


def test_the_database_password_can_be_in_a_file(tmp_path):
    (tmp_path / "postgres").write_text("postgresql://tsucb:secret@db/tsucb\n")
    found = read_settings(None, {"TSUCB_SERVE_POSTGRES": f"@{tmp_path}/postgres"}, {})
    assert found.postgres == "postgresql://tsucb:secret@db/tsucb"
