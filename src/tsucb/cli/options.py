"""Options that several commands share, and groups of options as dataclasses."""

import inspect
from collections.abc import Callable
from dataclasses import field, fields, is_dataclass
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


def option(default: Any, help: str, *names: str, **more: Any) -> Any:
    """Return a field of a group of options; `names` and `more` are those of `typer.Option`."""
    return field(default=default, metadata={"option": typer.Option(*names, help=help, **more)})


def grouped(function: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the fields of its dataclass parameters as options of their own.

    Typer reads the options from the signature; the function gets them as dataclasses.
    """
    hints = get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    options: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in groups:
            options.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        for each in fields(groups[name]):
            kind, annotation = parameter.KEYWORD_ONLY, types[each.name]
            if each.metadata:
                annotation = Annotated[annotation, each.metadata["option"]]
            own = {"name": each.name, "default": each.default, "annotation": annotation}
            options.append(parameter.replace(kind=kind, **own))

    def command(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{each.name: values.pop(each.name) for each in fields(group)})
        function(**values)

    command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in options}
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    return command


def split_list(text: str | None) -> tuple[str, ...] | None:
    """Return the parts of a comma-separated list; None for None.

    >>> split_list("TS, TS-UCB(1)")
    ('TS', 'TS-UCB(1)')
    """
    if text is None:
        return None
    return tuple(part.strip() for part in text.split(",") if part.strip())
