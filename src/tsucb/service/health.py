"""Asks a server on this machine whether it is ready: `python -m tsucb.service.health`.

By the settings that the server has, from the environment and the file that TSUCB_SERVE_CONFIG
names: so with TLS where it has TLS. Ends with status 0 if it is ready, else with 1.
"""

import os
import sys
from pathlib import Path

import httpx
import msgspec

from tsucb.service.server import LOOPBACK, read_settings

SECONDS = 4.0  # to answer


def is_ready(environment: dict[str, str]) -> bool:
    """Return whether /readyz of the server with these settings answers 200."""
    file = environment.get("TSUCB_SERVE_CONFIG")
    settings = read_settings(None if file is None else Path(file), environment, {})
    if settings.host not in LOOPBACK:
        settings = msgspec.structs.replace(settings, host="127.0.0.1")
    try:
        # Its certificate is for another name than this machine has for itself.
        answer = httpx.get(f"{settings.url}/readyz", timeout=SECONDS, verify=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200


if __name__ == "__main__":
    sys.exit(0 if is_ready(dict(os.environ)) else 1)
