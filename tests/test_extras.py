"""The lean installation: what it needs, and what it says where an extra is missing."""

import ast
import io
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tsucb
from tsucb.compiler.notice import FUNCTION, PASS, Notice

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SOURCES = sorted((ROOT / "src" / "tsucb").rglob("*.py"))
# Packages whose own `__init__` requires the extra once for all of their modules.
WHOLE = {"paper": "paper", "service": "serve", "cli": "cli"}


def distributions(requirements: list[str]) -> set[str]:
    """Return the names of the distributions that requirements bring, those of extras included."""
    found: set[str] = set()
    for requirement in requirements:
        name, _, extras = re.match(r"([\w.-]+)(\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
        if name == "tsucb":
            for extra in extras.split(","):
                found |= distributions(PROJECT["optional-dependencies"][extra])
        else:
            found.add(normal(name))
    return found


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


OWNERS = {  # of every module that is installed, the distributions that bring it
    module: {normal(name) for name in names} for module, names in packages_distributions().items()
}
CORE = distributions(PROJECT["dependencies"])
EXTRAS = {name: distributions(lines) for name, lines in PROJECT["optional-dependencies"].items()}


def is_optional(module: str) -> bool:
    """Return whether a module comes with an extra only."""
    return bool(OWNERS.get(module.partition(".")[0], set()) & (EXTRAS["all"] - CORE))


def required(tree: ast.AST) -> list[tuple[str, str, int]]:
    """Return extra, module and line of every `require(…)` in a source."""
    return [
        (ast.literal_eval(node.args[0]), ast.literal_eval(module), node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "require"
        for module in node.args[1:]
    ]


def imported(tree: ast.AST) -> list[tuple[str, int]]:
    """Return the modules that a source imports, but for types, with their lines."""
    found: list[tuple[str, int]] = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.module, node.lineno))
        found += imported(node)
    return found


def test_optional_modules_are_required_before_they_are_imported() -> None:
    wrong = []
    for path in SOURCES:
        part = path.relative_to(ROOT / "src" / "tsucb").parts[0]
        if part in ("adapters", *WHOLE):  # an adapter is for those who have its library
            continue
        tree = ast.parse(path.read_text())
        known = required(tree)
        for module, line in imported(tree):
            package = module.partition(".")[0]
            before = any(name == package and at < line for _, name, at in known)
            if is_optional(module) and not before:
                wrong.append(f"{path.name}:{line} imports {module}")
    assert not wrong, "\n".join(wrong)


def test_the_extra_that_is_named_brings_the_module() -> None:
    for path in SOURCES:
        for extra, module, _ in required(ast.parse(path.read_text())):
            assert OWNERS.get(module, EXTRAS[extra]) & EXTRAS[extra], (
                f"{path.name}: {extra} does not bring {module}"
            )


def test_whole_packages_require_what_their_modules_import() -> None:
    for part, extra in WHOLE.items():
        for path in sorted((ROOT / "src" / "tsucb" / part).rglob("*.py")):
            tree = ast.parse(path.read_text())
            for module, line in imported(tree):
                if is_optional(module):
                    names = OWNERS[module.partition(".")[0]]
                    own = {e for e, name, at in required(tree) if at < line}
                    assert any(names & EXTRAS[e] for e in {extra, *own, "postgres"}), (
                        f"{path.name}:{line} imports {module}, which {extra} does not bring"
                    )


def run_without(*modules: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which these modules are not installed."""
    hidden = f"import sys; sys.modules.update(dict.fromkeys({modules!r}))\n"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", hidden + code], capture_output=True, text=True
    )


def test_deciding_and_simulating_need_no_extra() -> None:
    done = run_without(
        "pandas", "pyarrow", "matplotlib", "typer", "rich", "sklearn", "jax", "msgspec",
        code="""if True:
        import tsucb
        agent = tsucb.Agent(["a", "b"], seed=0)
        for _ in range(5):
            decision = agent.choose({"age": 3, "city": "Rome"})
            agent.reward(decision.id, 1.0)
        print(decision.explain())
        bandit = tsucb.KArmedBandit(3)
        model = tsucb.GaussianArms()
        print(tsucb.simulate(bandit, model, [tsucb.TSUCB(1)], horizon=20, runs=2))
        for call in (agent.arms_summary, agent.coefficients):
            try:
                call()
            except ModuleNotFoundError as error:
                print(error)
        """,
    )  # fmt: skip
    assert not done.stderr
    assert "chosen" in done.stdout
    assert "Regret of 2 runs after 20 steps" in done.stdout
    sentence = "this needs pandas; install it with: pip install 'tsucb[tables]'\n"
    assert done.stdout.count(sentence) == 2


def test_the_command_line_says_what_it_needs() -> None:
    done = run_without("typer", code="from tsucb.cli import main; main()")
    assert done.returncode == 2
    assert done.stderr == "tsucb: this needs typer; install it with: pip install 'tsucb[cli]'\n"


def test_settings_and_results_are_tables_in_a_notebook() -> None:
    html = tsucb.TSUCB(10)._repr_html_()
    assert "<caption" in html
    assert ">samples</td>" in html
    assert ">10</td>" in html
    assert "<td" in tsucb.Thompson()._repr_html_()
    regret = np.array([[[4.0], [6.0]], [[2.0], [3.0]]])
    result = tsucb.Simulation(("TS", "<b>"), (0, 1), np.array([100]), regret)
    assert "Regret of 2 runs after 100 steps" in result._repr_html_()
    assert "&lt;b&gt;" in result._repr_html_()
    assert str(result).splitlines()[2].split()[:2] == ["TS", "5.0"]


def test_public_names_only() -> None:
    assert dir(tsucb) == sorted([*tsucb.__all__, "__version__"])


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(("seconds", "silent"), [(0.4, True), (0.6, False)])
def test_a_compilation_of_more_than_a_second_is_announced_once(
    seconds: float, silent: bool
) -> None:
    stream, clock = io.StringIO(), Clock()
    notice = Notice(stream, clock)
    function, step = (SimpleNamespace(kind=kind) for kind in (FUNCTION, PASS))
    for _ in range(3):  # functions one after the other, each with one inside it
        notice.on_start(function)
        clock.now += seconds / 2
        for inner in (function, step):
            notice.on_start(inner)
            notice.on_end(inner)
        clock.now += seconds / 2 if not silent else 0.0
        notice.on_end(function)
    text = stream.getvalue()
    assert (text == "") is silent
    assert text.count("tsucb compiles for this machine") == (not silent)
    if not silent:
        assert text.endswith("\r\033[K")
        assert "6 functions" in text
