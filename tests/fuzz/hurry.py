"""What sessions take in a hurry (``Handler.ordinary``) and what they take apart, whole or byte by byte, come to the same."""

from polydomo.broker.record import Recorder
from polydomo.protocols.emqp import EmqpSession
from polydomo.protocols.mdp1 import Mdp1Session
from polydomo.protocols.request import Request
from polydomo.protocols.verbs import Session, Worker
from polydomo.wire import frames
from tests.fuzz.targets import Room, target

HASTY: list[type[Session]] = [Mdp1Session, EmqpSession]
EMQP = [b"", b"eMQP/1.0"]
TOKENS = [b"00000000%d001" % number for number in range(2, 5)]  # of the requests that ``Room.honest`` leaves to others


class Notes(Recorder):
    wants_requests = True

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []

    def ended(self, request: Request) -> None:
        self.said.append(("ended", request.number, request.outcome, request.reason))

    def left(self, worker: Worker, state: str, why: str) -> None:
        self.said.append(("left", worker.number, state, why))

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        self.said.append(("stale", worker.number, token, what))  # the size is with the frame's head, which may be longer than it need be

    def refused(self, session: Session, what: str) -> None:
        self.said.append(("refused", session.number, what))

    def violated(self, session: Session, what: str) -> None:
        self.said.append(("violated", session.number, what))


def play(data: bytes, hasty: bool, step: int) -> list[object]:
    """Everything that can be seen of a peer that says ``data``."""
    for kind in HASTY:
        kind.hasty = hasty
    try:
        notes = Notes()
        room = Room()
        room.broker.record_by(notes)
        room.honest()
        link = room.zmtp()
        for at in range(0, len(data), step):
            link.receive(data[at : at + step])
        room.turn()
        broker = room.broker
        told: list[object] = [(b"".join(map(bytes, one.out)), one.closing, one.paused) for one in room.links]
        told += [(worker.number, worker.seen, worker.credit, sorted(worker.held)) for worker in broker.workers]
        told += [broker.open_requests, broker.held_bytes, sorted(broker.services), notes.said]
        room.close()
        return told
    finally:
        for kind in HASTY:
            kind.hasty = True


@target
def in_a_hurry(data: bytes) -> None:
    patient = play(data, False, max(1, len(data)))
    assert play(data, True, max(1, len(data))) == patient
    assert play(data, True, 1) == patient
    assert play(data, True, 7) == patient


def honest() -> list[bytes]:
    """Messages that are taken in a hurry, one after the other."""
    bodies = [b"one", b"", b"two" * 100]
    mdp1 = [[b"", b"MDPC01", b"echo", body] for body in bodies]
    emqp = [[*EMQP, b"REQUEST", b"m", b"echo", b"reply-requested", body] for body in bodies]
    mdp1_worker = [[b"", b"MDPW01", b"\x01", b"echo"]]
    mdp1_worker += [[b"", b"MDPW01", b"\x03", token, b"", body] for token, body in zip(TOKENS, bodies, strict=True)]
    emqp_worker = [[*EMQP, b"INFORM", b"i", b"echo", b"worker"], [*EMQP, b"READY", b"r"], [*EMQP, b"READY", b"r"]]
    emqp_worker += [[*EMQP, b"REPLY", b"a", b"one", TOKENS[0]], [*EMQP, b"READY", b"r"], [*EMQP, b"REPLY", TOKENS[1], b""]]
    return [b"".join(map(frames.join, said)) for said in (mdp1, emqp, mdp1_worker, emqp_worker)]
