"""The states of a peer's connection, as each page of docs/protocols draws them: what the peer sends or what happens, what the broker
answers, and the state after it. ``test_states.py`` plays every transition with a real broker."""

from dataclasses import dataclass

Frame = bytes | None  # None: the token, address or id of the request that the peer got last
Message = tuple[Frame, ...]
MORE: Frame = b"..."  # at the end of an expected answer: further frames


@dataclass(frozen=True)
class Transition:
    source: str
    event: str  # the command that the peer sends, or what happens
    answer: str  # the commands that the broker sends
    target: str
    sends: Message = ()
    client: Message = ()  # sent by a client, so that the peer gets a request
    hears: tuple[Message, ...] = ()
    lost: bool = False  # the peer is silent until the broker takes it for lost
    timed: bool = False  # time passes until the broker answers
    stops: bool = False  # the broker stops


@dataclass(frozen=True)
class Machine:
    """Of one protocol. ``skip`` is the beginning of a heartbeat that the broker may send at any time."""

    of: str  # what has these states
    states: dict[str, str]  # name -> text
    transitions: tuple[Transition, ...]
    request: int = 0  # the frame of a request that has the token
    skip: Message = ()
    nng: bool = False  # its messages are sent by NNG; a message is (type, id, further fields)

    def diagram(self) -> str:
        """A Mermaid state diagram. A label is the event and, after the slash, the broker's answer."""
        lines = ["stateDiagram-v2", *(f'    state "{text}" as {name}' for name, text in self.states.items())]
        lines.append(f"    [*] --> {next(iter(self.states))}")
        together: dict[tuple[str, str], list[str]] = {}
        for one in self.transitions:
            label = f"{one.event} / {one.answer}" if one.answer else one.event
            together.setdefault((one.source, one.target), []).append(label)
        for (source, target), labels in together.items():
            lines += [f"    {source} --> {target}: {label}" for label in labels]
        return "\n".join(lines) + "\n"


T = Transition
SILENCE = "silence"
STOP = "the broker stops"

WORKER = {"new": "no worker", "idle": "registered", "busy": "holds a request", "over": "dismissed"}

_W1 = (b"", b"MDPW01")
_BYE1 = ((*_W1, b"\x05"),)
MDP = Machine(
    "a worker's connection in MDP/0.1",
    WORKER,
    (
        T("new", "READY", "", "idle", (*_W1, b"\x01", b"walk")),
        T("new", "HEARTBEAT", "DISCONNECT", "over", (*_W1, b"\x04"), hears=_BYE1),
        T("new", "REPLY", "DISCONNECT", "over", (*_W1, b"\x03", b"nobody", b"", b"x"), hears=_BYE1),
        T("new", "DISCONNECT", "", "over", (*_W1, b"\x05")),
        T("idle", "HEARTBEAT", "", "idle", (*_W1, b"\x04")),
        T(
            *("idle", "a request is queued", "REQUEST", "busy"),
            client=(b"", b"MDPC01", b"walk", b"x"),
            hears=((*_W1, b"\x02", MORE),),
        ),
        T("idle", "READY", "DISCONNECT", "over", (*_W1, b"\x01", b"walk"), hears=_BYE1),
        T("idle", "DISCONNECT", "", "over", (*_W1, b"\x05")),
        T("idle", SILENCE, "DISCONNECT", "over", hears=_BYE1, lost=True),
        T("idle", STOP, "DISCONNECT", "over", hears=_BYE1, stops=True),
        T("busy", "REPLY", "", "idle", (*_W1, b"\x03", None, b"", b"y")),
        T("busy", "HEARTBEAT", "", "busy", (*_W1, b"\x04")),
        T("busy", "DISCONNECT", "", "over", (*_W1, b"\x05")),
    ),
    request=3,
    skip=(*_W1, b"\x04"),
)

