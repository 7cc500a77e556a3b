"""Personalizer's protocol, spoken by its own Node clients; `make node-clients` installs them."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.service.conftest import PATIENCE
from tests.service.serving import served
from tests.service.test_personalizer import SETTINGS, total

HERE = Path(__file__).parent / "node"
IDS = ["plain", "a/b c", "münchen/straße ñ", "50%+1?x=1#y", "日本"]


def modules() -> Path:
    """Where the packages are installed."""
    return Path(os.environ.get("TSUCB_NODE_MODULES", HERE / "node_modules"))


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_both_node_clients(tmp_path, clock, scheme, request):
    if shutil.which("node") is None:
        pytest.skip("there is no node")
    if not (modules() / "@azure-rest" / "ai-personalizer").is_dir():
        pytest.skip("the Node clients are not installed; run make node-clients")
    tls = request.getfixturevalue("certificate") if scheme == "https" else None
    with served(tmp_path / "data", clock, tls=tls, **SETTINGS) as drinks:
        environment = {**os.environ, "NODE_PATH": str(modules())}
        if tls:
            environment["NODE_EXTRA_CA_CERTS"] = tls[0]
        run = subprocess.run(
            ["node", HERE / "clients.js", drinks.url, drinks.keys["administer"]],
            env=environment, capture_output=True, text=True, timeout=PATIENCE,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        found = json.loads(run.stdout)
        former, current = found["former"], found["current"]
        assert [each["id"] for each in former["found"]] == [f"old {id}" for id in IDS]
        assert former["refused"] == 404
        for each in former["found"]:
            chances = {action["id"]: action["probability"] for action in each["ranking"]}
            assert chances["juice"] == 0
            assert sum(chances.values()) == pytest.approx(1)
        assert current["unexpected"] == []
        assert [each["id"] for each in current["found"]] == [f"new {id}" for id in IDS]
        assert [slot["id"] for slot in current["slots"]] == ["top", "side"]
        assert (current["exploration"], current["policy"]) == (0.3, "TS-UCB(1)")
        assert current["flat"] == ["403", "OperationNotAllowed"]
        assert current["late"] == ["404", "ResourceNotFound"]
        assert drinks.loop.counts.rewards == 2 * len(IDS) + 2
        assert total(drinks) == 0.0  # the last thing it does is to reset the model
