"""The names of peers in the broker's log."""

import logging

import pytest

from polydomo import testing
from polydomo.server.logs import fields_of
from tests.server.raw import dealer

HEAD = (b"", b"eMQP/1.0")


@pytest.mark.parametrize(("kind", "services"), [("worker", "jobs"), ("scheduler", "")])
def test_workers_and_schedulers(kind: str, services: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "polydomo.broker")
    with testing.broker() as broker:
        host, _, port = broker.url.removeprefix("tcp://").rpartition(":")
        with dealer((host, int(port))) as peer:
            peer.send(*HEAD, b"INFORM", b"i", b"jobs", kind.encode())
            assert peer.receive()[2] == b"ACK"
            broker.wait_until(lambda server: len(server.broker.workers) == 1)
        broker.wait_until(lambda server: not server.broker.workers)
    said = [(record.message, fields_of(record)) for record in caplog.records if record.name == "polydomo.broker"]
    assert [message for message, _ in said] == [f"{kind} registered", f"{kind} lost"]
    assert all(fields["services"] == services and fields["protocol"] == "emqp (eventmq)" for _, fields in said)
