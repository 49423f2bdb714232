"""Security handshakes of ZMTP 3: the commands between the greeting and the traffic.

``Mechanism`` is the interface for a ``ZmtpLink``. ``Null`` is here, the others are in ``plain`` and ``curve``. A mechanism belongs to one
connection and is pure: bytes of commands in, bytes of commands out.
"""

from polydomo.errors import AccessDenied, ProtocolViolation
from polydomo.limits import MAX_IDENTITY
from polydomo.native import mypyc_attr
from polydomo.wire.frames import Body
from polydomo.wire.zmtp import extensions

SERVES = {  # the socket type of a listener, by the peer's socket type
    b"DEALER": b"ROUTER",
    b"REQ": b"ROUTER",
    b"ROUTER": b"ROUTER",
    b"SUB": b"XPUB",
    b"XSUB": b"XPUB",
    b"PUB": b"XSUB",
    b"XPUB": b"XSUB",
}

ACCEPTS = {  # compatible socket types, by the connecting side's socket type
    b"DEALER": (b"ROUTER", b"DEALER", b"REP"),
    b"REQ": (b"ROUTER", b"REP"),
    b"SUB": (b"XPUB", b"PUB"),
    b"PUB": (b"XSUB", b"SUB"),
}


# "x-" marks an application property, which other peers ignore. With it, a broker recognises that a publisher is a broker.
BROKER_PROPERTY = b"X-Polydomo"


def command(name: bytes, data: bytes = b"") -> bytes:
    """command = command-size command-body; command-body = command-name command-data"""
    size = 1 + len(name) + len(data)
    length = b"\x04" + bytes((size,)) if size < 256 else b"\x06" + size.to_bytes(8, "big")
    return length + bytes((len(name),)) + name + data


def parse_command(body: bytes) -> tuple[bytes, bytes]:
    """Splits a command's body into name and data."""
    if not body or len(body) < 1 + body[0] or not body[0]:
        raise ProtocolViolation("command without a name")
    return body[1 : 1 + body[0]], body[1 + body[0] :]


def properties(pairs: "list[tuple[bytes, bytes]]") -> bytes:
    """metadata = *property; property = name value; name = OCTET 1*255name-char; value = 4OCTET *OCTET"""
    return b"".join(bytes((len(name),)) + name + len(value).to_bytes(4, "big") + value for name, value in pairs)


def parse_properties(data: bytes) -> "dict[bytes, bytes]":
    """Names are case-insensitive and returned in lower case."""
    found: dict[bytes, bytes] = {}
    position = 0
    while position < len(data):
        name_at = position + 1
        size_at = name_at + data[position]
        value_at = size_at + 4
        if not data[position] or value_at > len(data):
            raise ProtocolViolation("metadata ends inside a property")
        position = value_at + int.from_bytes(data[size_at:value_at], "big")
        if position > len(data):
            raise ProtocolViolation("metadata value longer than its command")
        found[data[name_at:size_at].lower()] = data[value_at:position]
    return found


def described(socket_type: bytes, identity: bytes, extended: bytes = b"") -> bytes:
    """Encodes the metadata of one side. ``extended`` is its list of extensions."""
    pairs = [(b"Socket-Type", socket_type)]
    if socket_type in (b"DEALER", b"REQ", b"ROUTER"):
        pairs.append((b"Identity", identity))
    if extended:
        pairs.append((extensions.PROPERTY, extended))
    return properties(pairs)


def refusal(data: bytes, hint: str = "", without: bool = False) -> ProtocolViolation:
    """The text of an ERROR command: "error-reason = OCTET 0*255VCHAR". libzmq sends ZAP's status code. ``without``: this side has sent no
    credentials."""
    reason = data[1:].decode(errors="replace")
    if reason == "400" and without:
        return AccessDenied(
            "400", "the broker requires credentials (400): a key and the broker's server key, or a user and a token"
        )
    if reason == "400":
        return AccessDenied("400", "the broker does not accept these credentials (400)")
    if reason == "300":
        return AccessDenied("300", "the broker cannot accept these credentials now; try again later (300)")
    return ProtocolViolation(f"the peer refused the handshake: {reason!r}{hint}")


