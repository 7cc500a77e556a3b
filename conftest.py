"""Settings of all tests and examples."""

import gc
from importlib.util import find_spec

import matplotlib
from hypothesis import settings

# Collecting during imports frees almost nothing.
gc.disable()

matplotlib.use("Agg")
# The same examples every time, and no deadline: a first call may compile for seconds.
settings.register_profile("tsucb", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("tsucb")

# The adapters' examples need the libraries that they adapt to.
collect_ignore = [
    f"src/tsucb/adapters/{library}.py"
    for library, needed in {"river": "river", "obp": "torch"}.items()
    if find_spec(library) is None or find_spec(needed) is None
]


def pytest_collection_finish() -> None:
    """Collect garbage again, rarely, and only among objects that the tests make."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
