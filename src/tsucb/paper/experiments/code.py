"""The identity of the code that measured something."""

import hashlib
from functools import cache
from pathlib import Path

import tsucb


@cache
def code_identity() -> str:
    """Return a hash of the package's sources, which changes with every edit.

    >>> len(code_identity())
    16
    """
    package = Path(tsucb.__file__).parent
    digest = hashlib.sha256(tsucb.__version__.encode())
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(f"\n{path.relative_to(package).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()[:16]
