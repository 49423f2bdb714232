import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Broker, script

SHARED = {"served", "stage", "journalled"}  # brokers with workers, made once for the tests of a module


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share a broker run in one process of pytest-xdist. Otherwise each process would start the broker and its workers."""
    for item in items:
        if "tests/cli/" in item.path.as_posix() and SHARED.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker of the test's own."""
    with Broker(tmp_path / "data") as broker:
        yield broker


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Broker]:
    """The same with a journal."""
    with Broker(tmp_path / "data", "--journal=requests") as broker:
        yield broker


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker with workers that tests only call."""
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(Broker(tmp_path_factory.mktemp("served")))
        stack.enter_context(broker.worker("echo", "--echo"))
        stack.enter_context(broker.worker("upper", "--", "tr", "a-z", "A-Z"))
        stack.enter_context(broker.worker("broken", *script("echo first >&2; echo 'no such colour' >&2; exit 3")))
        stack.enter_context(broker.worker("seq", "--lines", "--protocol", "mdp2", *script("seq 3")))
        yield broker
