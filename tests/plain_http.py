"""HTTP clients for tests."""

from typing import Any

import httpx


def http_client(url: str, **options: Any) -> httpx.Client:
    """A client for a broker's address, ``tcp://`` or ``http://``. It reads no certificates: that takes longer than most tests do."""
    return httpx.Client(base_url=url.replace("tcp", "http", 1), verify=False, **options)
