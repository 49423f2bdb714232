"""Heartbeats by UDP over real sockets, on loopback alone: a service in the words of the document, with pyzmq and a UDP socket."""

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from polydomo import testing
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.dbp import udp
from polydomo.protocols.dbp.ends import Acknowledged, Approved, DbpEnd, Event
from polydomo.protocols.dbp.udp import ServiceBeats
from polydomo.server.server import BrokerServer
from tests.server.nearby import free_port, listener, settings

PATIENCE = 60.0
INTERVAL = 0.1  # the least that may be agreed

pytestmark = pytest.mark.real_time


class Service:
    """Registers on a DEALER, and beats by whichever way ``ServiceBeats`` says."""

    def __init__(self, broker: testing.Broker, broadcasts: int, name: str = "camera", form: str = dbp.FLOAT) -> None:
        self.port = int(broker.url.rpartition(":")[2])
        self.context = zmq.Context()
        self.dealer = self.context.socket(zmq.DEALER)
        self.dealer.linger = 0
        self.dealer.connect(broker.url)
        self.ear = listener(broadcasts)
        self.mouth = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.end = DbpEnd()
        self.end.register({"name": name, "heartbeat": INTERVAL}, time.time())
        assert isinstance(self.receive(), Approved)
        self.beats = ServiceBeats(name, INTERVAL, self.port, time.monotonic(), form)
        self.by_udp = 0
        self.by_zmq = 0

    def close(self) -> None:
        self.context.destroy()
        self.ear.close()
        self.mouth.close()

    def flush(self) -> None:
        for message in self.end.out:
            self.dealer.send_multipart(message)
        self.end.out.clear()

    def receive(self) -> Event:
        """The next event from the broker; its beats are answered on the way."""
        self.flush()
        while True:
            assert self.dealer.poll(int(PATIENCE * 1000)), "the broker says nothing"
            events = self.end.receive(self.dealer.recv_multipart(), time.time())
            self.flush()
            if events:
                return events[0]

    def beat(self) -> None:
        datagram = self.beats.beat(time.monotonic(), time.time())
        if datagram is not None:
            self.mouth.sendto(datagram, ("127.0.0.1", self.port))
            self.by_udp += 1
        else:
            self.end.beat(time.time())
            self.by_zmq += 1
            assert isinstance(self.receive(), Acknowledged)

    def hear_broadcast(self) -> None:
        """Waits for a broadcast that is our broker's."""
        end = time.monotonic() + PATIENCE
        while not self.beats.receive(time.monotonic(), self.ear.recv(1024)):
            assert time.monotonic() < end

    def deaf(self) -> None:
        """Discards all broadcasts until they are missed."""
        while self.beats.by_datagram(time.monotonic()):
            select.select([], [], [], INTERVAL / 4)
        self.ear.setblocking(False)
        try:
            while True:
                self.ear.recv(1024)
        except BlockingIOError:
            self.ear.settimeout(PATIENCE)


@contextmanager
def scene() -> Iterator[tuple[testing.Broker, Service]]:
    broadcasts = free_port()
    made = settings(broadcast=broadcasts)
    made.beats_missed = 300  # half a minute: a machine that pauses is not what these tests are about
    with testing.broker(settings=made) as broker:
        service = Service(broker, broadcasts)
        try:
            yield broker, service
        finally:
            service.close()


def state(server: BrokerServer) -> str:
    return server.broker.catalog.entries["camera"].state


def is_ready(broker: testing.Broker) -> bool:
    """Whether it becomes ready soon. It is for little longer than an interval, which a slow machine may not see."""
    with contextlib.suppress(TimeoutError):
        broker.wait_until(lambda server: state(server) == "ready", 1.0)
        return True
    return False


def count(server: BrokerServer, kind: str) -> int:
    return server.broker.counters.datagrams[kind]


