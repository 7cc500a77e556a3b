"""The documentation runs, its links lead somewhere, and its tables are those of the results."""

import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import FunctionType, ModuleType

import pytest
from typer.testing import CliRunner

import tsucb
from tsucb.cli.commands import application

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
BLOCK = re.compile(r"^ *```(\w+)[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)|(?:src|srcset|href)=\"([^\"]+)\"")
SHELL = ("sh", "bash", "console", "shell")

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path, *languages: str) -> list[str]:
    """Return the code of a page in these languages."""
    return [code for language, code in BLOCK.findall(page.read_text()) if language in languages]


def load(path: Path) -> ModuleType:
    """Return a script of the documentation, as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TABLES, HOOKS, OUTPUTS = (load(DOCS / f"{name}.py") for name in ("tables", "hooks", "outputs"))


@every_page
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page run one after another and print what the page says they print."""
    if page.name == "extending.md":
        pytest.skip("its blocks are the files of a package, which test_extending runs")
    if page.name in ("service.md", "personalizer.md"):
        pytest.skip("its blocks need a service, which tests/service/test_pages_run starts")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    assert OUTPUTS.run_page(page) == page.read_text(), "outputs changed: run docs/outputs.py"
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.parametrize("path", OUTPUTS.NOTEBOOKS, ids=lambda path: path.name)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell prints what the notebook shows."""
    monkeypatch.chdir(tmp_path)
    assert OUTPUTS.run_notebook(path) == path.read_text(), "outputs changed: run docs/outputs.py"


EXTRAS = {
    r"^\s*(?:import|from) (?:pandas|pyarrow)": "tables",
    r"\.(?:summary|arms_summary|coefficients|table|pairs|report)\(|\blog=": "tables",
    r"^\s*(?:import|from) matplotlib|\.plot\(": "plots",
    r"^\s*(?:import|from) sklearn": "sklearn",
    r"^\s*(?:import|from) (?:jax|optax)": "deep",
}


@every_page
def test_pages_name_the_extras_that_their_code_needs(page: Path) -> None:
    code = "\n".join(blocks(page, "python"))
    named = {name for group in re.findall(r"tsucb\[([\w,]+)\]", page.read_text())
             for name in group.split(",")}  # fmt: skip
    whole = {"tables", "plots"} if named & {"cli", "serve", "paper"} else set()
    for pattern, extra in EXTRAS.items():
        if re.search(pattern, code, re.MULTILINE):
            assert extra in named | whole or "all" in named, extra


@every_page
def test_every_block_is_checked(page: Path) -> None:
    """No block escapes by its language: Python runs, commands parse, output is labelled as text."""
    known = {"python", "text", "pycon", *SHELL}
    assert {language for language, _ in BLOCK.findall(page.read_text())} <= known


@every_page
def test_commands_exist(page: Path) -> None:
    """Each command in a shell block is one that this repository has, with options it knows."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for code in blocks(page, *SHELL):
        for line in code.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            while words and "=" in words[0]:  # a variable set for one command
                words = words[1:]
            if not words:
                continue
            if words[0] == "tsucb":
                done = CliRunner().invoke(application(words[1:]), [*words[1:], "--help"])
                assert done.exit_code == 0, f"{line}: {done.output}"
            elif words[0] == "make":
                assert set(words[1:]) <= targets, line
            elif words[0] == "python" and words[1] != "-m":
                assert (ROOT / words[1]).is_file(), line
            else:
                assert words[0] in (
                    "pip",
                    "python",
                    "git",
                    "cd",
                    "dask",
                    "ssh",
                    "export",
                    "curl",
                ), line


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings that a page links to exist; other addresses are at least secure."""
    for groups in LINK.findall(re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.M | re.S)):
        target = groups[0] or groups[1]
        if "://" in target:
            assert target.startswith("https://"), target
            continue
        path, _, anchor = target.partition("#")
        goal = (page.parent / path).resolve() if path else page
        assert goal.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(goal), f"{path or page.name} has no heading #{anchor}"


@every_page
def test_files_named_exist(page: Path) -> None:
    """A file or folder of the repository that a page speaks of is there."""
    named = re.findall(r"`((?:src/)?tsucb/[\w/]+(?:\.py)?)`", page.read_text())
    missing = [name for name in named if not (ROOT / "src" / name.removeprefix("src/")).exists()]
    assert not missing


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings and of its generated reference entries."""
    text = page.read_text()
    names = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)
    names += re.findall(r"^- \[`(?:\w+\.)*(\w+)`\]", text, re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", n).strip().lower()) for n in names}


@every_page
def test_figures_come_in_light_and_dark(page: Path) -> None:
    """A picture appears once, as an element that GitHub and the site both show in two colours."""
    text = page.read_text()
    assert not re.search(r"!\[[^\]]*\]\([^)]*-(light|dark)\.svg\)", text)
    for name in re.findall(r'src="([^"]+)-light\.svg"', text):
        assert f'srcset="{name}-dark.svg"' in text, name


def test_every_picture_has_a_script() -> None:
    """A picture in the folder of figures is named by a script beside it or by a benchmark."""
    paths = [*(DOCS / "figures").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    scripts = "".join(path.read_text() for path in paths)
    pictures = (DOCS / "figures").glob("*.svg")
    names = {re.sub(r"(-narrow)?-(light|dark)$", "", path.stem) for path in pictures}
    named = {name for name in names if re.search(rf'def {name}\(|"{name}["-]', scripts)}
    assert names == named


@every_page
def test_tables_are_those_of_the_results(page: Path) -> None:
    """`python docs/tables.py` would change nothing."""
    assert TABLES.fill(page.read_text(), page) == page.read_text()


def test_every_public_name_is_in_the_reference() -> None:
    listed = {
        name
        for page in (DOCS / "reference").glob("*.md")
        for name in re.findall(r"^- \[`tsucb\.(\w+)`\]", page.read_text(), re.MULTILINE)
    }
    unions = {"Belief"}  # another name for three classes that are listed
    assert set(tsucb.__all__) - unions <= listed


@pytest.mark.parametrize("name", sorted(set(tsucb.__all__) - {"Belief"}))
def test_every_public_name_has_an_example(name: str) -> None:
    """The example is run as a doctest with all others."""
    documentation = getattr(tsucb, name).__doc__ or ""
    abstract = name in ("Environment", "Model", "Policy")
    assert abstract or ">>> " in documentation


@pytest.mark.parametrize("name", sorted(set(tsucb.__all__) - {"Belief"}))
def test_the_reference_can_be_written(name: str) -> None:
    text = HOOKS.document(f"tsucb.{name}")
    assert text.startswith(f"## {name}\n")
    assert not re.search("itemgetter|Annotated|functools|<function|see the top", text)
    assert "Parameters\n---" not in text


def test_spelling() -> None:
    """codespell knows common misspellings; British and American words are both right."""
    pytest.importorskip("codespell_lib")
    texts = [str(page) for page in PAGES] + [str(p) for p in sorted((ROOT / "src").rglob("*.py"))]
    command = [sys.executable, "-m", "codespell_lib", "--ignore-words-list", "ue,nd,ot", *texts]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stdout


def exported_classes() -> dict[str, type]:
    """Return the classes that users import from the package or from its agent."""
    found = {name: getattr(tsucb, name) for name in tsucb.__all__}
    found |= {f"agent.{name}": getattr(tsucb.agent, name) for name in tsucb.agent.__all__}
    return {name: thing for name, thing in found.items() if isinstance(thing, type)}


def public_methods(cls: type) -> list[tuple[type, str]]:
    """Return the public methods and properties of a class, each with our class that defines it."""
    ours = [base for base in cls.__mro__ if base.__module__.split(".")[0] == "tsucb"]
    found: dict[str, type] = {}
    for base in reversed(ours):
        for name in vars(base):
            found.setdefault(name, base)
    kinds = (FunctionType, property, classmethod, staticmethod)
    return [
        (owner, name) for name, owner in found.items()
        if isinstance(vars(owner)[name], kinds) and not name.startswith(("_", "check_"))
        and not HOOKS.is_setting(vars(owner)[name])
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(exported_classes()))
def test_the_reference_has_every_public_method(name: str) -> None:
    text = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
    entries = [HOOKS.find(name) for name in HOOKS.marked(text)]
    cls = exported_classes()[name]
    assert cls in entries, f"{name} is in no page of the reference"
    shown = {*HOOKS.owners(cls), *(entry for entry in entries if isinstance(entry, type))}
    for owner, method in public_methods(cls):
        assert HOOKS.documented(owner, method), f"{owner.__name__}.{method} has no docstring"
        assert owner in shown, f"{owner.__name__}.{method} is in no page of the reference"


def test_every_method_of_the_agent_has_an_example() -> None:
    for name, value in vars(tsucb.Agent).items():
        if not name.startswith("_") and not isinstance(value, property):
            assert ">>>" in (inspect.getdoc(value) or ""), name
