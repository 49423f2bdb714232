"""Shared by all tests."""

import gc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests.cli.shell import RECENT
from tests.orphans import Orphans
from tests.stalls import Stalls

if TYPE_CHECKING:
    from polydomo import testing
    from tests.client.zmq_broker import Router

# A build machine's pauses are not the code's fault; the same examples everywhere make a failure there one here.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")

# A shell starts what runs in the background with SIGINT ignored, and so would be every program that a test wants to stop by it.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test reports the logs of the processes that it may have used."""
    report = yield
    if report.failed:
        used = [process for process in RECENT if process.concerns(call.start)]
        report.sections += [("log of a process", process.summary()) for process in used]
    return report


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Stalls())
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Orphans())


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Makes ``xdist_group`` work with pytest 9.2: pytest-xdist 3.8 sets an attribute that this pytest no longer reads
    (pytest-dev/pytest-xdist#1386), and each process would start its own JVM, browser and PostgreSQL."""
    yield
    if not getattr(config.option, "loadgroup", False):
        return  # not a process of pytest-xdist with --dist loadgroup
    for item in items:
        groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
        suffix = f"@{'_'.join(groups)}"
        if groups and not item.nodeid.endswith(suffix):
            structured: Any = item
            structured._id = type(structured._id).parse(item.nodeid + suffix)


def pytest_collection_finish() -> None:
    """Ten thousand tests are millions of objects that stay. The garbage collector need not walk through them again and again: without
    this, it takes a fifth of the processor time of the tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def broker() -> "Iterator[testing.Broker]":
    """A broker in a thread, as it comes. Where tests need another, they have a fixture of that name themselves.

    Only a memo01 job waits for a worker longer than 10 s, which a slow machine may need to start one."""
    from polydomo import testing

    with testing.broker(settings={"memo.queue_expiry": "10m"}) as broker:
        yield broker


@pytest.fixture(autouse=True)
def no_internal_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """A broker survives an error in its own code and logs it. A test in whose process that happens fails, unless it is marked."""

    def total() -> int:
        module = sys.modules.get("polydomo.server.logs")
        return module.INTERNAL_ERRORS.total if module is not None else 0

    before = total()
    yield
    if request.node.get_closest_marker("internal_errors") is None:
        assert total() == before, "an internal error was logged: see the captured log"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Closed after the test: for ``swap`` and ``set_limit`` of sim/replacing.py."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def router() -> "Iterator[Router]":
    """A broker's socket of libzmq's, for a test that plays the broker by hand."""
    from tests.client.zmq_broker import Router

    with Router() as router:
        yield router