def test_beats_by_udp_are_answered_by_broadcast_and_both_go_on() -> None:
    with scene() as (broker, service):
        while service.by_udp < 5:  # on a machine that pauses, others between them go over the connection
            service.beat()
            broker.wait_until(lambda server: count(server, "beat") == service.by_udp)
            service.hear_broadcast()
        broker.wait_until(lambda server: state(server) in ("ready", "late"))  # late, if it paused just now


def test_services_with_other_time_formats_get_broadcasts_in_theirs() -> None:
    broadcasts = free_port()
    made = settings(broadcast=broadcasts)
    made.beats_missed = 300
    with testing.broker(settings=made) as broker, contextlib.ExitStack() as stack:
        services = [Service(broker, 0, name, form) for name, form in (("old", dbp.FLOAT), ("new", dbp.DOUBLE))]
        for service in services:
            stack.callback(service.close)
            service.beat()
        broker.wait_until(lambda server: count(server, "beat") == 2)
        ear = stack.enter_context(listener(broadcasts))  # what was sent for the first one alone is not heard
        missing = {dbp.FLOAT, dbp.DOUBLE}
        end = time.monotonic() + PATIENCE
        while missing:
            assert time.monotonic() < end, f"no broadcast with {missing}"
            datagram = udp.read(ear.recv(1024))
            assert datagram is not None and datagram.name == str(services[0].port)
            missing.discard(datagram.time)


def test_a_service_without_broadcasts_beats_over_zeromq_until_they_return() -> None:
    with scene() as (broker, service):
        service.beat()
        service.hear_broadcast()
        service.deaf()
        service.beat()
        assert (service.by_udp, service.by_zmq) == (1, 1)
        while not is_ready(broker):
            service.beat()
        while service.by_udp < 2:
            service.hear_broadcast()
            service.beat()


def test_a_broker_that_misses_a_beat_asks_over_zeromq() -> None:
    with scene() as (broker, service):
        service.beat()
        broker.wait_until(lambda server: count(server, "beat") == 1)
        answered = False
        while not answered:
            assert service.dealer.poll(int(PATIENCE * 1000))
            message = service.dealer.recv_multipart()
            assert message[:2] == [b"", dbp.HEARTBEAT]
            service.end.receive(message, time.time())
            service.flush()  # u.u
            answered = is_ready(broker)


def test_forged_and_malformed_datagrams_are_counted_and_change_nothing() -> None:
    with scene() as (broker, service):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.bind(("127.0.0.2", 0))
            for command in (dbp.HEARTBEAT, dbp.DISCONNECT):
                stranger.sendto(udp.write(command, "camera", time.time()), ("127.0.0.1", service.port))
            stranger.sendto(b"rubbish", ("127.0.0.1", service.port))
            stranger.sendto(bytes(1400), ("127.0.0.1", service.port))
        broker.wait_until(lambda server: (count(server, "forged"), count(server, "malformed")) == (2, 2))
        broker.wait_until(lambda server: count(server, "beat") == 0 and count(server, "sent") == 0)
        service.end.info(["camera"], time.time())
        service.flush()
        assert service.dealer.poll(int(PATIENCE * 1000))


def test_it_can_be_switched_off() -> None:
    made = settings()
    made.dbp.udp = False
    with testing.broker(settings=made) as broker:
        broker.wait_until(lambda server: server.heartbeats is None)


def test_a_udp_port_in_use_is_logged_and_udp_is_turned_off() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        made = settings()
        try:
            with testing.broker(f"tcp://127.0.0.1:{port}", made) as broker:
                broker.wait_until(lambda server: server.heartbeats is not None and not server.heartbeats.mouths)
        except Exception as error:  # somebody else has the TCP port of that number
            if "already in use" not in str(error):
                raise
            pytest.skip(str(error))


def test_the_catalog_lists_the_service_meanwhile() -> None:
    with scene() as (_, service):
        service.beat()
        service.end.info(["camera"], time.time())
        service.flush()
        assert service.dealer.poll(int(PATIENCE * 1000))
        while True:
            message = service.dealer.recv_multipart()
            if message[1] == dbp.INFO_REPLY:
                break
        assert json.loads(message[3])["camera"]["heartbeat"] == INTERVAL
