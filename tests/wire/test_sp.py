"""SP: hello, messages in any split, request ids that came through devices, limits, pausing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.wire import sp
from polydomo.wire.close_reason import CloseCause, CloseReason
from polydomo.wire.link import PAUSE_AT_LIMIT, Hub, Link, LinkHandler
from polydomo.wire.sp import SpLink

REQ_HELLO = bytes.fromhex("0053500000300000")
REP_HELLO = bytes.fromhex("0053500000310000")
RID = bytes.fromhex("80000001")


class Catcher(LinkHandler):
    """Records what a link passes on; pauses or closes it on request."""

    def __init__(self) -> None:
        self.opened = 0
        self.messages: list[bytes] = []
        self.reason = ""
        self.link: Link | None = None
        self.pause_after = 0
        self.close_after = 0

    def on_open(self) -> None:
        self.opened += 1

    def on_message(self, data: bytes, start: int, end: int) -> None:
        self.messages.append(data[start:end])
        if self.link is not None and len(self.messages) == self.pause_after:
            self.link.pause(PAUSE_AT_LIMIT)
        if self.link is not None and len(self.messages) == self.close_after:
            self.link.close(CloseCause.OTHER, "enough")

    def on_close(self, reason: CloseReason) -> None:
        self.reason = str(reason)


def make(listener: bool = True, ipc: bool = False, max_message: int = 1000) -> tuple[SpLink, Catcher]:
    catcher = Catcher()
    link = SpLink(Hub(), catcher, "peer", listener=listener, ipc=ipc, max_message=max_message)
    catcher.link = link
    return link, catcher


def sent(link: SpLink) -> bytes:
    data = b"".join(bytes(piece) for piece in link.out)
    link.out.clear()
    return data


def hello_of(listener: bool) -> bytes:
    """The hello of the peer of a listener, or of a dialer."""
    return REQ_HELLO if listener else REP_HELLO


@pytest.mark.parametrize("listener", [True, False])
def test_each_end_sends_its_hello_at_once(listener: bool) -> None:
    link, catcher = make(listener)
    assert sent(link) == (REP_HELLO if listener else REQ_HELLO)
    assert link.hub.dirty == [link]
    assert not link.open and catcher.opened == 0
    link.receive(hello_of(listener))
    assert link.open and catcher.opened == 1


@pytest.mark.parametrize("ipc", [True, False])
def test_the_two_ends_understand_each_other(ipc: bool) -> None:
    server, server_side = make(True, ipc)
    client, client_side = make(False, ipc)
    server.receive(sent(client))
    client.receive(sent(server))
    client.send_message(RID, b"head", b"payload")
    server.receive(sent(client))
    assert server_side.messages == [RID + b"headpayload"]
    server.send_message(RID, b"", b"reply")
    client.receive(sent(server))
    assert client_side.messages == [RID + b"reply"]
    assert server.closing is None and client.closing is None


def test_a_message_has_its_length_in_front_and_on_ipc_a_01_too() -> None:
    assert sp.message(RID, b"abc") == bytes.fromhex("0000000000000007 80000001 616263")
    assert sp.message(RID, b"abc", ipc=True) == bytes.fromhex("01 0000000000000007 80000001 616263")
    for ipc in (False, True):
        link, _ = make(True, ipc)
        sent(link)
        link.send_message(RID, b"a", b"bc")
        assert sent(link) == sp.message(RID, b"abc", ipc)


def test_a_large_payload_is_sent_without_a_copy() -> None:
    link, _ = make()
    link.out.clear()
    payload = bytes(1 << 20)
    link.send_message(RID, b"head", payload)
    assert link.needs_full_flush
    assert link.out[-1] is payload


@pytest.mark.parametrize(
    ("hello", "text"),
    [
        ("0053500000200000", "SP protocol 0x0020 (PUB): REP talks to REQ only"),
        ("0053500000310000", "SP protocol 0x0031 (REP): REP talks to REQ only"),
        ("0053500001230000", "SP protocol 0x0123 (unknown): REP talks to REQ only"),
        ("0053500000300001", "not an SP hello"),
        ("0053500100300000", "not an SP hello"),
        ("0153", "not an SP hello"),
        ("ff", "not an SP hello"),
        ("474554202f20485454502f312e31", "not an SP hello"),
    ],
)
@pytest.mark.parametrize("step", [1, 100])
def test_a_wrong_hello_ends_the_connection(hello: str, text: str, step: int) -> None:
    link, catcher = make()
    data = bytes.fromhex(hello)
    for i in range(0, len(data), step):
        link.receive(data[i : i + step])
    assert link.closing == f"protocol violation: {text}"
    assert catcher.opened == 0
    link.receive(REQ_HELLO + sp.message(RID, b"late"))
    assert catcher.messages == []


def test_a_dialer_takes_rep_only() -> None:
    link, _ = make(listener=False)
    link.receive(REQ_HELLO)
    assert link.closing == "protocol violation: SP protocol 0x0030 (REQ): REQ talks to REP only"


@st.composite
def streams(draw: st.DrawFn) -> tuple[bool, bool, list[bytes], list[int]]:
    """(listener, ipc, messages, places to cut)"""
    listener = draw(st.booleans())
    ipc = draw(st.booleans())
    messages = []
    for body in draw(st.lists(st.binary(max_size=60), max_size=6)):
        hops = draw(st.integers(0, 7)) if listener else 0
        words = [draw(st.integers(0, 0x7FFFFFFF)) for _ in range(hops)] + [draw(st.integers(0x80000000, 0xFFFFFFFF))]
        messages.append(b"".join(word.to_bytes(4, "big") for word in words) + body)
    size = 8 + sum(len(message) + 8 + ipc for message in messages)
    return listener, ipc, messages, sorted(draw(st.lists(st.integers(0, size), max_size=12)))


@given(streams())
def test_any_split_gives_the_same_messages(stream: tuple[bool, bool, list[bytes], list[int]]) -> None:
    listener, ipc, messages, cuts = stream
    data = hello_of(listener) + b"".join(sp.message(m[:4], m[4:], ipc) for m in messages)
    link, catcher = make(listener, ipc)
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        link.receive(data[begin:end])
    assert link.closing is None
    assert catcher.messages == messages


@pytest.mark.parametrize("ipc", [True, False])
def test_split_at_every_place_and_byte_by_byte(ipc: bool) -> None:
    messages = [RID + b"one", RID, b"\x00\x00\x00\x07" + RID + b"x" * 40]
    data = REQ_HELLO + b"".join(sp.message(m[:4], m[4:], ipc) for m in messages)
    for cut in range(len(data) + 1):
        link, catcher = make(ipc=ipc)
        link.receive(data[:cut])
        link.receive(data[cut:])
        assert catcher.messages == messages
    link, catcher = make(ipc=ipc)
    for i in range(len(data)):
        link.receive(data[i : i + 1])
    assert catcher.messages == messages


@given(st.lists(st.binary(max_size=40), max_size=8), st.booleans(), st.booleans())
def test_any_bytes_give_messages_or_a_violation(pieces: list[bytes], listener: bool, ipc: bool) -> None:
    link, catcher = make(listener, ipc)
    link.receive(hello_of(listener))
    for piece in pieces:
        link.receive(piece)
    assert link.closing is None or link.closing.startswith("protocol violation: ")
    for message in catcher.messages:
        assert sp.body_at(message, 0, len(message))


def test_a_length_over_the_bound_is_refused_before_the_bytes_arrive() -> None:
    link, catcher = make(max_message=1000)
    link.receive(REQ_HELLO + (1001).to_bytes(8, "big"))
    assert link.closing == "protocol violation: message of 1001 bytes; the limit is 1000"
    link, catcher = make(max_message=1000)
    link.receive(REQ_HELLO + sp.message(RID, bytes(996)))
    assert link.closing is None and len(catcher.messages) == 1
    link.receive(b"\xff" * 8)
    assert link.closing is not None


@pytest.mark.parametrize("size", [0, 3])
def test_a_message_without_room_for_a_request_id_is_a_violation(size: int) -> None:
    link, _ = make()
    link.receive(REQ_HELLO + size.to_bytes(8, "big"))
    assert link.closing == "protocol violation: SP message without a request id"


def test_a_message_type_other_than_01_on_ipc_is_a_violation() -> None:
    link, _ = make(ipc=True)
    link.receive(REQ_HELLO + b"\x02" + sp.message(RID, b""))
    assert link.closing == "protocol violation: SP message of type 0x02 on IPC"


def test_ids_from_devices_are_kept_completely() -> None:
    stack = b"".join(word.to_bytes(4, "big") for word in range(7)) + RID
    link, catcher = make()
    link.receive(REQ_HELLO + sp.message(stack, b"body"))
    assert catcher.messages == [stack + b"body"]
    assert sp.split(catcher.messages[0], 0, len(stack) + 4) == [stack, b"body"]


def test_too_many_hops_are_dropped_and_the_connection_stays() -> None:
    link, catcher = make()
    link.receive(REQ_HELLO + sp.message(bytes(32) + RID, b"far") + sp.message(RID, b"near"))
    assert catcher.messages == [RID + b"near"]
    assert link.dropped == 1 and link.closing is None


def test_a_stack_that_never_ends_is_a_violation() -> None:
    link, _ = make()
    link.receive(REQ_HELLO + sp.message(bytes(8), b"ab"))
    assert link.closing == "protocol violation: SP message without a request id"


def test_a_reply_without_the_top_bit_is_a_violation() -> None:
    link, _ = make(listener=False)
    link.receive(REP_HELLO + sp.message(bytes(4) + RID, b""))
    assert link.closing == "protocol violation: SP reply whose request id lacks its top bit"


@given(st.integers(1, 5), st.integers(0, 200), st.booleans())
def test_a_paused_link_resumes_where_it_stopped(pause_after: int, cut: int, together: bool) -> None:
    messages = [RID + bytes((i,)) * (i * 7) for i in range(5)]
    data = REQ_HELLO + b"".join(sp.message(m[:4], m[4:]) for m in messages)
    link, catcher = make()
    catcher.pause_after = pause_after
    link.receive(data[:cut])
    if together and link.pauses:
        link.receive(b"")  # asked too early: nothing happens
    link.receive(data[cut:])
    assert catcher.messages == messages[:pause_after]
    link.resume(PAUSE_AT_LIMIT)
    assert link.hub.resumed == [link]
    link.receive(b"")
    assert catcher.messages == messages


def test_pausing_after_every_message_does_not_copy_the_rest_each_time() -> None:
    count = 20_000
    link, catcher = make()
    data = REQ_HELLO + sp.message(RID, b"x") * count
    catcher.pause_after = 1
    link.receive(data)
    rest = link._rest
    for done in range(1, 50):
        assert len(catcher.messages) == done
        assert link._rest is rest
        catcher.pause_after = done + 1
        link.resume(PAUSE_AT_LIMIT)
        link.receive(b"")
    catcher.pause_after = 0
    link.resume(PAUSE_AT_LIMIT)
    link.receive(b"")
    assert len(catcher.messages) == count


def test_a_closing_link_hands_nothing_over() -> None:
    link, catcher = make()
    catcher.close_after = 2
    link.receive(REQ_HELLO + sp.message(RID, b"x") * 3)
    assert len(catcher.messages) == 2
    link.receive(sp.message(RID, b"x"))
    assert len(catcher.messages) == 2
    link.lost()
    assert catcher.reason == "enough"


def test_a_large_message_in_many_pieces_is_gathered_once() -> None:
    body = bytes(range(256)) * 4096
    link, catcher = make(max_message=2 << 20)
    data = REQ_HELLO + sp.message(RID, body) + sp.message(RID, b"after")
    for i in range(0, len(data), 1000):
        link.receive(data[i : i + 1000])
    assert catcher.messages == [RID + body, RID + b"after"]
