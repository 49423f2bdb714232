"""Idempotency keys of plain requests, over the protocols that carry them, without I/O."""

import pytest

from polydomo.model.request_options import RequestOptions
from polydomo.protocols.ends import Failure, Reply
from polydomo.protocols.mdx.ends import MdxClientEnd
from polydomo.protocols.mdx.session import MdxSession
from polydomo.wire.zmtp.extensions import NO_EXTENSIONS
from tests.protocols.extended_peers import client_of, jobs_of, peer_of, worker_of
from tests.protocols.mdx.peers import C
from tests.protocols.mdx_dcp_rig import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("protocol", ["mdx", "emqp"])
def test_a_key_joins_requests_of_two_clients(rig: Rig, protocol: str) -> None:
    worker, peer = worker_of(rig, "mdx", slots=4)
    clients = [client_of(rig, protocol) for _ in range(2)]
    for client, asker in clients:
        client.request(1, b"echo", [b"x"], options=RequestOptions(key=b"k"))
        asker.exchange(client)
    (job,) = jobs_of(worker, peer)
    worker.final(job, [b"done"])
    jobs_of(worker, peer)
    assert [asker.exchange(client) for client, asker in clients] == [[Reply(1, [b"done"])]] * 2


def test_a_key_comes_with_a_deadline(rig: Rig) -> None:
    client, asker = client_of(rig, "mdx")
    client.request(1, b"echo", [b"x"], 1.5, options=RequestOptions(key=b"k"))
    assert client.out == [[C, b"KEYED", b"1500", b"k", b"echo", (1).to_bytes(8, "big"), b"x"]]
    asker.exchange(client)
    rig.wait(2.0)
    (failure,) = asker.exchange(client)
    assert isinstance(failure, Failure) and failure.code == "timeout"


def test_a_key_is_not_sent_to_a_broker_that_does_not_know_it() -> None:
    client = MdxClientEnd()
    client.request(1, b"echo", [b"x"], options=RequestOptions(key=b"k"))
    assert client.out == [[C, b"\x01", b"echo", (1).to_bytes(8, "big"), b"x"]]


@pytest.mark.parametrize(
    "rest",
    [
        [],
        [b"0"],
        [b"0", b"k", b"echo", b"1"],
        [b"x", b"k", b"echo", b"1", b"body"],
        [b"0", b"", b"echo", b"1", b"body"],
        [b"0", b"k", b"", b"1", b"body"],
        [b"0", b"k", b"echo", b"", b"body"],
        [b"0", b"k" * 256, b"echo", b"1", b"body"],
        [b"1" * 11, b"k", b"echo", b"1", b"body"],
    ],
)
def test_a_malformed_keyed_request_is_a_violation(rig: Rig, rest: list[bytes]) -> None:
    peer = peer_of(rig, MdxSession)
    peer.say(C, b"KEYED", *rest)
    assert rig.notes.violations and not peer.session.requests


def test_a_key_that_was_not_announced_is_a_violation(rig: Rig) -> None:
    peer = peer_of(rig, MdxSession, NO_EXTENSIONS)
    peer.say(C, b"KEYED", b"0", b"k", b"echo", b"1", b"body")
    assert rig.notes.violations and not peer.session.requests
