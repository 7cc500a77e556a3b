"""Say how to install an optional dependency that is missing."""

from importlib.util import find_spec


class MissingExtra(ModuleNotFoundError):
    """A package that an optional part needs is not installed."""


def require(extra: str, *modules: str) -> None:
    """Raise MissingExtra with the command to install, unless all modules of an extra are there.

    >>> require("tables", "pandas", "no_such_module")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tsucb.extras.MissingExtra: this needs no_such_module; install it with: pip install ...
    """
    for module in modules:
        if find_spec(module) is None:
            command = f"pip install 'tsucb[{extra}]'"
            raise MissingExtra(f"this needs {module}; install it with: {command}", name=module)
