"""Settings of all tests and examples."""

import gc
from importlib.util import find_spec

import matplotlib
from hypothesis import settings

# Modules and compilers keep nearly all that they make: to look for garbage among it is in vain.
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
    """From here on, look for garbage among what the tests make, and seldom."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
