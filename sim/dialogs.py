"""The rules of each protocol's document that can be checked from outside (see ``sim.dialog``)."""

from typing import TYPE_CHECKING

from polydomo.limits import MEMO_ANSWER_TIME
from polydomo.wire.link import Link
from sim.dialog import EMQP, Dialog, Message, is_goodbye
from sim.document_ends import ADDRESSED

if TYPE_CHECKING:
    from sim.watch import Watcher

DCP = b"DGBX\x01"


def recognise(first: Message, watcher: "Watcher", link: Link, name: str) -> "Dialog":
    if link.wire == "sp":
        return MemoDialog(watcher, name)
    kinds: list[tuple[Message, type[Dialog]]] = [
        ([b"", b"MDPC01"], Mdp1Dialog),
        ([b"", b"MDPW01"], Mdp1Dialog),
        ([b"MDPC02"], Mdp2Dialog),
        ([b"MDPW02"], Mdp2Dialog),
        ([b"MDXC01"], MdxDialog),
        ([b"MDXW01"], MdxDialog),
        ([b"", DCP], DcpDialog),
        ([b"", EMQP], EmqpDialog),
        ([b"PDBR01"], BridgeDialog),
        ([b"", b"UwU"], DbpDialog),
    ]
    for beginning, kind in kinds:
        if first[: len(beginning)] == beginning:
            return kind(watcher, name)
    return Dialog(watcher, name)


BRIDGE_REQUESTS = (b"REQUEST", b"CALL")  # the second one between the processes of one broker
BRIDGE_ENDS = (b"FINAL", b"FAILURE", b"REPLY")


class BridgeDialog(Dialog):
    """Another broker: each side answers what the other asked, once, and asks for what the other offers, no more than its window."""

    protocol = "bridge"

    def __init__(self, watcher: "Watcher", name: str) -> None:
        super().__init__(watcher, name)
        self.theirs: dict[bytes, None] = {}  # requests that the peer sent
        self.ours: dict[bytes, None] = {}  # requests that the broker sent
        self.offers: set[bytes] = set()
        self.window = 0

    def heard(self, frames: Message) -> None:
        if frames[1] == b"HELLO":
            self.window = int(frames[3])
        elif frames[1] == b"OFFER":
            self.offers.add(frames[2])
        elif frames[1] == b"RETRACT":
            self.offers.discard(frames[2])
        elif frames[1] in BRIDGE_REQUESTS:
            self.theirs[frames[2]] = None
        elif frames[1] == b"CANCEL":
            self.theirs.pop(frames[2], None)
        elif frames[1] in BRIDGE_ENDS:
            self.ours.pop(frames[2], None)

    def said(self, frames: Message) -> None:
        if frames[1] in BRIDGE_REQUESTS:
            if frames[2] in self.ours:
                self.breach("token", f"{frames[2]!r} was sent twice")
            if frames[3] not in self.offers:
                self.breach("unasked-job", f"was sent a request for {frames[3]!r}, which it does not offer")
            self.ours[frames[2]] = None
            if len(self.ours) > self.window:
                self.breach("unasked-job", f"was sent {len(self.ours)} requests, and takes {self.window} at a time")
        elif frames[1] == b"CANCEL":
            self.ours.pop(frames[2], None)
        elif frames[1] in BRIDGE_ENDS or frames[1] == b"PARTIAL":
            if frames[2] not in self.theirs:
                self.breach("unasked", f"{frames[1].decode()} to {frames[2]!r}, which is not open")
            if frames[1] != b"PARTIAL":
                self.theirs.pop(frames[2], None)


