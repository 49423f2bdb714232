"""Access control of a running broker: the loaded access file, its keys, and the principal of each connection.

One ``AccessControl`` serves all listeners. Each connection gets an ``Identity`` from it, which records how the peer authenticates: by TLS,
by the kernel (``ipc://``), by a ZMTP mechanism, or by a bearer token.
"""

import os
import socket
import struct
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydomo.errors import AccessDenied, ProtocolViolation, SettingError
from polydomo.limits import COOKIE_TIME
from polydomo.server.access.file import ANONYMOUS, AccessFile, load
from polydomo.server.settings.acceptance import Origin
from polydomo.tls import TlsBytes, server_context
from polydomo.wire.address import Address
from polydomo.wire.security.curve import CookieKeys, CurveServer
from polydomo.wire.security.mechanism import Mechanism, Null
from polydomo.wire.security.plain import PlainServer

if TYPE_CHECKING:
    import ssl

DENIED = "400"
LATER = "300"
PEER_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid, as Linux returns them

Proof = tuple[str, Any]  # the credential, such as ("curve", key); it is looked up again after a reload
Stamp = tuple[str, int, int, int]


class AccessControl:
    """The loaded access file. ``listeners`` are the addresses in the broker's settings, which the file may name."""

    def __init__(
        self,
        path: str,
        listeners: Sequence[Address] = (),
        entropy: Callable[[int], bytes] = os.urandom,
        now: float = 0.0,
    ) -> None:
        self.path = path
        self.listeners = tuple(listeners)
        self.entropy = entropy
        self.cookies = CookieKeys(entropy)
        self.connections: Counter[str] = Counter()  # by principal
        self._rotate_at = now + COOKIE_TIME
        self._take(load(path, self.listeners))

    def _take(self, file: AccessFile) -> None:
        """Builds everything before it replaces anything, so that an invalid file changes nothing."""
        context = server_context(file.tls.cert, file.tls.key, file.tls.ca) if file.tls is not None else None
        self.file = file
        self.tls_context: ssl.SSLContext | None = context
        self._stamps = stamps(file.files)

    # --- reload

    def changed(self) -> bool:
        """Whether the access file, or a file it names, has changed since it was read."""
        return stamps(self.file.files) != self._stamps

    def reload(self) -> None:
        """Reloads all files. Raises SettingError and keeps the old rules if any of them is invalid."""
        try:
            self._take(load(self.path, self.listeners))
        except SettingError:
            self._stamps = stamps(self.file.files)  # report the same error only once
            raise

    def tick(self, now: float) -> None:
        """Rotates the cookie key. A cookie is valid for one to two times COOKIE_TIME."""
        if now >= self._rotate_at:
            self._rotate_at = now + COOKIE_TIME
            self.cookies.rotate(self.entropy(32))

    # --- principals

    def lookup(self, proof: Proof | None, origin: Origin) -> str | None:
        """The principal that a credential belongs to now, on a connection from ``origin``; None if it no longer belongs to any."""
        credentials = self.file.credentials
        if proof is None:
            return ANONYMOUS if self.file.anonymous.accepts(origin) else None
        kind, value = proof
        if kind == "curve":
            return credentials.curve.get(value)
        if kind == "token":
            return credentials.tokens.get(value)
        if kind == "password":  # a token, sent with PLAIN
            return credentials.tokens.get(value) if self.file.plain.accepts(origin) else None
        if kind == "certificate":
            return credentials.by_certificate(value)
        if kind == "login":  # a session cookie of the dashboard
            return str(value) if value in self.file.rules.principals else None
        return credentials.uids.get(value)

    def admit(self, principal: str) -> None:
        """Raises AccessDenied if the principal has reached its quota of connections."""
        most = self.file.rules.quota(principal).connections
        if most and self.connections[principal] >= most:
            raise AccessDenied(
                LATER, f"{principal} has reached its quota of {most} connections (quotas in the access file)"
            )


