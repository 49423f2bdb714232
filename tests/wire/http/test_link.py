"""HTTP connections are charged for what their requests cost, and leave the turn when their share is used up."""

from collections.abc import Callable

import pytest

from chaos.siege.peers import websocket_frame
from polydomo import limits
from polydomo.wire.http.head import HttpError, RequestHead
from polydomo.wire.http.link import HttpLink
from polydomo.wire.http.websocket import WebSocket
from polydomo.wire.link import PAUSE_SHARE_USED, Hub, LinkHandler, Turns
from polydomo.wire.steps import Steps

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Page(LinkHandler):
    """Answers each request at once, or as ``on`` says."""

    def __init__(self, link: HttpLink) -> None:
        self.link = link
        self.served: list[bytes] = []
        self.on: Callable[[bytes], None] = lambda body: link.respond(200, b"", body)

    def on_head(self, head: RequestHead) -> None:
        pass

    def on_request(self, head: RequestHead, body: bytes) -> None:
        self.served.append(body)
        self.on(body)

    def on_bad_request(self, head: RequestHead | None, error: HttpError) -> None:
        self.link.respond(error.status, b"")

    def on_linger(self) -> None:
        pass


class Clock:
    """Time passes only where a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def connected(clock: Clock | None = None) -> tuple[HttpLink, Page]:
    hub = Hub(Turns())
    hub.clock = clock
    link = HttpLink(hub, "tcp://192.0.2.1:1")
    page = Page(link)
    link.attach(page, page)
    return link, page


def turn(link: HttpLink) -> None:
    """The next turn of the loop."""
    hub = link.hub
    hub.begin_turn()
    resumed, hub.resumed = hub.resumed, []
    for one in resumed:
        one.receive(b"")


def test_chunks_of_one_byte_are_read_over_several_turns() -> None:
    link, page = connected()
    count = 100_000
    link.receive(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    link.receive(b"1\r\nx\r\n" * count + b"0\r\n\r\n")
    turns = 0
    while not page.served:
        assert link.pauses == PAUSE_SHARE_USED
        before = link.reader.buffered
        turn(link)
        turns += 1
        assert before - link.reader.buffered <= 6 * (1.5 * limits.TURN_SHARE + 2 * limits.CHUNKS_AT_ONCE)
    assert turns > 5
    assert page.served == [b"x" * count]


def test_pipelined_requests_are_answered_over_several_turns() -> None:
    link, page = connected()
    link.receive(GET * 1000)
    while len(page.served) < 1000:
        before = len(page.served)
        assert link.pauses & PAUSE_SHARE_USED
        turn(link)
        assert 0 < len(page.served) - before <= 1.5 * limits.TURN_SHARE / limits.WORK_HTTP + 1


def test_requests_that_are_rejected_are_charged_too() -> None:
    link, page = connected()

    def reject(body: bytes) -> None:
        raise HttpError(401, "no", close=False)

    page.on = reject
    link.receive(GET * 1000)
    assert link.pauses & PAUSE_SHARE_USED and len(page.served) < 300


def test_the_time_of_a_request_is_charged_if_it_exceeds_its_price() -> None:
    clock = Clock()
    link, page = connected(clock)

    def slowly(body: bytes) -> None:
        clock.now += 0.01
        link.respond(200, b"")

    page.on = slowly
    link.receive(GET * 10)
    assert len(page.served) == 1, "ten milliseconds are five shares"
    assert link.pauses & PAUSE_SHARE_USED
    assert link.hub.work_left <= limits.TURN_WORK - 9_000, "and are charged to the turn"
    for count in range(2, 11):
        turn(link)
        assert len(page.served) == count


def test_a_quick_request_is_charged_its_price() -> None:
    clock = Clock()
    link, page = connected(clock)
    link.receive(GET * 3)
    assert len(page.served) == 3 and not link.pauses


class Long(Steps):
    def __init__(self, link: HttpLink, clock: Clock, count: int) -> None:
        self.link = link
        self.clock = clock
        self.left = count

    def step(self) -> bool:
        self.clock.now += 0.001
        self.left -= 1
        if not self.left:
            self.link.respond(200, b"", b"built")
        return not self.left

    def held(self) -> int:
        return limits.MIB


@pytest.mark.parametrize("later", [False, True])
def test_long_work_goes_on_in_later_turns(later: bool) -> None:
    """Whether it begins with the request or with a reply that arrives later, and whatever the client pipelines."""
    clock = Clock()
    link, page = connected(clock)
    work = Long(link, clock, 20)
    page.on = lambda body: None if later else link.run(work)
    link.receive(GET * 2)
    if later:
        assert work.left == 20 and link.pauses
        link.run(work)
    turns = 0
    page.on = lambda body: link.respond(200, b"", b"second")
    while work.left:
        before = work.left
        turn(link)
        turns += 1
        assert before - work.left <= 4
        if work.left:
            assert link.hub.input_bytes >= limits.MIB, "it is booked"
            assert len(page.served) == 1, "the next request waits"
    assert turns >= 5
    for _ in range(3):
        turn(link)
    assert len(page.served) == 2
    out = b"".join(map(bytes, link.out))
    assert out.index(b"built") < out.index(b"second")
    assert not link.hub.input_bytes


def test_work_that_fails_is_answered() -> None:
    class Failing(Steps):
        def step(self) -> bool:
            raise HttpError(413, "too much", close=False)

    link, page = connected()
    page.on = lambda body: link.run(Failing())
    link.receive(GET)
    assert b"".join(map(bytes, link.out)).startswith(b"HTTP/1.1 413")
    assert link.steps is None and not link.busy


def test_work_ends_with_its_connection() -> None:
    clock = Clock()
    link, page = connected(clock)
    page.on = lambda body: link.run(Long(link, clock, 20))
    link.receive(GET)
    assert link.hub.input_bytes
    link.lost()
    turn(link)
    assert link.steps is None and not link.hub.input_bytes and not link.hub.turns_waiting()


def test_what_is_kept_for_a_response_is_booked_until_it_is_complete() -> None:
    link, page = connected()
    page.on = lambda body: link.start(200, b"")
    link.receive(GET)
    for count in (1, 2):
        link.write(b"part")
        link.keep(limits.MIB)
        assert link.hub.input_bytes == count * limits.MIB
    link.finish()
    assert not link.hub.input_bytes


class Socket:
    """The tunnel of a WebSocket."""

    def __init__(self) -> None:
        self.socket = WebSocket()
        self.messages: list[object] = []

    def on_tunnel_data(self, data: bytes) -> None:
        self.messages += self.socket.receive(data)

    def unfinished(self) -> int:
        return self.socket.unfinished()

    def drop_unfinished(self) -> None:
        self.socket.drop_unfinished()


def test_unfinished_messages_of_a_websocket_are_booked() -> None:
    link, page = connected()
    tunnel = Socket()
    page.on = lambda body: link.upgrade(b"", tunnel)
    link.receive(GET)
    piece = b"x" * 100_000
    sent = 0
    for opcode in (1, 0, 0):
        link.receive(websocket_frame(piece, False, opcode))
        while link.pauses:
            turn(link)
        sent += len(piece)
        assert link.hub.input_bytes == sent
    link.receive(websocket_frame(piece, True, 0)[:-1])  # an unfinished frame
    while link.pauses:
        turn(link)
    assert link.hub.input_bytes >= sent + len(piece) - 1
    link.receive(websocket_frame(piece, True, 0)[-1:])
    while link.pauses:
        turn(link)
    assert len(tunnel.messages) == 1 and not link.hub.input_bytes