class DbpDialog(Dialog):
    """A service of the catalog. "S: READY, Repeat: B: REQUEST, S: REPLY": if it takes requests, it gets one after the other."""

    protocol = "dbp"
    strict = True

    def __init__(self, watcher: "Watcher", name: str) -> None:
        super().__init__(watcher, name)
        self.approved = False
        self.open = False  # a request has no reply yet

    def heard(self, frames: Message) -> None:
        if len(frames) < 3:
            return
        if frames[1] in (b"</3", b"<\\3"):
            self.parted = self.parted or "the peer"
        elif frames[1] in (b"o_O", b"(O_O)"):
            self.open = False

    def said(self, frames: Message) -> None:
        super().said(frames)
        if frames[1] == b"OwO":
            self.approved = True
        elif frames[1] == b"</3":
            self.parted = "the broker"
        elif frames[1] == b"u_U":
            if not self.approved:
                self.breach("unasked-job", "got a request before it was registered")
            if self.open:
                self.breach("unasked-job", "got a request before it replied to the last one")
            self.open = True


class MdpDialog(Dialog):
    """MDP/0.1 and MDP/0.2: a client gets at most one final reply per request; a worker holds one request at a time."""

    beats = True
    mark = 0  # where the header stands
    client = b""
    worker = b""
    codes: tuple[bytes, bytes, bytes, bytes, bytes] = (b"", b"", b"", b"", b"")  # READY REQUEST PARTIAL FINAL HEARTBEAT

    def __init__(self, watcher: "Watcher", name: str) -> None:
        super().__init__(watcher, name)
        self.open: dict[bytes, int] = {}  # requests by service
        self.ready = False

    def heard(self, frames: Message) -> None:
        super().heard(frames)
        header, rest = frames[self.mark], frames[self.mark + 1 :]
        if header == self.client and rest:
            service = rest[0] if self.client == b"MDPC01" else rest[1] if len(rest) > 1 else b""
            self.open[service] = self.open.get(service, 0) + 1
        elif header == self.worker and rest:
            ready, _, _, final, heartbeat = self.codes
            if rest[0] == ready and not self.ready:
                self.ready = True
                self.asked = 1
            elif rest[0] == final and len(rest) > 1:
                self.answered(rest[1])
            elif rest[0] == heartbeat:
                self.beaten()

    def said(self, frames: Message) -> None:
        super().said(frames)
        header, rest = frames[self.mark], frames[self.mark + 1 :]
        if header == self.client:
            final = True
            if self.client == b"MDPC02":
                final = rest[0] == b"\x03"
                rest = rest[1:]
            service = rest[0]
            if self.open.get(service, 0) < 1:
                self.breach("unasked", f"a reply from {service!r}, which has no open request of this client")
            elif final:
                self.open[service] -= 1
        elif header == self.worker and rest[0] == self.codes[1]:
            self.give(rest[1])


class Mdp1Dialog(MdpDialog):
    protocol = "mdp1"
    mark = 1
    client = b"MDPC01"
    worker = b"MDPW01"
    codes = (b"\x01", b"\x02", b"none", b"\x03", b"\x04")


class Mdp2Dialog(MdpDialog):
    protocol = "mdp2"
    client = b"MDPC02"
    worker = b"MDPW02"
    codes = (b"\x01", b"\x02", b"\x03", b"\x04", b"\x05")