_W2 = b"MDPW02"
_BYE2 = ((_W2, b"\x06"),)
MDP2 = Machine(
    "a worker's connection in MDP/0.2",
    {**WORKER, "lost": "expired"},
    (
        T("new", "READY", "", "idle", (_W2, b"\x01", b"walk")),
        T("new", "HEARTBEAT", "DISCONNECT", "over", (_W2, b"\x05"), hears=_BYE2),
        T("new", "FINAL", "DISCONNECT", "over", (_W2, b"\x04", b"nobody", b"", b"x"), hears=_BYE2),
        T("new", "DISCONNECT", "", "over", (_W2, b"\x06")),
        T("idle", "HEARTBEAT", "", "idle", (_W2, b"\x05")),
        T(
            *("idle", "a request is queued", "REQUEST", "busy"),
            client=(b"MDPC02", b"\x01", b"walk", b"x"),
            hears=((_W2, b"\x02", MORE),),
        ),
        T("idle", "READY", "DISCONNECT", "over", (_W2, b"\x01", b"walk"), hears=_BYE2),
        T("idle", "DISCONNECT", "", "over", (_W2, b"\x06")),
        T("idle", SILENCE, "", "lost", lost=True),
        T("idle", STOP, "DISCONNECT", "over", hears=_BYE2, stops=True),
        T("busy", "PARTIAL", "", "busy", (_W2, b"\x03", None, b"", b"part")),
        T("busy", "FINAL", "", "idle", (_W2, b"\x04", None, b"", b"y")),
        T("busy", "HEARTBEAT", "", "busy", (_W2, b"\x05")),
        T("busy", "DISCONNECT", "", "over", (_W2, b"\x06")),
        T("lost", "HEARTBEAT", "DISCONNECT", "over", (_W2, b"\x05"), hears=_BYE2),
        T("lost", "READY", "DISCONNECT", "over", (_W2, b"\x01", b"walk"), hears=_BYE2),
    ),
    request=2,
    skip=(_W2, b"\x05"),
)

_W = b"MDXW01"
_BYE = ((b"MDPW02", b"\x06"),)
MDX = Machine(
    "a worker's connection",
    {**WORKER, "lost": "expired"},
    (
        T("new", "READY", "", "idle", (_W, b"\x01", b"walk")),
        T("new", "PING", "DISCONNECT", "over", (_W, b"PING"), hears=_BYE),
        T("new", "DISCONNECT", "", "over", (b"MDPW02", b"\x06")),
        T("idle", "PING", "PONG", "idle", (_W, b"PING"), hears=((_W, b"PONG"),)),
        T(
            *("idle", "a request is queued", "REQUEST", "busy"),
            client=(b"MDXC01", b"\x01", b"walk", b"id", b"x"),
            hears=((_W, b"\x02", MORE),),
        ),
        T("idle", "READY", "DISCONNECT", "over", (_W, b"\x01", b"walk"), hears=_BYE),
        T("idle", "DISCONNECT", "", "over", (b"MDPW02", b"\x06")),
        T("idle", SILENCE, "", "lost", lost=True),
        T("idle", STOP, "DISCONNECT", "over", hears=_BYE, stops=True),
        T("busy", "PARTIAL", "", "busy", (_W, b"\x03", None, b"", b"id", b"part")),
        T("busy", "PING", "PONG", "busy", (_W, b"PING"), hears=((_W, b"PONG"),)),
        T("busy", "FINAL", "", "idle", (_W, b"\x04", None, b"", b"id", b"y")),
        T("busy", "DISCONNECT", "", "over", (b"MDPW02", b"\x06")),
        T("busy", SILENCE, "", "lost", lost=True),
        T("lost", "PING", "DISCONNECT", "over", (_W, b"PING"), hears=_BYE),
        T("lost", "READY", "DISCONNECT", "over", (_W, b"\x01", b"walk"), hears=_BYE),
    ),
    request=2,
)

