"""Repeats a test that failed while the machine stood still.

Tests wait for conditions, so a machine that stops for seconds only makes them slower. Not every test can be written like that: some
limits are real time, of the product (a worker is lost after some seconds of silence) or of a peer that is not ours. A failure says nothing
about the product if the process of the test was not scheduled for ``STALL`` seconds meanwhile, so the test runs again. The end of the run
tells how many tests did, and which. With ``STALLED_RUNS=1`` in the environment no test runs again (tests/stress.py).

``@pytest.mark.real_time`` is for a test whose subject is a short time, such as half a second of silence: shorter pauses (``SHORT_STALL``)
count for it, and it may run more often.
"""

import os
import threading
import time

import pytest
from _pytest.runner import runtestprotocol

TICK = 0.05
STALL = 2.0  # seconds
RUNS = 2
SHORT_STALL = 0.25
SHORT_RUNS = 5
LONGEST = 120.0  # seconds; no test runs again after that, because its time limit covers all runs
ALLOWED = int(os.environ.get("STALLED_RUNS", SHORT_RUNS))
REPEATED = (
    "ran again"  # a property of a test's report, so that pytest-xdist carries it to the process that writes the summary
)


class Watch:
    """Measures in a thread how late this process is scheduled."""

    def __init__(self) -> None:
        self.longest = 0.0  # seconds, since the caller last set it
        threading.Thread(target=self._look, name="stall-watch", daemon=True).start()

    def _look(self) -> None:
        before = time.monotonic()
        while True:
            time.sleep(TICK)
            now = time.monotonic()
            self.longest = max(self.longest, now - before - TICK)
            before = now


class Stalls:
    """A plugin: one watch for all tests of this process."""

    def __init__(self) -> None:
        self.watch = Watch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        short = item.get_closest_marker("real_time") is not None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        began = time.monotonic()
        stalls: list[float] = []
        for left in reversed(range(min(ALLOWED, SHORT_RUNS if short else RUNS))):
            self.watch.longest = 0.0
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            still = self.watch.longest
            late = time.monotonic() - began > LONGEST
            if (
                not left
                or late
                or still < (SHORT_STALL if short else STALL)
                or not any(each.failed for each in reports)
            ):
                break
            stalls.append(still)
        if stalls:
            reports[0].user_properties.append((REPEATED, ", ".join(f"{still:.1f} s" for still in stalls)))
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        found = {
            report.nodeid: value
            for reports in terminalreporter.stats.values()
            for report in reports
            for name, value in getattr(report, "user_properties", ())
            if name == REPEATED
        }
        if found:
            count = "1 test" if len(found) == 1 else f"{len(found)} tests"
            terminalreporter.section(f"{count} ran again after the machine stood still")
            for test, times in sorted(found.items()):
                terminalreporter.line(f"{test}: it stood still for {times}")
