"""HTTP clients for tests."""

from typing import Any

import httpx

from tests.cli.shell import PATIENCE


def http_client(url: str, timeout: float = PATIENCE, **options: Any) -> httpx.Client:
    """A client for a broker's address, ``tcp://`` or ``http://``. It reads no certificates: that takes longer than most tests do."""
    return httpx.Client(base_url=url.replace("tcp", "http", 1), verify=False, timeout=timeout, **options)
