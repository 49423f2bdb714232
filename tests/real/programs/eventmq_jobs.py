"""Functions that EventMQ's job manager imports and calls."""

import os
import time
from typing import Any


def double(number: int) -> dict[str, int]:
    return {"doubled": 2 * number}


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"


def wait_for(path: str) -> str:
    """Until the test makes the file, or has given up."""
    end = time.monotonic() + 300
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.01)
    return "seen"


def nap_and_note(seconds: float, path: str, first: str = "") -> None:
    """Notes a line after the nap, and one before it if ``first``."""
    if first:
        note(path)
    time.sleep(seconds)
    note(path)


def fail() -> None:
    raise ValueError("this job always fails")


def note(path: str, **more: Any) -> None:
    """Appends a line to a file, so that a test can see a job without a requested reply."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()}\n")
