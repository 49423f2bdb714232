"""What the demo's workers do. A job is a generator: text it yields is a partial reply, None a moment's pause, and what it returns
the final reply."""

import sys
import threading
import time
from collections.abc import Generator

Job = Generator[str | None, None, str]

TICK = 0.02  # seconds of one pause


class Hall:
    """A worker's name, and its line to the demo: it tells how far it is, and waits where it was told to."""

    def __init__(self, name: str, hold: int) -> None:
        self.name = name
        self.hold = hold  # the step at which it waits for a line on standard input; 0: nowhere
        self.go = threading.Event()

    def tell(self, line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def greet(hall: Hall, text: str) -> Job:
    return f"{hall.name} greets {text}"
    yield  # a generator all the same


def render(hall: Hall, text: str) -> Job:
    """Five steps; a worker that holds waits before one of them."""
    for step in range(1, 6):
        if step == hall.hold:
            hall.tell(f"at step {step} of 5")
            while not hall.go.is_set():
                yield from pause(TICK)
        yield from pause(0.04)
    hall.tell("done")
    return f"{text}, rendered by {hall.name}"


def tiles(hall: Hall, text: str) -> Job:
    """A map in four tiles, each sent as soon as it is there. A worker that holds waits before one of them."""
    for number in range(1, 5):
        while number == hall.hold and not hall.go.is_set():
            yield from pause(TICK)
        yield from pause(0.25)
        yield f"tile {number} of {text}"
    return f"map of {text} complete"


def toner(hall: Hall, text: str) -> Job:
    hall.tell("tried")
    raise RuntimeError("out of toner")
    yield  # a generator all the same


def pause(seconds: float) -> Generator[None, None, None]:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(TICK, max(0.0, end - time.monotonic())))
        yield None


JOBS = {"greet": greet, "render": render, "tiles": tiles, "print": toner}
