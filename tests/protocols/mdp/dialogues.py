"""Dialogues of published MDP peers: what they send, and what they expect from the broker. The frames have their form, with our content.

A step is ``(peer, direction, frames)``: ``>`` the peer says it to the broker, ``<`` it hears it from the broker. A frame that is a
``Client`` is the address of a client: what the broker gave there must come back the same. ``wait`` lets time pass.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Client:
    """An address the broker makes up; the same number is the same address."""

    number: int


Frame = bytes | Client
Step = tuple[str, str, list[Frame]]

A, B, C, D = (Client(i) for i in range(4))


def wait(seconds: float) -> Step:
    return ("", "wait", [str(seconds).encode()])


# The Guide's C Majordomo: MDP/0.1 with a client that calls and waits, one that sends without waiting, Titanic's three services, and MMI.
ZGUIDE: list[Step] = [
    ("w", ">", [b"", b"MDPW01", b"\x01", b"coffee"]),
    ("c1", ">", [b"", b"MDPC01", b"coffee", b"one espresso"]),
    ("w", "<", [b"", b"MDPW01", b"\x02", A, b"", b"one espresso"]),
    ("w", ">", [b"", b"MDPW01", b"\x03", A, b"", b"here you are"]),
    ("c1", "<", [b"", b"MDPC01", b"coffee", b"here you are"]),
    ("c2", ">", [b"", b"MDPC01", b"coffee", b"first"]),
    ("c2", ">", [b"", b"MDPC01", b"coffee", b"second"]),
    ("w", "<", [b"", b"MDPW01", b"\x02", B, b"", b"first"]),
    ("w", ">", [b"", b"MDPW01", b"\x03", B, b"", b"first cup"]),
    ("w", "<", [b"", b"MDPW01", b"\x02", C, b"", b"second"]),
    ("c2", "<", [b"", b"MDPC01", b"coffee", b"first cup"]),
    ("w", ">", [b"", b"MDPW01", b"\x03", C, b"", b"second cup"]),
    ("c2", "<", [b"", b"MDPC01", b"coffee", b"second cup"]),
    ("close", ">", [b"", b"MDPW01", b"\x01", b"titanic.close"]),
    ("reply", ">", [b"", b"MDPW01", b"\x01", b"titanic.reply"]),
    ("request", ">", [b"", b"MDPW01", b"\x01", b"titanic.request"]),
    ("c3", ">", [b"", b"MDPC01", b"titanic.request", b"coffee", b"to take away"]),
    ("request", "<", [b"", b"MDPW01", b"\x02", D, b"", b"coffee", b"to take away"]),
    ("request", ">", [b"", b"MDPW01", b"\x03", D, b"", b"200", b"00FF00FF00FF00FF00FF00FF00FF00FF"]),
    ("c3", "<", [b"", b"MDPC01", b"titanic.request", b"200", b"00FF00FF00FF00FF00FF00FF00FF00FF"]),
    ("c4", ">", [b"", b"MDPC01", b"mmi.service", b"coffee"]),
    ("c4", "<", [b"", b"MDPC01", b"mmi.service", b"200"]),
    ("c3", ">", [b"", b"MDPC01", b"titanic.reply", b"00FF00FF00FF00FF00FF00FF00FF00FF"]),
    ("reply", "<", [b"", b"MDPW01", b"\x02", Client(4), b"", b"00FF00FF00FF00FF00FF00FF00FF00FF"]),
    ("reply", ">", [b"", b"MDPW01", b"\x03", Client(4), b"", b"200", b"a cup of it"]),
    ("c3", "<", [b"", b"MDPC01", b"titanic.reply", b"200", b"a cup of it"]),
    ("c3", ">", [b"", b"MDPC01", b"titanic.close", b"00FF00FF00FF00FF00FF00FF00FF00FF"]),
    ("close", "<", [b"", b"MDPW01", b"\x02", Client(5), b"", b"00FF00FF00FF00FF00FF00FF00FF00FF"]),
    ("close", ">", [b"", b"MDPW01", b"\x03", Client(5), b"", b"200"]),
    ("c3", "<", [b"", b"MDPC01", b"titanic.close", b"200"]),
]

# pyzmq-mdp 0.2: MDP/0.1 with heartbeats, bodies of several frames, and all of MMI.
PYZMQ_MDP: list[Step] = [
    ("w", ">", [b"", b"MDPW01", b"\x01", b"tea"]),
    wait(1.0),
    ("w", ">", [b"", b"MDPW01", b"\x04"]),
    wait(1.6),
    ("w", "<", [b"", b"MDPW01", b"\x04"]),
    ("c", ">", [b"", b"MDPC01", b"tea", b"green", b"2"]),
    ("w", "<", [b"", b"MDPW01", b"\x02", A, b"", b"green", b"2"]),
    ("w", ">", [b"", b"MDPW01", b"\x03", A, b"", b"green", b"2"]),
    ("c", "<", [b"", b"MDPC01", b"tea", b"green", b"2"]),
    ("c", ">", [b"", b"MDPC01", b"mmi.service", b"tea"]),
    ("c", "<", [b"", b"MDPC01", b"mmi.service", b"200"]),
    ("c", ">", [b"", b"MDPC01", b"mmi.service", b"cocoa"]),
    ("c", "<", [b"", b"MDPC01", b"mmi.service", b"404"]),
    ("c", ">", [b"", b"MDPC01", b"mmi.weather", b"x"]),
    ("c", "<", [b"", b"MDPC01", b"mmi.weather", b"501"]),
]

# nodejs-mdp02 0.9.2: RFC 18 to the letter, but for a stray PARTIAL to a client called "undefined" after each FINAL.
NODE_MDP02: list[Step] = [
    ("w", ">", [b"MDPW02", b"\x01", b"tea"]),
    ("s", ">", [b"MDPW02", b"\x01", b"stream"]),
    wait(2.6),
    ("w", "<", [b"MDPW02", b"\x05"]),
    ("s", "<", [b"MDPW02", b"\x05"]),
    ("c1", ">", [b"MDPC02", b"\x01", b"tea", b"black"]),
    ("w", "<", [b"MDPW02", b"\x02", A, b"", b"black"]),
    ("w", ">", [b"MDPW02", b"\x04", A, b"", b"black"]),
    ("w", ">", [b"MDPW02", b"\x03", b"undefined", b"", b"black"]),
    ("c1", "<", [b"MDPC02", b"\x03", b"tea", b"black"]),
    ("c2", ">", [b"MDPC02", b"\x01", b"tea", b"white"]),
    ("w", "<", [b"MDPW02", b"\x02", B, b"", b"white"]),
    ("w", ">", [b"MDPW02", b"\x04", B, b"", b"white"]),
    ("w", ">", [b"MDPW02", b"\x03", b"undefined", b"", b"white"]),
    ("c2", "<", [b"MDPC02", b"\x03", b"tea", b"white"]),
    ("c3", ">", [b"MDPC02", b"\x01", b"stream", b"go"]),
    ("s", "<", [b"MDPW02", b"\x02", C, b"", b"go"]),
    ("s", ">", [b"MDPW02", b"\x03", C, b"", b"drop 1"]),
    ("s", ">", [b"MDPW02", b"\x03", C, b"", b"drop 2"]),
    ("s", ">", [b"MDPW02", b"\x04", C, b"", b"cup"]),
    ("s", ">", [b"MDPW02", b"\x03", b"undefined", b"", b"cup"]),
    ("c3", "<", [b"MDPC02", b"\x02", b"stream", b"drop 1"]),
    ("c3", "<", [b"MDPC02", b"\x02", b"stream", b"drop 2"]),
    ("c3", "<", [b"MDPC02", b"\x03", b"stream", b"cup"]),
]

# majortomo 0.2.0: a leading empty frame, client REQUEST is 02, replies to the client are 03 and 04 and name no service.
MAJORTOMO: list[Step] = [
    ("s", ">", [b"", b"MDPW02", b"\x01", b"stream"]),
    ("w", ">", [b"", b"MDPW02", b"\x01", b"tea"]),
    ("c", ">", [b"", b"MDPC02", b"\x02", b"tea", b"green", b"2"]),
    ("w", "<", [b"", b"MDPW02", b"\x02", A, b"", b"green", b"2"]),
    ("w", ">", [b"", b"MDPW02", b"\x04", A, b"", b"green", b"2"]),
    ("c", "<", [b"", b"MDPC02", b"\x04", b"green", b"2"]),
    ("c", ">", [b"", b"MDPC02", b"\x02", b"stream", b"go"]),
    ("s", "<", [b"", b"MDPW02", b"\x02", B, b"", b"go"]),
    ("s", ">", [b"", b"MDPW02", b"\x03", B, b"", b"drop 1"]),
    ("s", ">", [b"", b"MDPW02", b"\x03", B, b"", b"drop 2"]),
    ("s", ">", [b"", b"MDPW02", b"\x03", B, b"", b"drop 3"]),
    ("s", ">", [b"", b"MDPW02", b"\x04", B, b"", b"cup"]),
    ("c", "<", [b"", b"MDPC02", b"\x03", b"drop 1"]),
    ("c", "<", [b"", b"MDPC02", b"\x03", b"drop 2"]),
    ("c", "<", [b"", b"MDPC02", b"\x03", b"drop 3"]),
    ("c", "<", [b"", b"MDPC02", b"\x04", b"cup"]),
    ("s", ">", [b"", b"MDPW02", b"\x06"]),
    ("w", ">", [b"", b"MDPW02", b"\x06"]),
]

# libmdp at its tag wire-protocol-0.2: the headers of MDP/0.2 over the commands of MDP/0.1, and no command in a client's messages.
LIBMDP: list[Step] = [
    ("w", ">", [b"", b"MDPW02", b"\x01", b"tea"]),
    ("c", ">", [b"", b"MDPC02", b"tea", b"green"]),
    ("w", "<", [b"", b"MDPW02", b"\x02", A, b"", b"green"]),
    ("w", ">", [b"", b"MDPW02", b"\x03", A, b"", b"a cup"]),
    ("c", "<", [b"", b"MDPC02", b"tea", b"a cup"]),
    ("c", ">", [b"", b"MDPC02", b"tea", b"black"]),
    ("w", "<", [b"", b"MDPW02", b"\x02", B, b"", b"black"]),
    ("w", ">", [b"", b"MDPW02", b"\x03", B, b"", b"another"]),
    ("c", "<", [b"", b"MDPC02", b"tea", b"another"]),
]

# The same without a setting that says so: the first reply is held until the worker's HEARTBEAT tells which library it is.
LIBMDP_UNTOLD: list[Step] = [
    *LIBMDP[:4],
    wait(2.5),
    ("w", ">", [b"", b"MDPW02", b"\x04"]),
    *LIBMDP[4:],
]

# zmq-mdp2: RFC 18 with the digits 1 to 6 for commands; its bodies are a request id and JSON.
ZMQ_MDP2: list[Step] = [
    ("w", ">", [b"MDPW02", b"1", b"tea"]),
    wait(2.6),
    ("w", "<", [b"MDPW02", b"5"]),
    ("c", ">", [b"MDPC02", b"1", b"tea", b"1001", b'"green"']),
    ("w", "<", [b"MDPW02", b"2", A, b"", b"1001", b'"green"']),
    ("w", ">", [b"MDPW02", b"3", A, b"", b"1001", b'{"status":200,"msg":"soon"}']),
    ("w", ">", [b"MDPW02", b"4", A, b"", b"1001", b'{"status":200,"msg":"a cup"}']),
    ("c", "<", [b"MDPC02", b"2", b"tea", b"1001", b'{"status":200,"msg":"soon"}']),
    ("c", "<", [b"MDPC02", b"3", b"tea", b"1001", b'{"status":200,"msg":"a cup"}']),
    ("w", ">", [b"MDPW02", b"5"]),
    ("w", ">", [b"MDPW02", b"6"]),
]

DIALOGUES = {
    "zguide": ZGUIDE,
    "pyzmq-mdp": PYZMQ_MDP,
    "nodejs-mdp02": NODE_MDP02,
    "majortomo": MAJORTOMO,
    "libmdp": LIBMDP_UNTOLD,
    "zmq-mdp2": ZMQ_MDP2,
}
