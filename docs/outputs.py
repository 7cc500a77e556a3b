"""Run the code of the documentation and write down what it prints: `python docs/outputs.py`.

A block of text right after `<!-- output -->` is what the Python block above it prints; a notebook
keeps the output of every cell. A test checks that both are what the code prints now.
"""

import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
CODE = r"^ *```python[^\n]*\n(?P<code>.*?)^ *```\n"
OUTPUT = r"\n<!-- output -->\n```text\n(?P<output>.*?)```\n"
BLOCK = re.compile(f"{CODE}(?:{OUTPUT})?", re.MULTILINE | re.DOTALL)


def run(code: str, name: str, names: dict[str, Any]) -> str:
    """Run code in a namespace and return what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()


def run_page(page: Path) -> str:
    """Run all Python blocks of a page, in order; return its text with their outputs."""
    names: dict[str, Any] = {"__name__": "page"}

    def replaced(block: re.Match[str]) -> str:
        printed = run(block["code"], str(page), names)
        if block["output"] is None:
            return block[0]
        start, end = block.start("output") - block.start(), block.end("output") - block.start()
        return block[0][:start] + printed + block[0][end:]

    return BLOCK.sub(replaced, page.read_text())


def run_notebook(path: Path) -> str:
    """Run all cells of a notebook, in order; return its text with their outputs."""
    notebook = json.loads(path.read_text())
    names: dict[str, Any] = {"__name__": "notebook"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            printed = run("".join(cell["source"]), path.name, names)
            lines = printed.splitlines(keepends=True)
            stream = {"name": "stdout", "output_type": "stream", "text": lines}
            cell["outputs"] = [stream] if lines else []
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    os.environ["MPLBACKEND"] = "agg"
    pages = [DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))]
    texts = {page: run_page for page in pages if "<!-- output -->" in page.read_text()}
    for path, run_it in (texts | dict.fromkeys(NOTEBOOKS, run_notebook)).items():
        with contextlib.chdir(tempfile.mkdtemp()):
            text = run_it(path.resolve())
        path.write_text(text)
        print(path.name, file=sys.stderr)
