"""TLS as a transformation of bytes, below every wire protocol, for clients and servers.

OpenSSL works on two memory buffers (``ssl.MemoryBIO``): one for encrypted bytes from the socket, one for plain bytes from the wire
protocol. This module does no I/O.
"""

import ssl
from collections.abc import Iterable
from typing import Any

from polydomo.errors import ProtocolViolation, SettingError

READ_SIZE = 256 * 1024  # a TLS record has at most 16 KiB; a read returns what is available


class TlsBytes:
    """TLS of one connection.

    ``receive`` takes bytes from the socket and returns the decrypted bytes; ``send`` takes bytes to encrypt. After either, ``take``
    returns the bytes to write to the socket.
    """

    def __init__(self, context: ssl.SSLContext, server: bool, host: str | None = None) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server, server_hostname=host)
        self._early: list[Any] = []  # bytes to send once the handshake is complete
        self.shaken = False  # the handshake is complete
        self.ended = False  # the peer has sent close_notify
        if not server:
            self._shake()

    def receive(self, data: bytes) -> bytes:
        """Raises ProtocolViolation if this is not TLS, or if the peer's certificate is not accepted."""
        self._in.write(data)
        try:
            if not self.shaken and not self._shake():
                return b""
            return self._read()
        except ssl.SSLError as error:
            raise ProtocolViolation(f"TLS: {reason(error)}") from None

    def send(self, pieces: "Iterable[Any]") -> None:
        if not self.shaken:
            self._early += pieces
            return
        data = b"".join(pieces)
        if data:
            try:
                self._tls.write(data)
            except ssl.SSLError as error:
                raise ProtocolViolation(f"TLS: {reason(error)}") from None

    def take(self) -> bytes:
        """The bytes to write to the socket now."""
        return self._out.read()

    def close(self) -> None:
        """Sends close_notify, so that the peer can tell a normal close from a broken connection."""
        if self.shaken:
            try:
                self._tls.unwrap()
            except (ssl.SSLError, ValueError):
                pass  # the peer's close_notify has not arrived; ours is written

    def certificate(self) -> "dict[str, Any]":
        """The peer's certificate if it sent one and it was verified; otherwise empty."""
        return (self._tls.getpeercert() if self.shaken else None) or {}

    def _shake(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.shaken = True
        early, self._early = self._early, []
        self.send(early)
        return True

    def _read(self) -> bytes:
        parts = []
        while True:
            try:
                part = self._tls.read(READ_SIZE)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                part = b""
            if not part:
                self.ended = True
                break
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def server_context(cert: str, key: str, ca: str = "") -> ssl.SSLContext:
    """The context of a listener. With ``ca``, clients may present certificates that it signed. Raises SettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # connections are long-lived, so session tickets would only cost bytes and state
    _load(context, cert, key, "server.tls.cert")
    if ca:
        _load_ca(context, ca, "server.tls.ca")
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(ca: str = "", cert: str = "", key: str = "") -> ssl.SSLContext:
    """The context of an outgoing connection. Without ``ca``, the system's certificate authorities are used. Raises SettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca:
        _load_ca(context, ca, "ca")
    else:
        context.load_default_certs()
    if cert:
        _load(context, cert, key or cert, "cert")
    return context


def _load(context: ssl.SSLContext, cert: str, key: str, setting: str) -> None:
    try:
        context.load_cert_chain(cert, key, password=_no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise SettingError(f"{setting}: cannot use {cert} and {key}: {reason(error)}") from None


def _load_ca(context: ssl.SSLContext, ca: str, setting: str) -> None:
    try:
        context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise SettingError(f"{setting}: cannot use {ca}: {reason(error)}") from None


def _no_password() -> str:
    raise ValueError("the key is encrypted; decrypt it first, because a broker cannot ask for a password")


def reason(error: Exception) -> str:
    """OpenSSL's message, without codes and file names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}; name the authority that signed it with --ca (ca=)"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
