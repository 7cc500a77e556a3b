"""Describe the command line, the HTTP API and the public names, for the pages of the reference."""

import importlib
import inspect
import json
import os
import re
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import typer

import tsucb
from benchmarks.output import markdown_table
from tsucb.cli.commands import COMMANDS, application
from tsucb.service import openapi

DOCS = Path(__file__).parent
ROOT = DOCS.parent
SOURCE = f"https://github.com/tsucb/tsucb/blob/v{tsucb.__version__}"
# An entry of the reference: as it is written by hand, or as the fill of the pages leaves it, which
# can be read where the pages are not built.
ENTRY = re.compile(r"^(?:::: (?P<new>\S+)|- \[`(?P<old>tsucb[\w.]*)`\]\(\S+\).*)$", re.MULTILINE)

EMPTY = (None, "", [], {}, ())  # defaults that say nothing

# A docstring that sends the reader of the source to that of the module.
ELSEWHERE = re.compile(r"; see the top of this (?:file|module)")


def find(name: str) -> Any:
    """Return the object of a dotted name, which may be inside a class or a module."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise ModuleNotFoundError(f"there is no {name} to document")


def place(thing: Any) -> tuple[Path, int]:
    """Return the file, relative to the repository, and the line of an object's definition."""
    target = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    target = inspect.unwrap(target)  # a decorated function is where it was written
    path = Path(inspect.getsourcefile(target) or "").resolve().relative_to(ROOT.resolve())
    return path, inspect.getsourcelines(target)[1]


def source_link(thing: Any) -> str:
    """Return a link to an object's definition in the repository; nothing for a union of classes."""
    try:
        path, line = place(thing)
    except (TypeError, OSError, ValueError):
        return ""
    return f"[source]({SOURCE}/{path}#L{line})"


def entry(name: str, page: Path) -> str:
    """Return a line with a link to the definition and the first line of the docstring."""
    thing = find(name)
    try:
        path = place(thing)[0]
    except (TypeError, OSError, ValueError):  # a union of classes
        path = Path("src") / "tsucb" / name.split(".")[1] / "__init__.py"
        path = path if (ROOT / path).exists() else Path("src/tsucb/beliefs/__init__.py")
    summary = ELSEWHERE.sub("", (inspect.getdoc(thing) or "").partition("\n")[0])
    return f"- [`{name}`]({os.path.relpath(ROOT / path, page.parent)}): {summary}"


def fill_entries(text: str, page: Path) -> str:
    """Return a page of the reference with its entries written again from the docstrings."""
    return ENTRY.sub(lambda mark: entry(mark["new"] or mark["old"], page), text)


def command_line() -> str:
    """Return every command with its arguments, options and their defaults."""
    parts = []
    for name in COMMANDS:
        command: Any = typer.main.get_command(application([name]))
        command = command.commands[name]
        parts.append(described(f"tsucb {name}", command))
        for below, inner in getattr(command, "commands", {}).items():
            parts.append(described(f"tsucb {name} {below}", inner, "###"))
    return "\n".join(parts)


def described(name: str, command: Any, heading: str = "##") -> str:
    """Return the section of a command."""
    rows = []
    for each in command.params:
        if each.name == "help":
            continue
        names = [f"`{option}`" for option in [*each.opts, *each.secondary_opts]]
        default = each.default.value if isinstance(each.default, Enum) else each.default
        shown = default is not False and default not in EMPTY and not callable(default)
        meaning = " ".join((getattr(each, "help", "") or "").replace("|", "\\|").split())
        rows.append([", ".join(names), f"`{default}`" if shown else "", meaning])
    table = markdown_table(["option", "default", "meaning"], rows, 3) if rows else ""
    return f"{heading} {name}\n\n{' '.join((command.help or '').split())}\n\n{table}"


def http_api() -> str:
    """Return every operation of the native protocol, and the fields of bodies and answers."""
    document = openapi.document()
    rows = [
        [method.upper(), f"`{path}`", each["summary"], each["x-key"], taken(each), answer(each)]
        for path, methods in document["paths"].items()
        for method, each in methods.items()
    ]
    parts = [markdown_table(["", "path", "", "key", "takes", "answer"], rows, 6)]
    schemas = document["components"]["schemas"]
    for name, schema in sorted(schemas.items()):
        if lines := [[f"`{field}`", *others] for field, *others in openapi.fields(schema)]:
            about = schema.get("description", "")
            table = markdown_table(["field", "type", "required", ""], lines, 4)
            parts.append(f"### {name}\n\n{about}\n\n{table}")
    names = "|".join(schemas)
    link = partial(
        re.sub, rf"(?<!# )\b({names})\b", lambda name: f"[{name[0]}](#{name[0].lower()})"
    )
    return link("\n".join(parts))


def taken(operation: dict[str, Any]) -> str:
    """Return the type of an operation's body, and the parameters of its query."""
    content = operation.get("requestBody", {}).get("content", {})
    parts = [openapi.kind(each["schema"]) for each in content.values()]
    for each in operation["parameters"]:
        if each["in"] == "query":
            default = json.dumps(each["schema"]["default"])
            parts.append(f"`?{each['name']}={default}`: {openapi.kind(each['schema'])}")
    return "; ".join(parts)


def answer(operation: dict[str, Any]) -> str:
    """Return the status and, where it is declared, the type of an operation's answer."""
    status, done = next(iter(operation["responses"].items()))
    kinds = [
        openapi.kind(about["schema"]) if "schema" in about else name
        for name, about in done.get("content", {}).items()
    ]
    return " ".join([status, *(each for each in kinds if each != "any")])
