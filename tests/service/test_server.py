"""Settings of the server, its first start, and the command."""

import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tsucb.service.server import Server, ServerSettings, read_settings
from tsucb.service.sqlite import backup


def test_file_environment_and_options_in_this_order(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('port = 1\nhost = "localhost"\nrate = 5\n[loops.a]\narms = ["x"]\n')
    settings = read_settings(
        file, {"TSUCB_SERVE_PORT": "2", "OTHER": "3"}, {"rate": 7, "data": None}
    )
    assert (settings.port, settings.host, settings.rate, settings.data) == (
        2, "localhost", 7.0, "tsucb-data",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "environment", "options", "sentence"),
    [
        ("port = ", {}, {}, "is not TOML"),
        ("colour = 1", {}, {}, "unknown field `colour`"),
        ("", {"TSUCB_SERVE_PORT": "many"}, {}, "port"),
        ("", {"TSUCB_SERVE_LOOPS": "a"}, {}, "set in the file"),
        ("[loops.a]\nexploration = 2", {}, {}, r"<= 1.0 - at `\$.exploration`"),
        ("[loops.a]\ncolour = 2", {}, {}, "unknown field `colour`"),
        ("[loops.a]\ndefault_reward = nan", {}, {}, r"at `\$.default_reward`"),
        ("[loops.a]\nreward_range = [0, inf]", {}, {}, r"at `\$.reward_range\[1\]`"),
        ("", {}, {"host": "0.0.0.0"}, "unencrypted"),
        ("", {}, {"tls_key": "k"}, "both tls_certificate and tls_key"),
        ("", {}, {"port": 99_999_999}, r"<= 65535 - at `\$.port`"),
        ("most_bytes = 0", {}, {}, r">= 1 - at `\$.most_bytes`"),
    ],
)
def test_wrong_settings_are_one_sentence(tmp_path, text, environment, options, sentence):
    file = tmp_path / "config.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=sentence):
        read_settings(file, environment, options)


def test_the_first_start_makes_keys_and_the_next_keeps_them(tmp_path):
    def started(loops):
        server = Server(ServerSettings(data=str(tmp_path / "data"), loops=loops))

        async def main():
            await server.service.start()
            await server.prepare()
            await server.service.stop()

        asyncio.run(main())
        server.store.close()
        return server.service

    (tmp_path / "data").mkdir(mode=0o755)  # as others may have left it
    service = started({})
    file = tmp_path / "data" / "keys.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    for each in (tmp_path / "data").iterdir():
        assert stat.S_IMODE(each.stat().st_mode) & 0o077 == 0, each
    backup(tmp_path / "data", tmp_path / "copy.sqlite")
    assert stat.S_IMODE((tmp_path / "copy.sqlite").stat().st_mode) == 0o600
    keys = json.loads(file.read_text())
    assert set(keys) == {"server", "default"}
    assert service.keys.holder(keys["server"], 0.0) is not None
    service = started({"news": {"arms": ["a", "b"], "exploration": 0.2}})
    assert json.loads(file.read_text())["server"] == keys["server"]
    assert set(service.loops) == {"default", "news"}
    service = started({"news": {"arms": ["a", "c"], "exploration": 0.4}})
    loop = service.loop("news")
    assert (list(loop.arms), loop.settings.exploration) == (["a", "b", "c"], 0.4)


def test_the_file_changes_what_it_says_and_nothing_else(tmp_path):
    def started(given, change=None):
        server = Server(ServerSettings(data=str(tmp_path / "data"), loops={"news": given}))

        async def main():
            await server.service.start()
            await server.prepare()
            loop = server.service.loop("news")
            position, arms, settings = (
                server.service.ledger.position,
                list(loop.arms),
                loop.settings,
            )
            if change is not None:
                await change(server.service, loop)
            await server.service.stop()
            return position, arms, settings

        found = asyncio.run(main())
        server.store.close()
        return found

    async def remove(service, loop):
        await service.change_arms(loop, (), ["b"], "test")

    given = {"arms": ["a", "b"], "mode": "apprentice"}
    started(given, remove)
    position, arms, _ = started(given)
    assert arms == ["a"]  # what a call removed does not come back
    again, _, _ = started(given)
    assert again <= position + 1  # a start writes no settings that are there already
    _, arms, settings = started({"arms": ["a", "b", "c"], "mode": "online"})
    assert arms == ["a", "c"]  # what is new in the file is added
    assert settings.mode == "online"  # although it is the default


def test_the_greeting_tells_a_newcomer_how_to_go_on(tmp_path):
    """What it says works: the first call finds the key."""
    server = Server(ServerSettings(data=str(tmp_path / "my data"), port=8123))

    async def main():
        await server.service.start()
        await server.prepare()
        text = server.greeting()
        await server.service.stop()
        return text

    text = asyncio.run(main())
    server.store.close()
    assert "Serving decisions on http://127.0.0.1:8123\n" in text
    assert "http://127.0.0.1:8123/login?once=" in text
    assert "Ctrl-C" in text
    keys = tmp_path / "my data" / "keys.json"
    assert str(keys) in text
    first = next(line for line in text.splitlines() if "KEY=" in line)
    command = first.split(maxsplit=3)[3].replace(Path(sys.executable).name, sys.executable, 1)
    found = subprocess.run(["bash", "-c", f"{command}; echo $KEY"], capture_output=True, text=True)
    assert found.stdout.strip() == json.loads(keys.read_text())["default"]["decide"]
    assert '/v1/loops/default/decide -d \'{"arms":' in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--port", "x"], "port"),
        (["--host", "0.0.0.0"], "unencrypted"),
        (["--config", "nowhere.toml"], "No such file"),
        (["--data", "nowhere", "--backup", "copy"], "no log in nowhere"),
        (["--postgres", "postgresql://nobody@127.0.0.1:1/x"], "the log could not be"),
    ],
)
def test_bad_input_on_the_command_line(tmp_path, arguments, sentence):
    if "--postgres" in arguments:
        pytest.importorskip("psycopg")
    run = subprocess.run(
        [sys.executable, "-m", "tsucb", "serve", *arguments], cwd=tmp_path, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )  # fmt: skip
    assert run.returncode == 2
    assert sentence in run.stderr
    assert "Traceback" not in run.stderr


def test_a_port_in_use_is_one_sentence_and_writes_no_keys(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = Server(read_settings(None, {}, {"data": str(tmp_path), "port": port}), demo=False)
        with pytest.raises(ValueError, match=f"cannot listen on http://127.0.0.1:{port}: Address"):
            server.run()
    assert not (tmp_path / "keys.json").exists()