class MdxDialog(Dialog):
    """ "zero or more PARTIAL RESPONSE messages followed by exactly 1 FINAL RESPONSE messages per REQUEST issued"; PING gets PONG."""

    protocol = "mdx"
    strict = True

    def __init__(self, watcher: "Watcher", name: str) -> None:
        super().__init__(watcher, name)
        self.open: dict[bytes, bytes] = {}  # id -> service
        # Ids that came again: of two in one read, the first may be refused before the second is taken.
        self.repeated: set[bytes] = set()
        self.ready = False
        self.pings = 0
        self.window = 1
        self.extended = False  # it announced the extensions, as far as its messages show

    def heard(self, frames: Message) -> None:
        super().heard(frames)
        if frames[0] == b"MDXC01" and frames[1] == b"WITHIN" and len(frames) > 5:
            frames = [frames[0], b"\x01", *frames[3:]]
        if frames[0] == b"MDXC01" and frames[1] == b"WITH":
            end = next((place for place in range(2, len(frames), 2) if not frames[place]), len(frames))
            frames = [frames[0], b"\x01", *frames[end + 1 :]]
        if frames[0] == b"MDXC01" and frames[1] == b"CANCEL":
            self.cancelled(frames[2], frames[2] in self.open)
            self.open.pop(frames[2], None)
        elif frames[0] == b"MDXC01" and frames[1] == b"\x01" and len(frames) > 4:
            self.asks(frames[3], frames[4:])
            if frames[3] in self.open:
                self.repeated.add(frames[3])
            self.open.setdefault(frames[3], frames[2])
        elif frames[0] == b"MDXW01":
            if frames[1] == b"\x01" and not self.ready:
                self.ready = True
                self.asked = 1
            elif frames[1] in (b"\x04", b"RELEASED"):
                if frames[1] == b"RELEASED" and frames[2] in self.jobs:
                    self.watcher.released_tokens.add(frames[2])
                self.answered(frames[2])
            elif frames[1] == b"CREDIT":
                self.extended = True
                self.named(frames[2])
            elif frames[1] == b"PING":
                self.beaten()
                self.pings += 1

    def said(self, frames: Message) -> None:
        super().said(frames)
        if is_goodbye(frames):
            self.pings = 0
        elif frames[0] == b"MDXC01":
            if frames[3] not in self.open:
                if frames[3] not in self.repeated or frames[4:6] != [b"", b"polydomo-failure"]:
                    self.breach("unasked", f"a reply to {frames[3]!r}, which is not open")
            elif self.open[frames[3]] != frames[2]:
                self.breach("unasked", f"a reply from {frames[2]!r} to a request for {self.open[frames[3]]!r}")
            elif frames[1] == b"\x03":
                del self.open[frames[3]]
        elif frames[1] == b"PONG":
            self.pings -= 1
        elif frames[1] == b"\x02":
            self.give(frames[2])
            if self.extended:
                self.check_time(frames[2], 0.0)
        elif frames[1] == b"WITHIN":
            self.give(frames[3])
            self.check_time(frames[3], int(frames[2]) / 1000)
        elif frames[1] in (b"CANCEL", b"REVOKE"):
            self.check_held(frames[2], frames[1].decode())

    def settled(self) -> None:
        if self.pings > 0 and not self.parted:
            self.pings = 0
            self.breach("ping", "a PING was not answered")


