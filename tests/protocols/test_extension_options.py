"""The group of a request, and what it is near to, over the protocols that carry them, without I/O."""

import pytest

from polydomo.model.records import Request
from polydomo.model.request_options import PLAIN, RequestOptions, marks_of, read_marks
from polydomo.protocols.bridge.sibling_messages import CALL, SiblingCall, details
from polydomo.protocols.ends import Failure
from polydomo.protocols.mdx.ends import MdxClientEnd
from polydomo.protocols.mdx.session import MdxSession
from polydomo.wire.frames import frame
from polydomo.wire.zmtp.extensions import NO_EXTENSIONS
from tests.protocols.extended_peers import client_of, peer_of
from tests.protocols.mdx.peers import C
from tests.protocols.mdx_dcp_rig import Rig

MARKED = RequestOptions(group="Köln 7".encode(), near=b"user-1")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def marks(request: Request) -> tuple[bytes, bytes]:
    return request.options.group, request.options.near


@pytest.mark.parametrize("protocol", ["mdx", "emqp"])
def test_a_request_carries_its_group_and_what_it_is_near_to(rig: Rig, protocol: str) -> None:
    client, asker = client_of(rig, protocol)
    for number, options in enumerate([MARKED, MARKED, PLAIN, MARKED], 1):  # the second takes the fast path of MDX
        client.request(number, b"echo", [b"x"], options=options)
    asker.exchange(client)
    none = (b"", b"")
    wanted = (MARKED.group, MARKED.near)
    assert [marks(request) for request in asker.session.requests] == [wanted, wanted, none, wanted]


def test_options_come_with_a_deadline_and_a_key(rig: Rig) -> None:
    client, asker = client_of(rig, "mdx")
    client.request(1, b"echo", [b"x"], 1.5, options=RequestOptions(group=b"g", key=b"k"))
    pairs = [b"within", b"1500", b"key", b"k", b"group", b"g", b""]
    assert client.out == [[C, b"WITH", *pairs, b"echo", (1).to_bytes(8, "big"), b"x"]]
    asker.exchange(client)
    rig.wait(2.0)
    (failure,) = asker.exchange(client)
    assert isinstance(failure, Failure) and failure.code == "timeout"


def test_options_are_not_sent_to_a_broker_that_does_not_know_them() -> None:
    client = MdxClientEnd()
    client.request(1, b"echo", [b"x"], options=MARKED)
    assert client.out == [[C, b"\x01", b"echo", (1).to_bytes(8, "big"), b"x"]]


def test_unknown_options_are_ignored(rig: Rig) -> None:
    peer = peer_of(rig, MdxSession)
    peer.say(C, b"WITH", b"colour", b"red", b"group", b"g", b"", b"echo", b"1", b"body")
    (request,) = peer.session.requests
    assert marks(request) == (b"g", b"") and not rig.notes.violations


@pytest.mark.parametrize(
    "rest",
    [
        [],
        [b""],
        [b"group", b"g"],
        [b"group", b"g", b"echo", b"1", b"body"],
        [b"group", b"", b"", b"echo", b"1", b"body"],
        [b"group", b"a\nb", b"", b"echo", b"1", b"body"],
        [b"group", b"\xff", b"", b"echo", b"1", b"body"],
        [b"near", b"n" * 256, b"", b"echo", b"1", b"body"],
        [b"within", b"x", b"", b"echo", b"1", b"body"],
        [b"within", b"1" * 11, b"", b"echo", b"1", b"body"],
        [b"group", b"g", b"", b"", b"1", b"body"],
        [b"group", b"g", b"", b"echo", b"", b"body"],
        [*[b"a", b"b"] * 9, b"", b"echo", b"1", b"body"],
    ],
)
def test_malformed_options_are_a_violation(rig: Rig, rest: list[bytes]) -> None:
    peer = peer_of(rig, MdxSession)
    peer.say(C, b"WITH", *rest)
    assert rig.notes.violations and not peer.session.requests


def test_options_that_were_not_announced_are_a_violation(rig: Rig) -> None:
    peer = peer_of(rig, MdxSession, NO_EXTENSIONS)
    peer.say(C, b"WITH", b"group", b"g", b"", b"echo", b"1", b"body")
    assert rig.notes.violations and not peer.session.requests


@pytest.mark.parametrize("origin", ["", "alice b"])
@pytest.mark.parametrize("options", [PLAIN, MARKED, RequestOptions(near=b"a b")])
def test_a_request_between_processes_carries_its_marks(origin: str, options: RequestOptions) -> None:
    message = (
        CALL + b"0" * 12 + frame(b"echo", True) + details("n" * 26, 7, b"mdx\nheaders", origin, options) + b"\0\1x"
    )
    call = SiblingCall(message, 0, len(message))
    assert (call.options.group, call.options.near) == (options.group, options.near)
    assert (call.milliseconds, call.origin, call.facts and call.facts.headers) == (7, origin, b"headers")


def test_marks_over_a_bridge() -> None:
    found = read_marks(marks_of(MARKED))
    assert (found.group, found.near) == (MARKED.group, MARKED.near)
    assert read_marks(marks_of(PLAIN)) is PLAIN
