"""TLS as a transform of bytes, below every wire and at both ends.

OpenSSL works on two buffers in memory (``ssl.MemoryBIO``): what came from the socket goes in at one side, what the wire has to say at
the other. Nothing here touches a socket.
"""

import ssl
from collections.abc import Iterable
from typing import Any

from polydomo.errors import ProtocolViolation, SettingError

READ_SIZE = 256 * 1024  # a record has at most 16 KiB; OpenSSL gives what it has


class TlsBytes:
    """One connection's TLS.

    ``receive`` takes bytes from the socket and returns what was inside; ``send`` takes what is to go inside. After either, ``take`` returns
    the bytes that the socket must be given.
    """

    def __init__(self, context: ssl.SSLContext, server: bool, host: str | None = None) -> None:
        self._in = ssl.MemoryBIO()
        self._out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=server, server_hostname=host)
        self._early: list[Any] = []  # what was to be sent before the handshake was done
        self.shaken = False  # the handshake is done
        self.ended = False  # the peer has said that it sends no more
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
        """What the socket must be given now."""
        return self._out.read()

    def close(self) -> None:
        """Says goodbye, so that the peer can tell an end from a cut."""
        if self.shaken:
            try:
                self._tls.unwrap()
            except (ssl.SSLError, ValueError):
                pass  # the peer's goodbye has not come; ours is written

    def certificate(self) -> "dict[str, Any]":
        """The peer's certificate, if it showed one and it was verified; else empty."""
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
    """For a listener. With ``ca``, clients may show certificates that it signed. Raises SettingError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.num_tickets = 0  # a connection lives long; tickets would only cost bytes and state
    _load(context, cert, key, "server.tls.cert")
    if ca:
        _load_ca(context, ca, "server.tls.ca")
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(ca: str = "", cert: str = "", key: str = "") -> ssl.SSLContext:
    """For a connection. Without ``ca``, the authorities that this machine trusts count. Raises SettingError."""
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
    raise ValueError("the key is encrypted; decrypt it, since a broker has nobody to ask for a password")


def reason(error: Exception) -> str:
    """What OpenSSL says, without its codes and file names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)