class DcpDialog(Dialog):
    """ "The broker MUST respond to every ping message with a pong message", or with reconnect; metadata comes back as it was."""

    protocol = "dcp"

    def __init__(self, watcher: "Watcher", name: str) -> None:
        super().__init__(watcher, name)
        self.open: dict[bytes, int] = {}  # metadata -> requests
        self.registering: list[bytes] = []
        self.services: set[bytes] = set()
        self.pings = 0
        self.address = b""  # of a client that puts its identity in front of its requests

    def heard(self, frames: Message) -> None:
        super().heard(frames)
        kind = frames[2][:1]
        if kind == b"\x01":
            self.registering.append(frames[3])
            self.strict = len(frames[2]) == 1  # DagBox's own workers, whose type has four bytes, are silent while busy
        elif kind == b"\x02":
            self.pings += 1
            self.beaten()
            if (
                self.jobs
                and self.window < 0
                and len(self.jobs) + self.asked < self.watcher.node.broker.tuning.dcp_max_held
            ):
                self.asked += 1
        elif kind == b"\x04" and (frames[4] == b"" or frames[4].startswith(ADDRESSED)):
            if frames[4]:
                self.address = frames[4]
                frames = frames[:4] + frames[5:]
            metadata = b"|".join(frames[5 : frames.index(b"", 5)])
            self.open[metadata] = self.open.get(metadata, 0) + 1
            self.asks(metadata, frames[frames.index(b"", 5) :])
        elif kind in (b"\x07", b"\x0c"):
            if kind == b"\x0c" and frames[3] in self.jobs:
                self.watcher.released_tokens.add(frames[3])
            self.answered(frames[3])
        elif kind == b"\x0a":
            if self.services:
                self.named(frames[3])
        elif kind == b"\x08":
            self.cancelled(frames[3], self.open.get(frames[3], 0) == 1)
            self.open[frames[3]] = max(0, self.open.get(frames[3], 0) - 1)
        elif kind in (b"\x04", b"\x05"):
            self.answered(frames[4] if kind == b"\x04" else frames[3])

    def said(self, frames: Message) -> None:
        super().said(frames)
        kind = frames[2][:1]
        if kind == b"\x01":
            if frames[3] not in self.registering:
                self.breach(
                    "unasked", f"the registration of {frames[3]!r} was confirmed although the peer did not send it"
                )
            else:
                self.registering.remove(frames[3])
            if not self.services:
                self.asked = 1
                self.window = -1
            self.services.add(frames[3])
        elif kind == b"\x03":
            self.pings -= 1
        elif kind == b"\x06":
            self.pings -= 1
            self.services.clear()
            self.jobs.clear()
            self.asked = 0
            self.window = -1
            self.beat_busy = False
        elif kind in (b"\x04", b"\x09"):
            told = 0.0
            if kind == b"\x09":
                told = int(frames[3]) / 1000
                frames = frames[:3] + frames[4:]
            if frames[3] not in self.services:
                self.breach("unasked-job", f"was given a job of {frames[3]!r} and offers {sorted(self.services)}")
            self.give(frames[4])
            if told:
                self.check_time(frames[4], told)
        elif kind in (b"\x08", b"\x0b"):
            self.check_held(frames[3], "CANCEL or REVOKE")
        elif kind == b"\x05":
            if self.address not in (b"", frames[3]):
                self.breach("unasked", f"a reply to the address {frames[3]!r}; the peer's is {self.address!r}")
            metadata = b"|".join(frames[5 : frames.index(b"", 5)])
            if self.open.get(metadata, 0) < 1:
                self.breach("unasked", f"a reply with metadata {metadata!r}, which no open request has")
            else:
                self.open[metadata] -= 1

    def settled(self) -> None:
        if self.pings:
            self.breach("ping", f"{self.pings} pings were not answered")
            self.pings = 0


class EmqpDialog(Dialog):
    """READY asks for one request; INFORM is answered with ACK, then HEARTBEAT, in the form of the peer; a REPLY goes to the client that
    requested one, and to each client of the document's form, whose command is READY."""

    protocol = "emqp"
    beats = True
    strict = True

    def __init__(self, watcher: "Watcher", name: str) -> None:
        super().__init__(watcher, name)
        self.open: dict[bytes, None] = {}  # message ids of requests
        self.informed: list[bytes] = []
        self.expects_beat = False
        self.frames_of_beat = 5  # four in the document's form
        self.answers: list[bytes] = []  # ids of requests that were answered: their REPLY is sent in the same turn

    def heard(self, frames: Message) -> None:
        if self.parted:
            return
        super().heard(frames)
        command = frames[2]
        if command == b"REQUEST" or (command == b"READY" and len(frames) == 7):
            if command == b"READY" or b"reply-requested" in frames[5]:
                self.open[frames[3]] = None
                self.asks(frames[3], frames[6:])
        elif command == b"CANCEL":
            self.cancelled(frames[4], frames[4] in self.open)
            self.open.pop(frames[4], None)
        elif command in (b"RETURN", b"RELEASED"):
            if command == b"RELEASED" and frames[4] in self.jobs:
                self.watcher.released_tokens.add(frames[4])
            self.freed(frames[4])
        elif command == b"CREDIT":
            self.named(frames[4])
        elif command == b"INFORM":
            self.informed.append(frames[3])
            self.frames_of_beat = 5 if len(frames) == 6 else 4
        elif command == b"READY":
            self.asked += 1
        elif command == b"HEARTBEAT":
            self.frames_of_beat = len(frames)
            self.beaten()
        elif command == b"REPLY" and len(frames) == 6:
            self.freed(frames[5])

    def freed(self, address: bytes) -> None:
        if self.window >= 0:
            self.answered(address)
        else:
            self.jobs.pop(address, None)  # the worker gets another one when it has sent READY

    def said(self, frames: Message) -> None:
        super().said(frames)
        command = frames[2]
        if command == b"ACK":
            if frames[4] not in self.informed:
                self.breach("unasked", f"ACK of {frames[4]!r}, which is not an INFORM of this peer")
            else:
                self.informed.remove(frames[4])
            self.expects_beat = True
        elif command == b"HEARTBEAT":
            self.expects_beat = False
            if len(frames) != self.frames_of_beat:
                self.breach("form", f"a HEARTBEAT of {len(frames)} frames; the peer's has {self.frames_of_beat}")
        elif command == b"REQUEST":
            if self.expects_beat:
                self.breach("first-beat", "a REQUEST before the first HEARTBEAT")
            self.give(frames[3])
        elif command in (b"CANCEL", b"REVOKE"):
            self.check_held(frames[4], command.decode())
        elif command == b"REPLY":
            msgid = frames[5] if len(frames) == 6 else frames[3]
            if msgid not in self.open:
                self.breach("unasked", f"a REPLY to {msgid!r}, which is not open")
            self.open.pop(msgid, None)
            if msgid in self.answers:
                self.answers.remove(msgid)

    def settled(self) -> None:
        if self.answers and not self.parted:
            self.breach("unanswered", f"no REPLY to {self.answers[0]!r}, which a worker answered")
        self.answers.clear()
        if self.informed and not self.parted:
            self.breach("ack", "an INFORM was not answered")
            self.informed.clear()


