"""Where the package keeps what it can make or fetch again."""

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The user's cache folder for this package: `TSUCB_CACHE`, or the platform's usual place."""
    if chosen := os.environ.get("TSUCB_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA", str(Path.home()))
    elif sys.platform == "darwin":
        root = str(Path.home() / "Library" / "Caches")
    else:
        root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "tsucb"
