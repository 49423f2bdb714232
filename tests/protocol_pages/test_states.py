"""The state diagrams of docs/protocols: a real broker makes every transition that they show."""

import io
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import cbor2
import pynng
import pytest

from polydomo import testing
from polydomo.broker.workers import silence
from polydomo.server.server import BrokerServer
from tests.protocol_pages.states import MACHINES, MORE, Machine, Message, Transition
from tests.statements.raw import PATIENT, WAIT, RawPeer

PASSED = 600.0  # seconds: more than any silence that a broker with these settings allows


class NngPeer:
    """A memo01 peer. A message is (type, id, further fields)."""

    def __init__(self, url: str) -> None:
        self.socket = pynng.Req0(dial=url, recv_timeout=WAIT, send_timeout=WAIT)

    def say(self, kind: bytes, identity: bytes, *fields: bytes) -> None:
        more: dict[bytes, list[object]] = {
            b"\x01": [[field.decode() for field in fields]],  # READY: services
            b"\x02": [*(field.decode() for field in fields), 60_000],  # JOB: service, timeout
            b"\x03": [True] if fields else [],  # RESULT: disconnecting
        }
        header = ["memo01", kind[0], identity, *more.get(kind, [])]
        self.socket.send(bytes(cbor2.dumps(header, canonical=True)))

    def hear(self) -> list[bytes]:
        _, kind, identity, *_ = cbor2.load(io.BytesIO(self.socket.recv()))
        return [bytes([kind]), identity]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


Peer = RawPeer | NngPeer


def path_to(machine: Machine, state: str) -> list[Transition]:
    """The shortest way from the first state."""
    ways: dict[str, list[Transition]] = {next(iter(machine.states)): []}
    while state not in ways:
        found = {
            one.target: [*ways[one.source], one]
            for one in machine.transitions
            if one.source in ways and one.target not in ways
        }
        assert found, f"{state} cannot be reached"
        ways |= found
    return ways[state]


def matches(message: list[bytes], expected: Message) -> bool:
    if expected[-1:] == (MORE,):
        return tuple(message[: len(expected) - 1]) == expected[:-1]
    return tuple(message) == expected


class Walk:
    """One peer, and a client that asks it."""

    def __init__(self, machine: Machine, broker: testing.Broker, peer: Peer, client: Peer) -> None:
        self.machine, self.broker, self.peer, self.client = machine, broker, peer, client
        self.request = b""

    def take(self, step: Transition) -> None:
        if step.client:
            self.client.say(*(frame or b"" for frame in step.client))
        if step.sends:
            self.peer.say(*(self.request if frame is None else frame for frame in step.sends))
        if step.lost or step.stops:
            for fence in fences(self.machine, step.source):
                self.take(fence)
        if step.lost or step.timed:
            if not any(fences(self.machine, step.source)):
                self.broker.wait_for("walk")
            self.broker.wait_until(let_time_pass)
        if step.lost:
            self.broker.wait_for("walk", workers=0)
        if step.stops:
            self.broker.wait_for("walk")
            self.broker.stop()
        for expected in step.hears:
            message = self.peer.hear()
            while self.machine.skip and not matches(message, expected) and matches(message, self.machine.skip):
                message = self.peer.hear()
            assert matches(message, expected), (step.source, step.event, message)
            if step.client or step.timed:
                self.request = message[self.machine.request]


def let_time_pass(server: BrokerServer) -> bool:
    """For the workers. A short time that really passes could be over before a test on a slow machine expects it."""
    server.wake()
    for worker in server.broker.workers:
        worker.last_heard -= PASSED
        worker.last_sent -= PASSED
        silence.reschedule(server.broker, worker)
    return True


def fences(machine: Machine, state: str) -> Iterator[Transition]:
    """Transitions that stay in a state and have an answer: they show that the state was reached."""
    return (one for one in machine.transitions if one.source == one.target == state and one.hears and not one.client)


CASES = [
    pytest.param(machine, step, id=f"{name}: {step.source}, {step.event}")
    for name, machine in MACHINES.items()
    for step in machine.transitions
]


@pytest.mark.parametrize(("machine", "step"), CASES)
def test_the_transition_is_made(machine: Machine, step: Transition) -> None:
    way = [*path_to(machine, step.source), step]
    kind = NngPeer if machine.nng else RawPeer
    with testing.broker(settings=PATIENT, tuning={"memo_idle": 60.0}) as broker:
        with kind(broker.url) as peer, kind(broker.url) as client:
            walk = Walk(machine, broker, peer, client)
            for one in way:
                walk.take(one)
            for one in fences(machine, step.target) if not step.stops else ():
                walk.take(one)
