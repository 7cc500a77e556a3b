"""Write the reference pages from docstrings, when mkdocs builds the site.

A line `::: tsucb.TSUCB` in a page, or the line that `docs/tables.py` makes of it, is replaced by
the signature, the docstring and the public methods of that name. Methods can be named, too.
"""

import inspect
import re
import sys
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any, get_origin

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from interfaces import ELSEWHERE, ENTRY, find, source_link  # noqa: E402

import tsucb  # noqa: E402

PICTURE = re.compile(
    r'<picture>\s*<source[^>]*>\s*<img alt="([^"]*)" src="(\S+)-light\.svg"[^>]*>\s*</picture>'
)
PARAMETERS = re.compile(r"^Parameters\n-+\n((?:\S.*\n(?: +.*\n|\n(?= ))*)+)", re.MULTILINE)
PARAMETER = re.compile(r"^(\S.*)\n((?: +.*\n|\n(?= ))*)", re.MULTILINE)
EXAMPLE = re.compile(r"^>>> .*(?:\n\S.*)*", re.MULTILINE)
SECTION = re.compile(r"^(\w+)\n-{3,}$", re.MULTILINE)
REFERENCE = re.compile(r"^Reference: ((?:.+\n?)+)", re.MULTILINE)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write out the reference entries and the pictures of a page, as mkdocs calls it."""
    folder = Path(page.file.abs_src_path).parent
    text = PICTURE.sub(lambda picture: images(folder, picture[2], picture[1]), markdown)
    return ENTRY.sub(lambda mark: document(mark["new"] or mark["old"]), text)


def on_config(config: Any) -> Any:
    """Name the version at the foot of every page."""
    config.copyright = f"tsucb {tsucb.__version__}"
    return config


def images(folder: Path, name: str, description: str) -> str:
    """Return a picture as Markdown images for light and dark pages, and for phones if it has them.

    GitHub follows the colours of the system; the site has a switch, so its style sheet selects.
    """
    kinds = {"wide": name, "narrow": f"{name}-narrow"}
    if not (folder / f"{name}-narrow-light.svg").exists():
        kinds = {"only": name}
    return "\n".join(
        f"![{description}]({path}-{colour}.svg){{.{kind}}}"
        for kind, path in kinds.items()
        for colour in ("light", "dark")
    )


def document(name: str) -> str:
    """The Markdown of a public name."""
    thing = find(name)
    short = name.rpartition(".")[2]
    parts = [f"## {short}", signature(name, thing), source_link(thing)]
    parts.append(prose(described(thing)))
    for owner in owners(thing) if inspect.isclass(thing) else ():
        for member, value in vars(owner).items():
            if documented(owner, member):
                call = value if inspect.isfunction(value) else None
                parts.append(f"### {short}.{member}")
                parts.append(signature(f"{short.lower()}.{member}", call) if call else "")
                parts.append(prose(inspect.getdoc(value) or ""))
    return "\n\n".join(part for part in parts if part)


def described(thing: Any) -> str:
    """Return the docstring, with that of the module where it sends the reader there."""
    text, found = ELSEWHERE.subn("", inspect.getdoc(thing) or "")
    return f"{text}\n\n{inspect.getdoc(inspect.getmodule(thing))}" if found else text


def marked(text: str) -> list[str]:
    """Return the names of all entries of a page of the reference."""
    return [mark["new"] or mark["old"] for mark in ENTRY.finditer(text)]


def owners(thing: type) -> list[type]:
    """Return the class, and those of its bases in this package that have no entry of their own."""
    pages = "\n".join(page.read_text() for page in Path(__file__).parent.glob("reference/*.md"))
    entries = [find(name) for name in marked(pages)]
    ours = [base for base in thing.__mro__[1:] if base.__module__.split(".")[0] == "tsucb"]
    return [thing, *(base for base in ours if base not in entries)]


def documented(owner: type, name: str) -> bool:
    """Whether a member of a class belongs on the page: public, described, and new in this class."""
    value = vars(owner)[name]
    is_call = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
    inherited = any(name in vars(base) for base in owner.__mro__[1:])
    internal = name.startswith(("_", "check_")) or is_setting(value)
    return is_call and bool(inspect.getdoc(value)) and not inherited and not internal


def is_setting(value: Any) -> bool:
    """Whether a member is a field of a record, which its parameters describe."""
    return isinstance(value, property) and isinstance(value.fget, itemgetter)


def signature(name: str, thing: Any) -> str:
    """A code block with the call, one parameter a line where it is long."""
    if isinstance(thing, classmethod | staticmethod):
        thing = thing.__func__
    try:
        call = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    hidden = ("self", "cls", "_cls")
    parameters = [p for p in call.parameters.values() if p.name not in hidden]
    texts, starred = [], False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            texts.append("*")
            starred = True
        if get_origin(parameter.annotation) is Annotated:  # with the check of a setting
            parameter = parameter.replace(annotation=parameter.annotation.__origin__)
        texts.append(plain(str(parameter)))
    result = call.return_annotation
    arrow = (
        ""
        if result in (inspect.Signature.empty, None) or inspect.isclass(thing)
        else " -> "
        + (plain(result if isinstance(result, str) else getattr(result, "__name__", str(result))))
    )
    line = f"{name}({', '.join(texts)}){arrow}"
    if len(line) > 76:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){arrow}"
    return f"```python\n{line}\n```"


def plain(annotation: str) -> str:
    """An annotation without module names and quotes, and without what array types are made of."""
    text = re.sub(r"(?:numpy\.)?(?:ndarray|NDArray)\[.*?(?:float|int)64\]+", "ndarray", annotation)
    if "_SupportsArray" in text or "Buffer" in text:  # ArrayLike, spelled out
        text = re.sub(r": .*?(?= =|$)", ": ArrayLike", text)
    text = re.sub(r"<(?:built-in )?(?:function|method) (\S+).*?>", r"\1", text)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", text).replace('"', "").replace("'", "")


def prose(docstring: str) -> str:
    """A docstring as Markdown: parameters as a list, examples as code, the reference last."""
    text = docstring + "\n"
    text = SECTION.sub(r"**\1**\n", PARAMETERS.sub(parameter_list, text))
    text = EXAMPLE.sub(lambda example: f"```pycon\n{example[0]}\n```", text)
    return REFERENCE.sub(lambda reference: f"*Reference:* {reference[1]}", text).strip()


def parameter_list(section: re.Match[str]) -> str:
    """The parameters of a docstring as a definition list."""
    items = [
        f"- **`{parameter[1].strip()}`**: {' '.join(parameter[2].split())}"
        for parameter in PARAMETER.finditer(section[1])
    ]
    return "\n".join(items) + "\n\n"
