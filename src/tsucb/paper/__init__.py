"""The experiments of Baek and Farias (2023), their datasets and their news log."""

from tsucb.extras import require

require("paper", "pandas", "pyarrow", "matplotlib", "rich")
