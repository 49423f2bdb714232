"""The PLAIN mechanism (RFC 24), both ends: a user name and a password, in clear text.

    client                        server
    HELLO     user, password  ->
                              <-  WELCOME
    INITIATE  metadata        ->
                              <-  READY  metadata

The owner of a link offers it only on connections that cannot be eavesdropped: loopback, ``ipc://`` and TLS.
"""

from collections.abc import Callable

from polydomo.errors import ProtocolViolation
from polydomo.wire.security.mechanism import Mechanism, command, described, refusal

Check = Callable[[str, str], str]  # user and password to the name of the principal; raises AccessDenied


class PlainServer(Mechanism):
    """The server side of one connection. ``principal`` is the authenticated peer, once ``done``."""

    name = b"PLAIN"
    as_server = True

    def __init__(self, check: Check) -> None:
        self._check = check
        self.our_type = b"ROUTER"

    def command(self, name: bytes, data: bytes) -> bytes:
        if name == b"HELLO" and not self.principal:
            self.principal = self._check(*credentials(data))
            return command(b"WELCOME")
        if name == b"INITIATE" and self.principal and not self.done:
            self.read_metadata(data, listener=True)
            return command(b"READY", described(self.our_type, b"", self.extensions if self.peer_extensions else b""))
        raise ProtocolViolation(f"command {name[:20]!r} out of order in the PLAIN handshake")


class PlainClient(Mechanism):
    """The client side of one connection."""

    name = b"PLAIN"

    def __init__(self, user: str, password: str, socket_type: bytes, identity: bytes = b"") -> None:
        self._user = user.encode()
        self._password = password.encode()
        self._welcome = False
        self.our_type = socket_type
        self.our_identity = identity

    def begin(self) -> bytes:
        user, password = self._user, self._password
        return command(b"HELLO", bytes((len(user),)) + user + bytes((len(password),)) + password)

    def command(self, name: bytes, data: bytes) -> bytes:
        if name == b"ERROR":
            raise refusal(data)
        if name == b"WELCOME" and not self._welcome and not data:
            self._welcome = True
            return command(b"INITIATE", described(self.our_type, self.our_identity, self.extensions))
        if name == b"READY" and self._welcome and not self.done:
            self.read_metadata(data, listener=False)
            return b""
        raise ProtocolViolation(f"command {name[:20]!r} out of order in the PLAIN handshake")


def credentials(data: bytes) -> tuple[str, str]:
    """ "hello = command-size %d5 "HELLO" username password; username = OCTET *VCHAR; password = OCTET *VCHAR" """
    user_end = 1 + data[0] if data else 0
    if not data or len(data) <= user_end or len(data) != user_end + 1 + data[user_end]:
        raise ProtocolViolation("PLAIN HELLO that is not a user name and a password")
    try:
        return data[1:user_end].decode(), data[user_end + 1 :].decode()
    except UnicodeDecodeError:
        raise ProtocolViolation("PLAIN HELLO with text that is not UTF-8") from None
