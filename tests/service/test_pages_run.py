"""The code in the documentation of the service runs against one."""

import json
from pathlib import Path

import pytest

from tests.service.serving import LOOP, served
from tests.test_docs import DOCS, blocks


@pytest.mark.parametrize("page", ["how-to/service.md", "coming-from/personalizer.md"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_blocks_of_a_page_run(page, tmp_path: Path, clock, monkeypatch):
    if page == "coming-from/personalizer.md":
        pytest.importorskip("azure.ai.personalizer")
    monkeypatch.chdir(tmp_path)
    with served(tmp_path / "data", clock, model="HybridLinear") as found:
        (tmp_path / "tsucb-data").mkdir()
        (tmp_path / "tsucb-data" / "keys.json").write_text(json.dumps({"default": found.keys}))
        names: dict[str, object] = {}
        for code in blocks(DOCS / page, "python"):
            # The page speaks of the usual port and loop, and leaves files open as people do.
            code = code.replace("http://127.0.0.1:8000", found.url)
            code = code.replace('json.load(open("tsucb-data/keys.json"))',
                                'json.loads(Path("tsucb-data/keys.json").read_text())')  # fmt: skip
            if page == "how-to/service.md":
                code = code.replace(f'Client("{found.url}"', f'Client("{found.url}", loop="{LOOP}"')
            exec(compile("from pathlib import Path\n" + code, page, "exec"), names)
        assert found.loop.counts.rewards == 1
        if page == "coming-from/personalizer.md":
            names["client"]._client.close()  # type: ignore[attr-defined]
