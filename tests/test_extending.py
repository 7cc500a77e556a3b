"""The page "Extending": its code is a package, and keeps the contract from outside."""

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "how-to" / "extending.md"
BLOCK = re.compile(r"^```python\n# (\S+\.py)\n(.*?)^```", re.MULTILINE | re.DOTALL)

# Runs the page's script, and counts what Numba compiles meanwhile.
COUNTING = """
import runpy
from numba.core import event
from tsucb.simulation.loop import play

with event.install_recorder("numba:compile") as recorder:
    runpy.run_path("check.py")
for name in ("cache_hits", "cache_misses"):
    print(name, sum(getattr(play.stats, name).values()))
compiled = {e.data["dispatcher"].py_func.__qualname__ for _, e in recorder.buffer if e.is_start}
print("compiled:", *sorted(compiled))
"""


def run(folder: Path) -> str:
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", COUNTING],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])},
        capture_output=True,
        text=True,
    )
    assert out.returncode == 0, out.stderr
    return out.stdout


def test_the_page_is_a_package_that_keeps_the_contract_and_is_found_on_disk(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert len(blocks) == PAGE.read_text().count("```python")
    (tmp_path / "extras").mkdir()
    (tmp_path / "extras" / "__init__.py").touch()
    for name, code in blocks:
        with (tmp_path / name).open("a") as file:
            file.write(code)
    first = run(tmp_path)  # compiles, unless an earlier run of this test has
    assert "optimist" in first
    assert "Optimist chose" in first
    second = run(tmp_path)
    assert re.search(r"^cache_hits [1-9]", second, re.MULTILINE)
    assert "cache_misses 0\n" in second
    assert second.endswith("compiled:\n")
