"""Settings of all tests."""

import matplotlib
from hypothesis import settings

matplotlib.use("Agg")
# The same examples every time, and no deadline: a first call may compile for seconds.
settings.register_profile("tsucb", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("tsucb")