@mypyc_attr(allow_interpreted_subclasses=True)
class Mechanism:
    """One connection's security handshake."""

    name = b""
    done = False  # the handshake is complete; traffic may flow
    peer_type = b""  # the peer's Socket-Type, once done
    our_type = b""
    identity = b""
    as_server = False  # as-server in our greeting
    principal = ""  # the authenticated principal, once done; empty without authentication
    transforms = False  # traffic must pass through ``decode`` and ``encode``
    agrees = False  # each command of the peer costs a key agreement
    peer_is_broker = False  # the peer says that it is a broker
    extensions = b""  # the list that this side announces; a listener does so only to a peer that sent one
    peer_extensions = b""  # the peer's list, once done

    def begin(self) -> bytes:
        """Commands to send as soon as the greetings have been exchanged."""
        return b""

    def command(self, name: bytes, data: bytes) -> bytes:
        """A command of the peer's; returns commands to send. Raises ProtocolViolation."""
        raise NotImplementedError

    def read_metadata(self, data: bytes, listener: bool) -> None:
        """Completes the handshake with the peer's metadata. Raises ProtocolViolation, or AccessDenied from ``admit``."""
        found = parse_properties(data)
        self.peer_type = found.get(b"socket-type", b"")
        self.identity = found.get(b"identity", b"")
        self.peer_is_broker = BROKER_PROPERTY.lower() in found
        self.peer_extensions = found.get(extensions.PROPERTY.lower(), b"")
        if len(self.identity) > MAX_IDENTITY:
            raise ProtocolViolation(f"identity of {len(self.identity)} bytes; the limit is {MAX_IDENTITY}")
        self.admit()
        self.our_type = fitting(listener, self.our_type, self.peer_type)
        self.done = True

    def admit(self) -> None:
        """Called before a peer is admitted without authentication. Raises AccessDenied."""

    def decode(self, data: bytes) -> bytes:
        """Decodes traffic, in any split, to complete plain frames. Raises ProtocolViolation."""
        return data

    def encode(self, pieces: "list[Body]") -> "list[Body]":
        """Encodes complete plain frames, in pieces, as traffic."""
        return pieces


@mypyc_attr(allow_interpreted_subclasses=True)
class Null(Mechanism):
    """ "both peers SHALL send each other a READY command". A listener waits for the peer's and answers with the type that fits."""

    name = b"NULL"

    def __init__(self, listener: bool, socket_type: bytes, identity: bytes = b"") -> None:
        self.listener = listener
        self.our_type = socket_type
        self.our_identity = identity

    def begin(self) -> bytes:
        return b"" if self.listener else self._ready()

    def command(self, name: bytes, data: bytes) -> bytes:
        if name == b"ERROR":
            raise refusal(data, without=True)
        if name != b"READY":
            raise ProtocolViolation(f"command {name[:20]!r} in the NULL handshake")
        self.read_metadata(data, self.listener)
        return self._ready() if self.listener else b""

    def _ready(self) -> bytes:
        announced = self.extensions if self.peer_extensions or not self.listener else b""
        ready = described(self.our_type, self.our_identity, announced)
        if self.listener and self.our_type == b"XPUB":
            ready += properties([(BROKER_PROPERTY, b"broker")])
        return command(b"READY", ready)


def fitting(listener: bool, ours: bytes, theirs: bytes) -> bytes:
    """Our socket type for a peer of type ``theirs``. Raises ProtocolViolation if they are not compatible."""
    if listener:
        answer = SERVES.get(theirs)
        if answer is None:
            raise ProtocolViolation(f"socket type {theirs[:20].decode(errors='replace')!r} cannot talk to a broker")
        return answer
    if theirs not in ACCEPTS.get(ours, ()):
        raise ProtocolViolation(f"a {ours.decode()} cannot talk to a {theirs[:20].decode(errors='replace')!r}")
    return ours