_H = (b"", b"DGBX\x01")
_REGISTERED = (*_H, b"\x01", b"walk")
_PONG = ((*_H, b"\x03"),)
DCP = Machine(
    "a worker's connection",
    {"new": "no worker", "idle": "registered", "busy": "holds a request"},
    (
        T("new", "ping", "reconnect", "new", (*_H, b"\x02"), hears=((*_H, b"\x06"),)),
        T("new", "registration", "registration", "idle", _REGISTERED, hears=(_REGISTERED,)),
        T("idle", "ping", "pong", "idle", (*_H, b"\x02"), hears=_PONG),
        T("idle", "registration", "registration", "idle", _REGISTERED, hears=(_REGISTERED,)),
        T(
            *("idle", "a request is queued", "request", "busy"),
            client=(*_H, b"\x04", b"walk", b"", b"m", b"", b"x"),
            hears=((*_H, b"\x04", MORE),),
        ),
        T("idle", SILENCE, "", "new", lost=True),
        T("idle", "invalid message", "", "new", (*_H, b"\x07\x07")),
        T("busy", "ping", "pong", "busy", (*_H, b"\x02"), hears=_PONG),
        T("busy", SILENCE, "", "new", lost=True),
        T("busy", "reply", "", "idle", (*_H, b"\x05", None, b"", b"m", b"", b"y")),
        T("busy", "request to another service", "", "idle", (*_H, b"\x04", b"next", None, b"", b"m", b"", b"y")),
    ),
    request=4,
)

_E = (b"", b"eMQP/1.0")
_DISCONNECT = ((*_E, b"DISCONNECT", MORE),)
EMQP = Machine(
    "a worker's connection, in the document's form",
    {
        "new": "client",
        "idle": "worker, no free slot",
        "ready": "worker, one free slot",
        "busy": "holds a request",
        "over": "ended",
        "lost": "lost",
    },
    (
        T(
            *("new", "INFORM", "ACK, HEARTBEAT", "idle", (*_E, b"INFORM", b"1", b"walk")),
            hears=((*_E, b"ACK", MORE), (*_E, b"HEARTBEAT", MORE)),
        ),
        T("new", "READY", "DISCONNECT", "over", (*_E, b"READY", b"2"), hears=_DISCONNECT),
        T("new", "HEARTBEAT", "DISCONNECT", "over", (*_E, b"HEARTBEAT", b"2"), hears=_DISCONNECT),
        T("idle", "HEARTBEAT", "", "idle", (*_E, b"HEARTBEAT", b"2")),
        T("idle", "READY", "", "ready", (*_E, b"READY", b"2")),
        T("idle", "INFORM", "DISCONNECT", "over", (*_E, b"INFORM", b"2", b"walk"), hears=_DISCONNECT),
        T("idle", "DISCONNECT", "", "over", (*_E, b"DISCONNECT", b"2")),
        T("idle", SILENCE, "", "lost", lost=True),
        T("idle", STOP, "DISCONNECT", "over", hears=_DISCONNECT, stops=True),
        T("ready", "HEARTBEAT", "", "ready", (*_E, b"HEARTBEAT", b"3")),
        T(
            *("ready", "a request is queued", "REQUEST", "busy"),
            client=(*_E, b"READY", b"c", b"walk", b"", b"x"),
            hears=((*_E, b"REQUEST", MORE),),
        ),
        T("busy", "REPLY", "", "idle", (*_E, b"REPLY", None, b"y")),
        T("busy", "HEARTBEAT", "", "busy", (*_E, b"HEARTBEAT", b"4")),
        T("busy", "DISCONNECT", "", "over", (*_E, b"DISCONNECT", b"4")),
        T("busy", SILENCE, "", "lost", lost=True),
        T("lost", "HEARTBEAT", "DISCONNECT", "over", (*_E, b"HEARTBEAT", b"5"), hears=_DISCONNECT),
    ),
    request=3,
    skip=(*_E, b"HEARTBEAT", MORE),
)