class MemoDialog(Dialog):
    """Every answer has the id of a request that waits for one; a resend of an answered one gets the same answer; ids are not used twice."""

    protocol = "memo"

    def __init__(self, watcher: "Watcher", name: str) -> None:
        super().__init__(watcher, name)
        self.waiting: dict[bytes, bytes] = {}  # request id -> what was sent
        self.answers: dict[bytes, tuple[bytes, float]] = {}  # request id -> what was said, and when first

    def heard(self, frames: Message) -> None:
        self.waiting[frames[0]] = frames[1]

    def said(self, frames: Message) -> None:
        rid, body = frames
        if rid not in self.waiting:
            self.breach("unasked", f"an answer under {rid.hex()}, which no request waits for")
            return
        asked = self.waiting.pop(rid)
        now = self.watcher.node.clock
        before, when = self.answers.get(rid, (None, now))
        self.answers[rid] = (body, when if body == before else now)
        kind = _kind(body)
        if before is not None and before != body and _kind(asked) != 2 and now - when < MEMO_ANSWER_TIME:
            self.breach("resend", f"another answer to {rid.hex()} than before")
        if kind == 3 and _kind(asked) != 2:
            self.breach("unasked", "a RESULT to a message that is not a JOB")
        if kind in (2, 4):
            if _kind(asked) == 2:
                self.breach("unasked", "a JOB or HEARTBEAT to a client")
            worker = _worker_id(body)
            if _kind(asked) == 1 and before is None:
                if worker in self.watcher.memo_ids:
                    self.breach("worker-id", f"a new worker was given the id {worker.hex()} of another")
                self.watcher.memo_ids.add(worker)
            elif _kind(asked) in (3, 4) and worker != _worker_id(asked):
                self.breach("worker-id", f"worker {_worker_id(asked).hex()} was called {worker.hex()}")


def _kind(body: bytes) -> int:
    """memo01's message type: after the array's head and the text ``memo01``."""
    return body[8] if len(body) > 8 else 0


def _worker_id(body: bytes) -> bytes:
    if len(body) < 10 or body[9] & 0xE0 != 0x40:
        return b""
    size = body[9] & 0x1F
    return body[10 : 10 + size] if size < 24 else body[11 : 11 + body[10]]
