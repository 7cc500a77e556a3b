"""What is published: the archives, their metadata, the workflows, and one version everywhere."""

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import tsucb

ROOT = Path(__file__).parents[1]
URL = "https://github.com/tsucb/tsucb"


def needs(*modules: str) -> None:
    """Skip the test if one of its tools is missing."""
    for module in modules:
        pytest.importorskip(module, reason=f"a tool of tsucb[test]: pip install {module}")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    needs("build", "twine", "hatchling", "hatch_fancy_pypi_readme")
    out = tmp_path_factory.mktemp("dist")
    run("build", "--no-isolation", "--outdir", str(out), str(ROOT))
    return sorted(out.iterdir())


def run(module: str, *arguments: str) -> None:
    """Run a module as a command; fail with what it printed."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_index_takes_the_archives(archives: list[Path]) -> None:
    run("twine", "check", "--strict", *map(str, archives))


def test_archives_hold_the_package_and_nothing_else(archives: list[Path]) -> None:
    wheel, source = sorted(archives, key=lambda path: path.suffix != ".whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"tsucb"}
    assert "tsucb/py.typed" in names
    assert "tsucb/pages/style.css" in names
    with tarfile.open(source) as archive:
        parts = {name.split("/")[1] for name in archive.getnames()}
    assert parts == {"src", "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE",
                     "pyproject.toml", "PKG-INFO", ".gitignore"}  # fmt: skip


def test_links_and_pictures_of_the_description_are_absolute(archives: list[Path]) -> None:
    wheel = next(path for path in archives if path.suffix == ".whl")
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    text = metadata.get_payload()
    assert isinstance(text, str)
    targets = re.findall(r"\]\(([^)]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    assert len(targets) > 20
    for target in (link or picture for link, picture in targets):
        assert target.startswith("https://"), target
        if target.startswith(f"{URL}/blob/"):
            path = target.removeprefix(f"{URL}/blob/v{tsucb.__version__}/").partition("#")[0]
            assert (ROOT / path).exists(), target
    assert "pip install tsucb" in text
    assert metadata["Version"] == tsucb.__version__


def test_one_version() -> None:
    """The version is written in the package; files that tools cannot compute agree with it."""
    assert "version" in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dynamic"]
    assert f"version: {tsucb.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f'version = "{tsucb.__version__}"' in (ROOT / "conda" / "meta.yaml").read_text()


def test_the_conda_recipe_has_the_dependencies_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    run_part = recipe.partition("  run:\n")[2].partition("  run_constrained:")[0]
    found = set(re.findall(r"- (\S+) >=(\S+)", run_part)) - {("python", "3.11")}
    assert found == {tuple(line.split(">=")) for line in project["dependencies"]}


def test_workflows_are_valid() -> None:
    needs("check_jsonschema")
    files = [str(path) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    assert files
    run("check_jsonschema", "--builtin-schema", "vendor.github-workflows", *files)
    forms = [str(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml") for name in ("bug", "idea")]
    run("check_jsonschema", "--builtin-schema", "vendor.github-issue-forms", *forms)


def test_the_matrix_has_the_versions_of_the_classifiers() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {c.rpartition(" ")[2] for c in project["classifiers"] if re.search(r":: 3\.\d", c)}
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text()
    tested = re.search(r"python: \[(.*)\]", workflow)
    assert tested
    assert set(re.findall(r"3\.\d+", tested[1])) == named


def test_no_tool_of_the_tests_is_forgotten() -> None:
    """Where the test extra is installed, nothing above is skipped."""
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for tool in ("build", "twine", "hatchling", "hatch-fancy-pypi-readme", "check-jsonschema"):
        assert any(line.startswith(tool) for line in extra["test"]), tool
