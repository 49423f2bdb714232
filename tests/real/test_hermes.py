"""Hermes, the program of DBP's own authors, with our broker in the place of theirs.

Its UDP port is fixed, so all of it runs in a network of the test's own, where nothing but loopback is.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Running
from tests.real.namespace import Namespace, why_not
from tests.real.peers import Program, needs

pytestmark = [
    pytest.mark.real_time,
    needs("Hermes"),
    pytest.mark.skipif(bool(why_not()), reason=f"real peers: {why_not()}"),
]


class Ours(Running):
    """``polydomo`` in the namespace."""

    def __init__(self, network: Namespace, *words: str) -> None:
        self.inside = network.inside
        super().__init__(*words)


class Theirs(Program):
    """A program of Hermes in the namespace."""

    def __init__(self, network: Namespace, *words: str) -> None:
        self.inside = network.inside
        super().__init__(*words)


@pytest.fixture
def network() -> Iterator[Namespace]:
    with Namespace() as namespace:
        yield namespace


def test_its_service_registers_with_us_and_its_client_finds_it_through_us(tmp_path: Path, network: Namespace) -> None:
    words = ("--data", str(tmp_path), "--log-json", "--beacon", "127.255.255.255:5245")
    with Ours(network, "up", *words) as broker:
        broker.logged("ready")
        assert broker.logged("beacon")["says"] == "SHALOM 5246"
        with (
            Theirs(network, "hermes_service.py", "Rohan") as service,
            Ours(network, "work", "echo", "--echo", "--to", "discover://", "--log-json"),
        ):
            service.logged("Registration Approved")
            service.logged("Beginning Reactor")
            broker.logged("worker registered", services="echo")
            with Theirs(network, "hermes_client.py", "Rohan") as client:
                everything, one, nobody, answer = (client.line() for _ in range(4))
    assert everything.keys() == {"Rohan", "echo"}
    assert everything["Rohan"] == one
    assert (one["name"], one["interfaces"]["router"]["ip"]) == ("Rohan", "127.0.0.1")
    assert (everything["echo"]["protocol"], everything["echo"]["address"]) == ("mdx", "tcp://127.0.0.1:5246")
    assert nobody is None
    assert answer == ["Rohan"], "it came from the service itself, where we said that it is"
