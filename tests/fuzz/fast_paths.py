"""The fast path (``Handler.fast_path``, and memo01 by the last header) and the general path do the same, for input that arrives whole,
byte by byte, or in between."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from unittest.mock import patch

from polydomo.broker.observe.recorder import Recorder
from polydomo.model.records import Departure, Request, Session, Worker
from polydomo.protocols.detect import Detector
from polydomo.protocols.memo import messages
from polydomo.protocols.memo import session as memo_session
from polydomo.wire import frames, sp
from polydomo.wire.link import Link
from tests.forms import GeneralDetector
from tests.fuzz.targets import Room, target

EMQP = [b"", b"eMQP/1.0"]
TOKENS = [b"00000000%d001" % number for number in range(2, 5)]  # of the requests that ``Room.honest`` leaves to others


class Notes(Recorder):
    def __init__(self) -> None:
        self.wants_requests = True
        self.said: list[tuple[object, ...]] = []

    def ended(self, request: Request) -> None:
        self.said.append(("ended", request.number, request.outcome, request.history.reason))

    def left(self, worker: Worker, departure: Departure, why: str, *facts: object) -> None:
        state = departure.state
        self.said.append(("left", worker.number, state, why))

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        # The size is with the frame's head, which may be longer than it need be.
        self.said.append(("stale", worker.number, token, what))

    def refused(self, session: Session, what: str) -> None:
        self.said.append(("refused", session.number, what))

    def violated(self, session: Session, what: str) -> None:
        self.said.append(("violated", session.number, what))


def play(data: bytes, join: "Callable[[Room], Link]", step: int, detector: type[Detector] = Detector) -> list[object]:
    """Everything that can be observed of a peer that joins and sends ``data``."""
    notes = Notes()
    room = Room()
    room.detector = detector
    room.broker.record_to(notes)
    room.honest()
    link = join(room)
    for at in range(0, len(data), step):
        link.receive(data[at : at + step])
    room.turn()
    broker = room.broker
    observed: list[object] = [(b"".join(map(bytes, one.out)), one.closing, one.pauses) for one in room.links]
    observed += [(worker.number, worker.last_heard, worker.credit, sorted(worker.held)) for worker in broker.workers]
    observed += [_asked(request) for session in broker.sessions for request in session.requests]
    observed += [broker.open_requests, broker.held_bytes, sorted(broker.services), notes.said]
    room.close()
    return observed


def _asked(request: Request) -> tuple[object, ...]:
    terms = request.time_limits
    times = (terms.deadline, terms.queue_deadline, terms.max_run) if terms is not None else ()
    return request.number, request.service.name, bytes(request.body), request.max_attempts, times


def compare(data: bytes, join: "Callable[[Room], Link]", slowly: "list[AbstractContextManager[object]]") -> None:
    with ExitStack() as stack:
        for each in slowly:
            stack.enter_context(each)
        general = play(data, join, max(1, len(data)), GeneralDetector)
    for step in (max(1, len(data)), 1, 7):
        assert play(data, join, step) == general


@target
def fast_path(data: bytes) -> None:
    compare(data, Room.zmtp, [])


@target
def memo_fast_path(data: bytes) -> None:
    """memo01 knows the last JOB's header, and what a RESULT begins with, by their bytes. (Compiled code contains both constants: there
    the comparison shows only that every split of the bytes gives the same.)"""
    compare(data, Room.sp, [patch.object(memo_session, "LAST_ASKED", -1), patch.object(messages, "WORKER_RESULT", b"")])


def honest() -> list[bytes]:
    """Messages that take the fast path, one after the other."""
    bodies = [b"one", b"", b"two" * 100]
    many = [[b"", b"MDPC01", b"echo", b"%d" % number] for number in range(10)]  # more than ``Room`` takes of one client
    mdp1 = [[b"", b"MDPC01", b"echo", body] for body in bodies]
    mdp1 += [
        [b"", b"MDPC01", b"mmi.service", b"echo"],
        [b"", b"MDPC01", b"mmi.service", b"x"],
        [b"", b"MDPC01", b"echo"],
    ]
    emqp = [[*EMQP, b"REQUEST", b"m", b"echo", b"reply-requested", body] for body in bodies]
    emqp += [
        [*EMQP, b"REQUEST", b"m", b"x", b"", b"y"],
        [*EMQP, b"KBYE", b"k"],
        [*EMQP, b"REQUEST", b"m", b"x", b"", b"y"],
    ]
    mdp1_worker = [[b"", b"MDPW01", b"\x01", b"echo"]]
    mdp1_worker += [[b"", b"MDPW01", b"\x03", token, b"", body] for token, body in zip(TOKENS, bodies, strict=True)]
    mdp1_worker += [
        [b"", b"MDPW01", b"\x04"],
        [b"", b"MDPW01", b"\x05"],
        [b"", b"MDPW01", b"\x03", TOKENS[1], b"", b""],
    ]
    emqp_worker = [[*EMQP, b"INFORM", b"i", b"echo", b"worker"], [*EMQP, b"READY", b"r"], [*EMQP, b"READY", b"r"]]
    emqp_worker += [
        [*EMQP, b"REPLY", b"a", b"one", TOKENS[0]],
        [*EMQP, b"READY", b"r"],
        [*EMQP, b"REPLY", TOKENS[1], b""],
    ]
    emqp_worker += [
        [*EMQP, b"HEARTBEAT", b"h"],
        [*EMQP, b"DISCONNECT", b"d"],
        [*EMQP, b"READY", b"r"],
        [*EMQP, b"REPLY", b"a", b""],
    ]
    mdx = [[b"MDXC01", b"\x01", b"echo", b"%d" % (number % 7), b"x" * number] for number in range(10)]
    mdx_worker = [[b"MDXW01", b"\x01", b"echo"]]
    mdx_worker += [[b"MDXW01", b"\x04", token, b"", token, body] for token, body in zip(TOKENS, bodies, strict=True)]
    mdx_worker += [[b"MDXW01", b"PING"], [b"MDXW01", b"\x06"], [b"MDXW01", b"\x04", TOKENS[1], b"", TOKENS[1], b""]]
    return [b"".join(map(frames.join, said)) for said in (mdp1, emqp, many, mdx, mdp1_worker, emqp_worker, mdx_worker)]


def honest_memo() -> list[bytes]:
    """JOBs like the last one, and RESULTs."""
    client = [messages.job(b"", b"echo", 1000) + body for body in (b"one", b"", b"two" * 100)]
    client += [messages.job(b"", b"echo", 1001) + b"x", messages.job(b"", b"x", 1) + b"y"]
    identity = b"".join([bytes(messages.ID_SIZE - 1), b"\x01"])  # what ``Room`` calls its first memo01 worker
    worker = [
        messages.ready([b"echo"]),
        messages.WORKER_RESULT + identity + b"one",
        messages.WORKER_RESULT + identity,
        messages.heartbeat(identity),
    ]
    return [
        b"".join(sp.message((0x80000000 | i).to_bytes(4, "big"), one) for i, one in enumerate(said))
        for said in (client, worker)
    ]
