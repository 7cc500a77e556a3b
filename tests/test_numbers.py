"""Every number of a claim has one source: a file of results, quoted by a table or a figure."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.test_docs import DOCS, PAGES, ROOT, TABLES, every_page

# On every page each number in the prose that carries a unit is filled from the results, or is the
# rounded entry of a table of the same page that is; but for this many, which may only become fewer.
TYPED = {
    "docs/appendix/paper.md": 1,  # an average that the paper's text states
    "docs/appendix/reliability.md": 1,  # the limit of a test
    "docs/coming-from/personalizer.md": 2,  # what Azure's service and its clients do
    "docs/explanation/adaptive.md": 1,  # computed in the sentence
    "docs/explanation/default.md": 20,
    "docs/how-to/evaluation.md": 1,  # a setting
    "docs/how-to/service.md": 5,
    "docs/results/peers/peers.md": 9,  # what was not measured, written by the benchmark itself
}
# Tables of measurements that are typed, not filled; these may only become fewer, too.
TYPED_TABLES = {
    "docs/explanation/default.md": 5,
    "docs/how-to/fleets.md": 1,
    "docs/how-to/posteriors.md": 1,
    "docs/how-to/service.md": 2,
    "docs/results/peers/peers.md": 2,
}
# Settings of a measurement, which no measurement gives.
SETTINGS = {"95 %", "50 ms", "20 ms"}
NUMBER = r"\d[\d,]*(?:\.\d+)?"
CLAIM = re.compile(rf"(?<![\w.,])({NUMBER}) ?(%|per cent\b|µs|ms\b|times\b|s\b|seconds\b)")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
MEASURED = re.compile(r"[\s*±−-]*\d")  # a cell that begins with a number
CODE = re.compile(r"^ *```.*?^ *```|`[^`]*`|<code>.*?</code>|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def filled(text: str) -> set[float]:
    """Return all numbers that are filled into a page from the results."""
    blocks = [mark[0] for mark in TABLES.MARK.finditer(text)]
    return {
        float(number.replace(",", ""))
        for block in blocks
        for number in re.findall(NUMBER, block.partition("-->")[2])
    }


def has_source(text: str, known: set[float]) -> bool:
    """Return whether a number is among those known, to as many digits as it has."""
    digits = len(text.partition(".")[2])
    return any(round(number, digits) == float(text.replace(",", "")) for number in known)


@every_page
def test_every_number_has_a_source(page: Path) -> None:
    written = page.read_text()
    text, known = CODE.sub(" ", TABLES.MARK.sub(" ", written)), filled(written)
    wrong = [
        f"{number} {unit}"
        for number, unit in CLAIM.findall(text)
        if f"{number} {unit}" not in SETTINGS and not has_source(number, known)
    ]
    allowed = TYPED.get(str(page.relative_to(ROOT)), 0)
    assert len(wrong) <= allowed, f"no file in docs/results has {', '.join(wrong)}"


@every_page
def test_every_table_of_measurements_has_a_source(page: Path) -> None:
    text = CODE.sub(" ", TABLES.MARK.sub(" ", page.read_text()))
    typed = []
    for table in TABLE.findall(text):
        head, _, *rows = table.splitlines()
        cells = [cell for row in rows for cell in row.strip("|").split("|")[1:]]
        if sum(bool(MEASURED.match(cell)) for cell in cells) > len(cells) / 2:
            typed.append(head)
    allowed = TYPED_TABLES.get(str(page.relative_to(ROOT)), 0)
    assert len(typed) <= allowed, f"no file in docs/results has {typed}"


def test_a_number_without_a_source_is_found() -> None:
    assert CLAIM.findall("it is 3.6 times faster, 17.5 µs, and 12 % better") == [
        ("3.6", "times"), ("17.5", "µs"), ("12", "%"),
    ]  # fmt: skip
    assert has_source("93", {92.96})
    assert not has_source("93.1", {92.96})


def test_every_mark_is_known_and_closed() -> None:
    for page in PAGES:
        text = page.read_text()
        opened = re.findall(r"<!-- (?:table|figure): (\S+) -->", text)
        assert len(opened) == text.count("<!-- end -->"), page.name
        assert set(opened) <= {*TABLES.TABLES, *TABLES.FIGURES}, page.name


def test_every_results_file_is_used() -> None:
    scripts = "".join(path.read_text() for path in DOCS.rglob("*.py"))
    pages = "".join(page.read_text() for page in PAGES)
    for path in (DOCS / "results").rglob("*.csv"):
        assert path.name in scripts + pages or path.parent.name in scripts, path.name


def test_commits_that_results_name_exist() -> None:
    found = set()
    for path in (DOCS / "results").glob("*.csv"):
        table = TABLES.pd.read_csv(path, dtype=str)
        found |= set(table["commit"]) if "commit" in table else set()
    assert found
    inside = subprocess.run(["git", "rev-parse", "--is-shallow-repository"],
                            cwd=ROOT, capture_output=True, text=True)  # fmt: skip
    if inside.stdout.strip() != "false":
        pytest.skip("this is no whole clone, so that old commits are not there")
    for commit in found:
        command = ["git", "cat-file", "-e", f"{commit}^{{commit}}"]
        assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0, commit


def test_claims_are_no_wider_than_their_tables() -> None:
    """Phrases that a table once contradicted, and which must not come back."""
    wide = ["no extra cost", "at no additional cost", "all of it over HTTP", "over 14 problems",
            "Every model works with every policy, in the simulator"]  # fmt: skip
    texts = {page: page.read_text() for page in [*PAGES, ROOT / "pyproject.toml"]}
    texts |= {path: path.read_text() for path in (ROOT / "src").rglob("*.py")}
    wrong = [
        f"{path.name}: {phrase}"
        for path, text in texts.items()
        for phrase in wide
        if phrase in text
    ]
    assert not wrong
