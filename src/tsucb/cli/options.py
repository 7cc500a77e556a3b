"""Options that several commands have, groups of options as dataclasses, and bounds of memory."""

import inspect
import os
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

SeedOption = Annotated[int, typer.Option(help="Seed of all randomness.", min=0)]
AgentsOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="A TOML file with the settings of an agent; may repeat. An empty file is the agent's "
        "defaults.",
    ),
]
MissingOption = Annotated[
    str | None,
    typer.Option(help="What decisions without a reward earned; or drop them."),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the datasets, searched before $TSUCB_DATA and the user's cache folder.",
        show_default=False,
    ),
]


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Return a command in which every parameter that is a dataclass is replaced by its fields.

    Typer then reads each field as an option of its own, and the function gets them grouped.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    fields = {name: inspect.signature(group).parameters for name, group in groups.items()}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        types = get_type_hints(groups.get(name, function), include_extras=True)
        for each in fields.get(name, {name: parameter}).values():
            options.append(each.replace(kind=each.KEYWORD_ONLY, annotation=types[each.name]))

    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field: values.pop(field) for field in fields[name]})
        function(**values)

    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {option.name: option.annotation for option in options}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def split_list(text: str | None) -> tuple[str, ...] | None:
    """Return the parts of a comma-separated list; None of None.

    >>> split_list("TS, TS-UCB(1)")
    ('TS', 'TS-UCB(1)')
    """
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())


def machine_memory() -> float:
    """Return the bytes of memory of this machine; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):  # Windows
        return float("inf")


def check_memory(what: str, needed: float) -> None:
    """Raise ValueError if this machine cannot hold the bytes needed."""
    if needed > machine_memory():
        raise ValueError(
            f"{what} need about {needed / 2**30:,.0f} GiB of memory, and this machine has "
            f"{machine_memory() / 2**30:,.0f}; give smaller numbers"
        )
