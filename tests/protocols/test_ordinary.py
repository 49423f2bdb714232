"""The quick way through a session does what the long one does: same bytes in, in any split, same bytes out."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polydomo.broker.core import Broker, Entropy
from polydomo.protocols.detect import Detector
from polydomo.protocols.emqp import EmqpSession
from polydomo.protocols.mdp1 import Mdp1Session
from polydomo.wire.frames import join, split
from polydomo.wire.link import Hub
from polydomo.wire.mechanism import command, properties
from polydomo.wire.zmtp import Bounds, ZmtpLink

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = command(b"READY", properties([(b"Socket-Type", b"DEALER"), (b"Identity", b"")]))
BOUNDS = Bounds(max_frame=5000, max_frames=20, max_message=8000)

MDP_CLIENT = [
    join([b"", b"MDPC01", b"echo", b"x" * size]) for size in (0, 1, 64, 255, 256, 2000, 4900, 5001)
] + [
    join([b"", b"MDPC01", b"other", b"y"]),
    join([b"", b"MDPC01", b"echo", b"two", b"frames"]),
    join([b"", b"MDPC01", b"echo"]),
    join([b"", b"MDPC01", b""]),
    join([b"", b"MDPC01", b"mmi.service", b"echo"]),
    join([b"", b"MDPC02", b"echo", b"x"]),
    b"\x01\x00\x01\x06MDPC01\x01\x04echo\x02" + (3).to_bytes(8, "big") + b"abc",  # the long form where the short one does
    b"\x01\x00\x01\x06MDPC01\x01\x04echo\x04\x03abc",
    b"\xff",
]
EMQP = [b"", b"eMQP/1.0"]
EMQP_CLIENT = [
    join([*EMQP, b"REQUEST", b"m1", b"echo", b"reply-requested", b"x" * size]) for size in (0, 1, 64, 256, 2900, 5001)
] + [
    join([*EMQP, b"REQUEST", b"m2" * 200, b"echo", b"reply-requested", b"a long id"]),
    join([*EMQP, b"REQUEST", b"m3", b"other", b"reply-requested", b"no such queue"]),
    join([*EMQP, b"REQUEST", b"m4", b"echo", b"", b"no reply wanted"]),
    join([*EMQP, b"REQUEST", b"m5", b"echo", b"reply-requested,timeout:5", b"timed"]),
    join([*EMQP, b"REQUEST", b"m6", b"\xff\xfe", b"reply-requested", b"a name that is not text"]),
    join([*EMQP, b"REQUEST", b"m7", b"echo", b"reply-requested", b"one", b"frame too many"]),
    join([*EMQP, b"REQUEST", b"m8", b"echo"]),
    join([*EMQP, b"READY", b"m9", b"echo", b'{"reply-requested": true}', b"as the document prints it"]),
    join([*EMQP, b"NOTHING", b"m10"]),
]


def mdp_reply(token: bytes, size: int) -> bytes:
    return join([b"", b"MDPW01", b"\x03", token, b"", b"r" * size])


def emqp_reply(token: bytes, size: int) -> bytes:
    if size % 2:
        return join([*EMQP, b"REPLY", token, b"r" * size])
    return join([*EMQP, b"REPLY", b"own", b"r" * size, token])


MDP_WORKER = [
    join([b"", b"MDPW01", b"\x04"]),
    join([b"", b"MDPW01", b"\x03", b"000000001001", b"", b"maybe not its own"]),
    join([b"", b"MDPW01", b"\x03", b"short", b"", b"x"]),
    join([b"", b"MDPC01", b"echo", b"a worker asks"]),
    join([b"", b"MDPW01", b"\x05"]),
]
EMQP_WORKER = [
    *[join([*EMQP, b"READY", b"w%d" % number]) for number in range(4)],
    join([*EMQP, b"HEARTBEAT", b"w5"]),
    join([*EMQP, b"REPLY", b"w6", b"stale", b"000000000001"]),
    join([*EMQP, b"REPLY", b"w7", b"for the oldest"]),
    join([*EMQP, b"REQUEST", b"w8", b"echo", b"reply-requested", b"a worker asks"]),
    join([*EMQP, b"KBYE", b"w9"]),
]


class Fixed(Entropy):
    def take(self, size: int) -> bytes:
        return b"e" * size


class World:
    """A broker, two clients, two workers, and all that was said to them."""

    def __init__(self, hello: bytes, token_of: Callable[[list[bytes]], bytes], reply: Callable[[bytes, int], bytes]) -> None:
        self.hub = Hub()
        self.broker = Broker(1.0, Fixed())
        self.token_of = token_of
        self.reply = reply
        self.links = [self.join(b"") for _ in range(2)] + [self.join(hello) for _ in range(2)]
        self.heard = [b"" for _ in self.links]
        self.jobs: list[list[bytes]] = [[] for _ in self.links]

    def join(self, hello: bytes) -> ZmtpLink:
        detector = Detector(self.broker)
        link = ZmtpLink(self.hub, detector, "tcp://127.0.0.1:1", bounds=BOUNDS)
        detector.attach(link)
        link.receive(GREETING + READY + hello)
        link.out.clear()
        return link

    def say(self, who: int, data: bytes, cuts: list[int]) -> None:
        link = self.links[who]
        places = sorted({cut % (len(data) + 1) for cut in cuts})
        for begin, end in zip([0, *places], [*places, len(data)], strict=True):
            link.receive(data[begin:end])
        for number, other in enumerate(self.links):
            said = b"".join(map(bytes, other.out))
            other.out.clear()
            self.heard[number] += said
            if number >= 2:
                self.jobs[number] += [token for message in messages(said) if (token := self.token_of(message))]

    def seen(self) -> object:
        monitor = self.broker.monitor
        services = {name: (service.accepted, service.answered, service.failed) for name, service in self.broker.services.items()}
        return self.heard, [link.closing for link in self.links], monitor.violations, monitor.stale, monitor.refused, services


def messages(data: bytes) -> list[list[bytes]]:
    """What was sent over a wire, message by message."""
    found = []
    start = at = 0
    while at < len(data):
        flags = data[at]
        size = int.from_bytes(data[at + 1 : at + 9], "big") if flags & 2 else data[at + 1]
        at += (9 if flags & 2 else 2) + size
        if not flags & 1:
            found.append(split(data[start:at]))
            start = at
    return found


def mdp_token(message: list[bytes]) -> bytes:
    return message[3] if message[2] == b"\x02" else b""


def emqp_token(message: list[bytes]) -> bytes:
    return message[3] if message[2] == b"REQUEST" else b""


Step = tuple[int, int, list[int], int]
CUTS = st.lists(st.integers(0, 400), max_size=3)
STEPS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 40), CUTS, st.integers(1, 4)), max_size=25)


def play(world: World, steps: list[Step], client: list[bytes], worker: list[bytes]) -> World:
    for who, choice, cuts, times in steps:
        if who < 2:
            # mostly the first ones, which are ordinary, and several at once
            message = client[choice % len(client)] if choice % 3 == 0 else client[choice % 4]
            world.say(who, message * times, cuts)
        elif world.jobs[who] and choice % 4:
            said = b"".join([world.reply(token, (choice * 37) % 300) for token in world.jobs[who][:times]])
            del world.jobs[who][:times]
            world.say(who, said + (worker[0] if choice % 2 else b""), cuts)
        else:
            world.say(who, worker[choice % len(worker)], cuts)
    return world


@given(STEPS)
def test_mdp1(steps: list[Step]) -> None:
    def world() -> World:
        return World(join([b"", b"MDPW01", b"\x01", b"echo"]), mdp_token, mdp_reply)

    quick = play(world(), steps, MDP_CLIENT, MDP_WORKER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Mdp1Session, "hasty", False)
        long = play(world(), steps, MDP_CLIENT, MDP_WORKER)
    assert quick.seen() == long.seen()


@given(STEPS)
def test_emqp(steps: list[Step]) -> None:
    def world() -> World:
        hello = join([*EMQP, b"INFORM", b"i", b"echo"]) + join([*EMQP, b"READY", b"r"]) * 2
        return World(hello, emqp_token, emqp_reply)

    quick = play(world(), steps, EMQP_CLIENT, EMQP_WORKER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmqpSession, "hasty", False)
        long = play(world(), steps, EMQP_CLIENT, EMQP_WORKER)
    assert quick.seen() == long.seen()


def test_the_quick_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the two above would compare the long way with itself."""
    taken: list[type] = []
    for kind in (Mdp1Session, EmqpSession):

        def counted(
            self: object, data: bytes, start: int, end: int, kind: type = kind, real: Callable[..., None] = kind.on_message
        ) -> None:
            taken.append(kind)
            real(self, data, start, end)

        monkeypatch.setattr(kind, "on_message", counted)
    mdp = World(join([b"", b"MDPW01", b"\x01", b"echo"]), mdp_token, mdp_reply)
    mdp.say(0, MDP_CLIENT[2] * 10 + MDP_CLIENT[5], [])
    taken.clear()
    mdp.say(0, MDP_CLIENT[2] * 10 + MDP_CLIENT[5], [])
    mdp.say(2, mdp_reply(mdp.jobs[2][0], 64), [])
    emqp = World(join([*EMQP, b"INFORM", b"i", b"echo"]) + join([*EMQP, b"READY", b"r"]), emqp_token, emqp_reply)
    emqp.say(0, EMQP_CLIENT[2], [])
    taken.clear()
    emqp.say(0, EMQP_CLIENT[2] * 10 + EMQP_CLIENT[4], [])
    emqp.say(2, emqp_reply(emqp.jobs[2][0], 64) + EMQP_WORKER[0], [])
    assert taken == []
