"""MMI (RFC 8) over MDP/0.1 and every dialect of MDP/0.2."""

import pytest

from polydomo.broker.builtin.service import PROCESSES
from polydomo.protocols.mdp.mdp2 import DIALECTS
from polydomo.wire.frames import join
from tests.protocols.mdp.rig import Peer, Rig

# what stands before the service when each client asks, what the answer begins with, and whether that names the service
ASKS: dict[str, tuple[list[bytes], list[bytes], bool]] = {
    "mdp1": ([b"", b"MDPC01"], [b"", b"MDPC01"], True),
    "rfc18": ([b"MDPC02", b"\x01"], [b"MDPC02", b"\x03"], True),
    "rfc18-req": ([b"", b"MDPC02", b"\x01"], [b"", b"MDPC02", b"\x03"], True),
    "zmq-mdp2": ([b"MDPC02", b"1"], [b"MDPC02", b"3"], True),
    "majortomo": ([b"", b"MDPC02", b"\x02"], [b"", b"MDPC02", b"\x04"], False),
    "libmdp": ([b"", b"MDPC02"], [b"", b"MDPC02"], True),
}


def test_every_dialect_is_here() -> None:
    assert set(ASKS) == {"mdp1", *DIALECTS}


def ask(peer: Peer, how: str, name: bytes, *body: bytes) -> bytes:
    asked, answered, names = ASKS[how]
    peer.say(*asked, name, *body)
    message = peer.only()
    assert message[:-1] == ([*answered, name] if names else answered)
    return message[-1]


@pytest.mark.parametrize("how", sorted(ASKS))
def test_mmi_service(how: str) -> None:
    rig = Rig()
    client, worker = rig.peer(), rig.peer()
    assert ask(client, how, b"mmi.service", b"echo") == b"404"
    worker.say(b"MDPW02", b"\x01", b"echo")
    assert ask(client, how, b"mmi.service", b"echo") == b"200"
    assert ask(client, how, b"mmi.service", b"ec", b"ho") == b"200", "a name in pieces is still a name"
    assert ask(client, how, b"mmi.service", b"other") == b"404"
    assert ask(client, how, b"mmi.service") == b"404"
    worker.say(b"MDPW02", b"\x06")
    assert ask(client, how, b"mmi.service", b"echo") == b"404"
    assert client.closed == ""


def test_builtin_services_are_listed_by_mmi() -> None:
    rig = Rig()
    client = rig.peer()
    for name, service in rig.broker.builtin.by_name.items():
        there = service.right != PROCESSES and not service.needs_store()
        assert ask(client, "mdp1", b"mmi.service", name) == (b"200" if there else b"404"), name
        if there:
            assert ask(client, "mdp1", name) != b"501"
    for name in (b"mmi.", b"mmi.other", b"polydomo.", b"polydomo.other"):
        assert ask(client, "mdp1", b"mmi.service", name) == b"404"
        assert ask(client, "mdp1", name) == b"501"


@pytest.mark.parametrize("how", sorted(ASKS))
def test_the_rest_is_not_implemented(how: str) -> None:
    client = Rig().peer()
    for name in (b"mmi.other", b"mmi.", b"mmi.service.more"):
        assert ask(client, how, name, b"x") == b"501"


def test_having_been_asked_for_is_not_having_a_worker() -> None:
    rig = Rig()
    client, other = rig.peer(), rig.peer()
    other.say(b"", b"MDPC01", b"echo", b"waits")
    assert ask(client, "mdp1", b"mmi.service", b"echo") == b"404"


@pytest.mark.parametrize("ready", [[b"", b"MDPW01", b"\x01"], [b"MDPW02", b"\x01"], [b"MDPW02", b"1"]])
def test_a_worker_that_registers_mmi_is_disconnected(ready: list[bytes]) -> None:
    rig = Rig()
    for name in (b"mmi.service", b"mmi.echo"):
        worker = rig.peer()
        worker.say(*ready, name)
        code = {b"\x01": b"\x05" if ready[0] == b"" else b"\x06", b"1": b"6"}[ready[-1]]
        assert worker.heard() == [[*ready[:-1], code]]
    assert rig.broker.workers == {} and len(rig.notes.violations) == 2


def test_mmi_answers_while_everything_is_busy() -> None:
    rig = Rig()
    worker, client = rig.peer(), rig.peer()
    worker.say(b"", b"MDPW01", b"\x01", b"echo")
    for i in range(10):
        client.here.send(join([b"", b"MDPC01", b"echo", b"%d" % i]))
    assert ask(client, "mdp1", b"mmi.service", b"echo") == b"200"
