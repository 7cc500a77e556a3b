"""Every number of a claim has one source: a file of results, quoted by a table or a figure."""

import re
import subprocess

import pytest

from tests.test_docs import DOCS, PAGES, ROOT, TABLES

# On these pages every number in the prose that carries a unit is filled from the results, or is the
# rounded entry of a table of the same page that is; but for this many, which may only become fewer.
CLAIMS = {
    "README.md": 0,
    "docs/index.md": 0,
    "docs/tutorials/practitioner.md": 0,
    "docs/tutorials/researcher.md": 0,
    "docs/appendix/speed.md": 0,
    "docs/appendix/defaults.md": 0,
    "docs/appendix/news.md": 0,
    "docs/appendix/paper.md": 2,  # averages that the paper's text states
    "docs/how-to/choosing.md": 0,
    "docs/how-to/sets.md": 0,
    "docs/how-to/arms.md": 3,
    "docs/how-to/cluster.md": 11,  # computed from the seconds of single tasks, which are not kept
    "docs/how-to/posteriors.md": 4,
    "docs/how-to/sparse.md": 3,
    "docs/explanation/how-it-works.md": 0,
}
# Settings of a measurement, which no measurement gives.
SETTINGS = {"95 %", "50 ms", "20 ms"}
NUMBER = r"\d[\d,]*(?:\.\d+)?"
CLAIM = re.compile(rf"(?<![\w.,])({NUMBER}) ?(%|per cent\b|µs|ms\b|times\b|s\b|seconds\b)")
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


@pytest.mark.parametrize("name", list(CLAIMS))
def test_every_number_has_a_source(name: str) -> None:
    page = (ROOT / name).read_text()
    text, known = CODE.sub(" ", TABLES.MARK.sub(" ", page)), filled(page)
    wrong = [
        f"{number} {unit}"
        for number, unit in CLAIM.findall(text)
        if f"{number} {unit}" not in SETTINGS and not has_source(number, known)
    ]
    assert len(wrong) <= CLAIMS[name], f"no file in docs/results has {', '.join(wrong)}"


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
