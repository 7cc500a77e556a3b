"""Settings of all tests and examples."""

from importlib.util import find_spec

import matplotlib
from hypothesis import settings

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
