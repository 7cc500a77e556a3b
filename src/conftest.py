"""Examples are collected from all modules but the adapters of libraries that are not installed."""

from importlib.util import find_spec

collect_ignore = [
    f"tsucb/adapters/{library}.py"
    for library, needed in {"river": "river", "obp": "torch"}.items()
    if find_spec(library) is None or find_spec(needed) is None
]
