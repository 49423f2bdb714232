"""eMQP and DBP on the shared port: detected from a peer's first message over ZMTP, for any socket type."""

import json
import struct

import pytest

from polydomo.model.records import Session
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp.session import DbpSession
from polydomo.protocols.detect import Detector
from polydomo.protocols.emqp.ends import EmqpClientEnd, EmqpWorkerEnd
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.protocols.ends import Delivery, Reply
from polydomo.wire import frames
from polydomo.wire.link import LinkHandler
from polydomo.wire.zmtp.link import ZmtpLink
from tests.protocols.emqp_dbp_fakes import Table


class Inbox(LinkHandler):
    def __init__(self) -> None:
        self.messages: list[list[bytes]] = []

    def on_message(self, data: bytes, start: int, end: int) -> None:
        self.messages.append(frames.split(data[start:end]))


class Line:
    """A peer's ZMTP connection to the broker's port, in pieces of three bytes."""

    def __init__(self, table: Table, socket_type: bytes) -> None:
        self.inbox = Inbox()
        detector = Detector(table.broker)
        self.broker_end = ZmtpLink(table.hub, detector, "tcp://192.0.2.1:7")
        detector.attach(self.broker_end)
        self.peer_end = ZmtpLink(table.hub, self.inbox, "broker", socket_type=socket_type)
        self.carry()

    def carry(self) -> None:
        while self.peer_end.out or self.broker_end.out:
            for one, other in ((self.peer_end, self.broker_end), (self.broker_end, self.peer_end)):
                data = b"".join(bytes(piece) for piece in one.out)
                one.out.clear()
                for position in range(0, len(data), 3):
                    other.receive(data[position : position + 3])

    def say(self, *message: bytes) -> None:
        self.peer_end.send(frames.join(list(message)))
        self.carry()

    def hear(self) -> list[list[bytes]]:
        self.carry()
        heard = self.inbox.messages[:]
        self.inbox.messages.clear()
        return heard

    @property
    def session(self) -> Session:
        assert isinstance(self.broker_end.handler, Session)
        return self.broker_end.handler


def test_clients_and_workers_of_emqp_meet_a_router_on_one_port() -> None:
    table = Table()
    worker, client = EmqpWorkerEnd(), EmqpClientEnd()
    at_worker, at_client = Line(table, worker.socket_type), Line(table, client.socket_type)
    assert at_worker.peer_end.peer_type == at_client.peer_end.peer_type == b"ROUTER"
    worker.open([b"echo"])
    client.request(1, b"echo", [b"x" * 1000])
    for message in worker.out:
        at_worker.say(*message)
    for message in client.out:
        at_client.say(*message)
    worker.out.clear()
    for message in at_worker.hear():
        for event in worker.receive(message):
            assert isinstance(event, Delivery)
            worker.final(event, event.body)
    for message in worker.out:
        at_worker.say(*message)
    assert [event for message in at_client.hear() for event in client.receive(message)] == [Reply(1, [b"x" * 1000])]
    assert isinstance(at_worker.session, EmqpSession) and isinstance(at_client.session, EmqpSession)


@pytest.mark.parametrize("socket_type", [b"REQ", b"DEALER"])
def test_dbp_clients_use_a_req_or_a_dealer_socket(socket_type: bytes) -> None:
    line = Line(Table(), socket_type)
    line.say(b"", b"u_U", struct.pack("=f", 1.0), b"zzz")  # a REQ socket adds the empty frame itself
    (reply,) = line.hear()
    assert reply[:2] == [b"", b"o_O"] and "zzz" in json.loads(reply[3])["Error"]


@pytest.mark.parametrize("command", sorted(dbp.COMMANDS))
def test_every_command_of_dbp_is_known_on_a_shared_port(command: bytes) -> None:
    line = Line(Table(), b"DEALER")
    line.say(b"", command, struct.pack("=d", 1.0), b"")
    assert isinstance(line.session, DbpSession)


def test_a_registration_on_a_req_socket_gets_its_one_answer_and_no_beats() -> None:
    table = Table()
    line = Line(table, b"REQ")
    line.say(b"", b"UwU", b"1794724000", b'{"name": "camera", "heartbeat": 1}')
    assert [message[1] for message in line.hear()] == [b"OwO"]
    table.wait(2.5)
    assert line.hear() == []
