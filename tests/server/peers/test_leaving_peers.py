"""A peer that leaves as its protocol prescribes causes no warning."""

import logging
import struct
from contextlib import ExitStack

import pytest

from polydomo import testing
from polydomo.protocols.dbp import session as dbp
from polydomo.protocols.emqp import session as emqp
from polydomo.protocols.mdp import single_worker
from polydomo.server.logs import fields_of
from sim.replacing import set_limit
from tests.forms import replaces_core
from tests.server.raw import dealer

TIME = struct.pack("=f", 1.0)
PEERS = {
    "mdp1": ([b"", b"MDPW01", b"\x01", b"echo"], [b"", b"MDPW01", b"\x05"]),
    "dbp": ([b"", b"u_U", TIME, b""], [b"", b"</3", TIME]),
    "emqp": ([b"", b"eMQP/1.0", b"INFORM", b"i", b"jobs", b"worker"], [b"", b"eMQP/1.0", b"DISCONNECT", b"d"]),
}


@replaces_core
@pytest.mark.parametrize("protocol", PEERS)
def test_a_polite_peer_is_not_warned_about(protocol: str, caplog: pytest.LogCaptureFixture, stack: ExitStack) -> None:
    set_limit(stack, "ZOMBIE_TIME", 0.05, dbp, emqp, single_worker)
    caplog.set_level(logging.DEBUG, "polydomo.server")
    hello, goodbye = PEERS[protocol]
    with testing.broker() as broker:
        host, _, port = broker.url.removeprefix("tcp://").rpartition(":")
        with dealer((host, int(port))) as peer:
            peer.send(*hello)
            broker.wait_until(lambda server: len(server.broker.sessions) == 1)
            peer.send(*goodbye)
            broker.wait_until(lambda server: not server.broker.sessions)  # the broker closes it
    closed = [record for record in caplog.records if record.getMessage() == "connection closed"]
    assert [fields_of(record)["why"] for record in closed] == ["closed after DISCONNECT"]
    assert [record.levelno for record in closed] == [logging.DEBUG]