_T = b"1794724000"  # a time, as text
_CAMERA = b'{"name": "walk", "heartbeat": 60, "interfaces": {"requests": true}}'
_END = ((b"", b"</3", MORE),)
DBP = Machine(
    "a connection",
    {"new": "nothing registered", "idle": "a service registered", "busy": "holds a request", "over": "ended"},
    (
        T("new", "REQUEST", "REPLY", "new", (b"", b"u_U", _T, b"walk"), hears=((b"", b"o_O", MORE),)),
        T("new", "REGISTRATION", "APPROVED", "idle", (b"", b"UwU", _T, _CAMERA), hears=((b"", b"OwO", MORE),)),
        T("new", "UPDATE", "DENIED", "new", (b"", b"UoU", _T, b'{"name": "x"}'), hears=((b"", b"(O_O)", MORE),)),
        T("new", "HEARTBEAT", "DISCONNECT", "over", (b"", b"<3", _T, b"x"), hears=_END),
        T("new", "DISCONNECT", "", "over", (b"", b"</3", _T, b"")),
        T("idle", "REQUEST", "REPLY", "idle", (b"", b"u_U", _T, b"walk"), hears=((b"", b"o_O", MORE),)),
        T("idle", "HEARTBEAT", "AWK", "idle", (b"", b"<3", _T, b"walk"), hears=((b"", b"u.u", MORE),)),
        T("idle", "UPDATE", "AWK", "idle", (b"", b"UoU", _T, _CAMERA), hears=((b"", b"u.u", MORE),)),
        T(
            "idle",
            "REGISTRATION, same name",
            "APPROVED",
            "idle",
            (b"", b"UwU", _T, _CAMERA),
            hears=((b"", b"OwO", MORE),),
        ),
        T("idle", "REGISTRATION, other name", "DISCONNECT", "over", (b"", b"UwU", _T, b'{"name": "x"}'), hears=_END),
        T("idle", "DISCONNECT", "", "over", (b"", b"</3", _T, b"")),
        T("idle", STOP, "DISCONNECT", "over", hears=_END, stops=True),
        T(
            *("idle", "a request is queued", "REQUEST", "busy"),
            client=(b"", b"MDPC01", b"walk", b"x"),
            hears=((b"", b"u_U", MORE),),
        ),
        T("busy", "REPLY", "", "idle", (b"", b"o_O", _T, b"y")),
        T("busy", "DENIED", "", "idle", (b"", b"(O_O)", _T, b"the request failed")),
        T("busy", "HEARTBEAT", "AWK", "busy", (b"", b"<3", _T, b"walk"), hears=((b"", b"u.u", MORE),)),
    ),
)

MEMO01 = Machine(
    "a worker",
    {"new": "unknown", "polling": "polling", "busy": "holds a job", "asked": "got HEARTBEAT"},
    (
        T("new", "READY", "", "polling", (b"\x01", b"", b"walk")),
        T("new", "HEARTBEAT", "DISCONNECT", "new", (b"\x04", b"x"), hears=((b"\x05", b"x"),)),
        T("new", "RESULT", "DISCONNECT", "new", (b"\x03", b"x"), hears=((b"\x05", b"x"),)),
        T("polling", "a job is queued", "JOB", "busy", client=(b"\x02", b"", b"walk"), hears=((b"\x02", MORE),)),
        T("polling", "no job for 10 s", "HEARTBEAT", "asked", hears=((b"\x04", MORE),), timed=True),
        T("polling", STOP, "DISCONNECT", "new", hears=((b"\x05", MORE),), stops=True),
        T("busy", "RESULT", "", "polling", (b"\x03", None)),
        T("busy", "RESULT, disconnecting", "DISCONNECT", "new", (b"\x03", None, b"true"), hears=((b"\x05", MORE),)),
        T("busy", "HEARTBEAT", "DISCONNECT", "new", (b"\x04", None), hears=((b"\x05", MORE),)),
        T("asked", "HEARTBEAT", "", "polling", (b"\x04", None)),
        T("asked", "silence for 10 s", "", "new", lost=True),
    ),
    request=1,
    nng=True,
)
MACHINES = {"mdp": MDP, "mdp2": MDP2, "mdx": MDX, "dcp": DCP, "emqp": EMQP, "memo01": MEMO01, "dbp": DBP}