class Identity:
    """The identity of one connection. ``proof`` and ``principal`` come from the last successful authentication."""

    def __init__(self, access: AccessControl, private: bool, max_frame: int, listener: Address | None = None) -> None:
        self.access = access
        self.private = private  # cannot be eavesdropped: loopback, ipc or TLS
        self.origin = Origin(private, listener)
        self.max_frame = max_frame
        self.proof: Proof | None = None
        self.counted: Proof | None = None  # HTTP: the credential of the last request

    def by_tls(self, tls: TlsBytes) -> None:
        """Called when the TLS handshake is complete."""
        self.private = True
        certificate = tls.certificate()
        if certificate and self.access.file.credentials.by_certificate(certificate) is not None:
            self.proof = ("certificate", certificate)

    def by_socket(self, sock: socket.socket | None) -> None:
        """A peer on this machine, over ``ipc://``: the kernel reports its user."""
        uid = peer_uid(sock)
        if uid is not None and uid in self.access.file.credentials.uids:
            self.proof = ("uid", uid)

    def by_token(self, token: str) -> str | None:
        """The principal of a bearer token."""
        return self.access.file.credentials.by_token(token)

    def principal(self) -> str:
        """The principal of the connection. Raises AccessDenied if it has not authenticated."""
        name = self.access.lookup(self.proof, self.origin)
        if name is None:
            where = f" on {self.origin.listener}" if self.origin.listener is not None else ""
            raise AccessDenied(
                DENIED,
                f"the peer sent no credentials, and the access file does not allow anonymous peers{where} (server.anonymous)",
            )
        self.access.admit(name)
        return name

    # --- ZMTP

    def select(self, name: bytes) -> Mechanism:
        """The server side of the mechanism in a peer's greeting. Raises ProtocolViolation if it is not supported."""
        file = self.access.file
        if name == b"CURVE":
            if file.curve is None:
                raise ProtocolViolation("the peer uses CURVE, but the access file has no server.curve")
            return CurveServer(file.curve, self.access.cookies, self.access.entropy, self._by_curve, self.max_frame)
        if name == b"PLAIN":
            return PlainServer(self._by_password)
        if name == b"NULL":
            return CheckedNull(self)
        raise ProtocolViolation(
            f"the peer uses mechanism {name.decode(errors='replace')!r}; supported are NULL, PLAIN and CURVE"
        )

    def _by_curve(self, key: bytes) -> str:
        name = self.access.file.credentials.by_curve(key)
        self.access.admit(name)
        self.proof = ("curve", key)
        return name

    def _by_password(self, user: str, password: str) -> str:
        if not self.private:
            raise AccessDenied(
                DENIED, "PLAIN sends the token unencrypted; it is accepted only from this machine and inside TLS"
            )
        if not self.access.file.plain.accepts(self.origin):
            raise AccessDenied(DENIED, "the access file does not allow PLAIN on this listener (server.plain)")
        name = self.access.file.credentials.by_password(user, password)
        self.access.admit(name)
        self.proof = ("password", digest_of(password))
        return name


class CheckedNull(Null):
    """NULL, for a connection that is authenticated in another way: by TLS, by its socket, or as anonymous."""

    def __init__(self, identity: Identity) -> None:
        super().__init__(True, b"ROUTER")
        self.identity_of = identity
        self.principal = ""

    def admit(self) -> None:
        self.principal = self.identity_of.principal()


def digest_of(token: str) -> bytes:
    import hashlib

    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def peer_uid(sock: Any) -> int | None:
    """The user id of the peer process of a Unix socket; None if the system does not report it."""
    if sock is None or not sys.platform.startswith("linux"):
        return None
    try:
        found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    except OSError:
        return None
    uid: int = PEER_CREDENTIALS.unpack(found)[1]
    return uid


def stamps(files: "tuple[Path, ...]") -> "tuple[Stamp, ...]":
    """A value that changes when the file changes, appears or disappears."""
    found = []
    for path in files:
        try:
            status = path.stat()
            found.append((str(path), status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            found.append((str(path), 0, 0, 0))
    return tuple(found)


def described(certificate: Mapping[str, Any]) -> str:
    """A certificate's subject, for log messages."""
    return ",".join(f"{key}={value}" for part in certificate.get("subject", ()) for key, value in part)
