"""Statements of the memo01 document, with the messages that it prints, sent by NNG."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager

import cbor2
import pynng

from polydomo import testing
from tests.statements.raw import WAIT


@contextmanager
def req(url: str) -> Iterator[pynng.Req0]:
    with pynng.Req0(dial=url, recv_timeout=WAIT, send_timeout=WAIT) as socket:
        yield socket


def message(*header: object, payload: bytes = b"") -> bytes:
    return bytes(cbor2.dumps(list(header), canonical=True)) + payload


def parts(data: bytes) -> tuple[list[object], bytes]:
    """Header and payload."""
    stream = io.BytesIO(data)
    header = cbor2.load(stream)
    assert isinstance(header, list)
    return header, stream.read()


def test_every_message_is_encoded_as_printed(broker: testing.Broker) -> None:
    with req(broker.url) as worker, req(broker.url) as client:
        worker.send(message("memo01", 0x01, b"", ["upper", "lower"]))  # READY
        client.send(message("memo01", 0x02, b"", "upper", 60_000, payload=b"hello"))  # JOB
        (version, kind, worker_id, service, timeout), payload = parts(worker.recv())
        assert (version, kind, service, timeout, payload) == ("memo01", 0x02, "upper", 60_000, b"hello")
        assert isinstance(worker_id, bytes) and worker_id
        worker.send(message("memo01", 0x03, worker_id, payload=b"HELLO"))  # RESULT, and the poll for the next job
        assert parts(client.recv()) == (["memo01", 0x03, b""], b"HELLO")
        client.send(message("memo01", 0x02, b"", "lower", 60_000, payload=b"HELLO"))
        assert parts(worker.recv()) == (["memo01", 0x02, worker_id, "lower", 60_000], b"HELLO")
        worker.send(message("memo01", 0x03, worker_id, True, payload=b"hello"))  # RESULT, disconnecting
        assert parts(client.recv()) == (["memo01", 0x03, b""], b"hello")
        assert parts(worker.recv()) == (["memo01", 0x05, worker_id], b"")  # DISCONNECT


def test_a_worker_that_the_broker_does_not_know_gets_disconnect(broker: testing.Broker) -> None:
    with req(broker.url) as worker:
        worker.send(message("memo01", 0x04, b"of another broker"))  # HEARTBEAT
        assert parts(worker.recv()) == (["memo01", 0x05, b"of another broker"], b"")


def test_jobs_are_lost_with_the_broker_and_sent_again() -> None:
    with testing.broker() as broker, req(broker.url) as client:
        client.send(message("memo01", 0x02, b"", "upper", 60_000, payload=b"hello"))
        broker.wait_until(lambda server: b"upper" in server.broker.services)
        broker.kill()
        broker.start()
        with req(broker.url) as worker:  # NNG sends the job of the client again
            worker.send(message("memo01", 0x01, b"", ["upper"]))
            (_, _, worker_id, *_), payload = parts(worker.recv())
            worker.send(message("memo01", 0x03, worker_id, payload=payload.upper()))
            assert parts(client.recv()) == (["memo01", 0x03, b""], b"HELLO")


def test_tcp_over_ipv6() -> None:
    with testing.broker("tcp://[::1]:0") as broker:
        assert re.fullmatch(r"tcp://\[::1\]:\d+", broker.url)
        with req(broker.url) as client:
            client.send(message("memo01", 0x02, b"", "mmi.service", 60_000, payload=b"absent"))
            assert parts(client.recv()) == (["memo01", 0x03, b""], b"404")
