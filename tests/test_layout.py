"""Imports go one way: what a module may build on is below it."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tsucb

PACKAGE = Path(tsucb.__file__).parent

# Each layer may import those above it in this list, and modules of its own part. Parts that share a
# line do not know of each other.
LAYERS = [
    ("files", "checks", "display", "extras"),
    ("record",),
    ("compiler",),
    ("numeric",),
    ("pages",),
    ("beliefs",),
    ("models", "policies"),
    ("environments", "contexts"),
    ("step",),
    ("simulation", "logs"),
    ("agent",),
    ("sets",),
    ("adapters", "testing", "evaluation"),
    ("paper", "service"),
    ("cli",),
    ("__main__",),
]
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


def modules() -> dict[str, Path]:
    """Return all modules of the package by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def imports(tree: ast.AST) -> Iterator[tuple[str, bool, bool]]:
    """Yield the package's modules that a source imports; if in a function, if for types only."""

    def visit(node: ast.AST, inside: bool, types: bool) -> Iterator[tuple[str, bool, bool]]:
        for child in ast.iter_child_nodes(node):
            deeper = inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            checking = types or (
                isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            )
            if isinstance(child, ast.Import):
                names = [alias.name for alias in child.names]
            elif isinstance(child, ast.ImportFrom) and not child.level:
                # `from tsucb.models import regressions` means a module, `… import Model` none.
                full = [f"{child.module}.{alias.name}" for alias in child.names]
                names = [name if name in MODULES else str(child.module) for name in full]
            else:
                names = []
            for name in names:
                if name.split(".")[0] == "tsucb":
                    yield name, inside, checking
            yield from visit(child, deeper, checking)

    return visit(tree, False, False)


def part(module: str) -> str:
    """Return the layer of a module: the first name below the package."""
    return module.split(".")[1] if "." in module else "tsucb"


EDGES = {module: set(imports(ast.parse(path.read_text()))) for module, path in MODULES.items()}


def test_every_part_has_its_layer() -> None:
    parts = {part(module) for module in MODULES} - {"tsucb"}
    assert parts == set(LEVEL)


def test_imports_go_one_way() -> None:
    wrong = []
    for module, found in EDGES.items():
        here = part(module)
        if here == "tsucb":
            continue
        for name, inside, types in found:
            there = part(name)
            allowed = there in (here, "tsucb") or LEVEL[there] < LEVEL[here]
            if not allowed and not types:
                wrong.append(f"{module} imports {name}{' in a function' if inside else ''}")
    assert not wrong, "\n".join(wrong)


def test_nobody_needs_what_is_for_tests() -> None:
    users = [m for m, found in EDGES.items() if any(part(name) == "testing" for name, *_ in found)]
    assert {part(module) for module in users} == {"testing"}


def test_the_library_does_not_import_the_whole_package() -> None:
    """`import tsucb` inside the library would be a cycle; the layers above may use it."""
    top = {"paper", "cli", "adapters", "service", "testing", "__main__"}
    wrong = [
        module
        for module, found in EDGES.items()
        if part(module) not in {*top, "tsucb"} and any(name == "tsucb" for name, _, _ in found)
    ]
    assert not wrong


def loaded(module: str) -> set[str]:
    """Return what a module imports when it is loaded, with the packages that modules are in."""
    names = {name for name, inside, types in EDGES[module] if not inside and not types}
    return {name for name in names if name in MODULES}


def test_no_cycles() -> None:
    """Following the imports of modules, packages' own `__init__` left out, never leads back."""
    done: set[str] = set()

    def visit(module: str, way: list[str]) -> None:
        assert module not in way, " → ".join([*way[way.index(module) :], module])
        if module not in done:
            for name in sorted(loaded(module)):
                if name != "tsucb":
                    visit(name, [*way, module])
            done.add(module)

    for module in MODULES:
        visit(module, [])


def test_no_import_in_a_function_of_what_is_loaded_anyway() -> None:
    """Imports in functions are for slow packages, not for modules that are loaded anyway."""
    out = subprocess_modules()
    wrong = [
        f"{module} imports {name}"
        for module, found in EDGES.items()
        for name, inside, types in sorted(found)
        if inside and not types and name in out and part(module) not in ("tsucb", "cli", "compiler")
    ]
    assert not wrong, "\n".join(wrong)


def subprocess_modules() -> set[str]:
    """Return the modules that a simulation loads, in a fresh process."""
    import subprocess

    code = (
        "import sys, tsucb; tsucb.simulate; "
        "print(*(m for m in sys.modules if m.split('.')[0] == 'tsucb'))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(out.stdout.split())


def test_the_agent_is_listed_but_not_loaded() -> None:
    assert {"Agent", "UnknownDecision"} <= set(dir(tsucb))
    assert set(tsucb.__all__) <= set(dir(tsucb))
    for name in tsucb.__all__:
        assert getattr(tsucb, name) is not None
    assert "tsucb.agent" not in subprocess_modules()
    with pytest.raises(AttributeError, match="has no attribute 'Nonsense'"):
        tsucb.Nonsense  # noqa: B018


def test_type_checkers_see_the_names_that_are_loaded_later() -> None:
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / "__init__.py").read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("tsucb."):
            for alias in node.names:
                home = importlib.import_module(str(node.module))
                assert getattr(tsucb, alias.name) is getattr(home, alias.name)
                found.add(alias.name)
    assert found == set(tsucb.__all__)


def private_numba(path: Path) -> list[str]:
    """Return the modules of Numba and llvmlite that a source imports and that are not public."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            top, _, rest = name.partition(".")
            public = not rest or rest.split(".")[0] in PUBLIC_NUMBA
            if top == "llvmlite" or (top == "numba" and not public):
                found.append(name)
    return found


# Names of `numba` that its manual documents.
PUBLIC_NUMBA = ("types", "typeof", "njit", "jit", "prange", "config", "extending", "__version__")


def test_private_numba_is_in_the_compiler_room_only() -> None:
    wrong = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if part(module) != "compiler"
        for name in private_numba(path)
    ]
    assert not wrong, "\n".join(wrong)
    assert private_numba(PACKAGE / "compiler" / "cache.py")  # the rule finds the imports that exist


def test_an_author_of_models_has_at_most_twelve_methods_to_override() -> None:
    source = (PACKAGE / "models" / "model.py").read_text()
    section = source.split("# --- methods that a model may override")[1].split("# --- ")[0]
    names = re.findall(r"    def (\w+)", section)
    assert 0 < len(names) <= 12
    table = source.split('"""')[1]
    assert all(re.search(rf"`Model\.{name}\b", table) for name in names)


def test_no_two_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for name, path in MODULES.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(name)
    assert not {name: places for name, places in homes.items() if len(places) > 1}
