"""Repeats a test of real time if the machine stood still while it ran.

Tests wait for conditions, so a machine that stops for seconds only makes them slower. A few cannot: their subject is what happens within
a real time, such as a worker that is lost after half a second of silence. Those carry ``@pytest.mark.real_time``. If one fails and this
process was not scheduled for ``STALL`` seconds meanwhile, the failure says nothing about the product, and the test runs again.
"""

import threading
import time

import pytest
from _pytest.runner import runtestprotocol

TICK = 0.05
STALL = 0.25
RUNS = 5


class Watch:
    """Measures in a thread how late this process is scheduled."""

    def __init__(self) -> None:
        self.latest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="stall-watch", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        before = time.monotonic()
        while not self._over.wait(TICK):
            now = time.monotonic()
            self.latest = max(self.latest, now - before - TICK)
            before = now

    def close(self) -> float:
        """The longest time for which the process stood still."""
        self._over.set()
        self._thread.join()
        return self.latest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    if item.get_closest_marker("real_time") is None:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for run in range(1, RUNS + 1):
        watch = Watch()
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        still = watch.close()
        if run == RUNS or still < STALL or not any(report.failed for report in reports):
            break
        item.warn(pytest.PytestWarning(f"failed while the machine stood still for {still:.1f} s, and runs again"))
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True
