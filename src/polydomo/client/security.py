"""How clients and workers prove who they are, and how they know the broker.

CURVE needs two keys: one's own, and the broker's public one. TLS needs the authority that signed the broker's certificate, unless this
machine trusts it anyway, and perhaps a certificate of one's own. PLAIN needs a name and a token; it is used only where nobody can listen.
"""

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from polydomo.client import contexts
from polydomo.errors import SettingError
from polydomo.wire.address import Address, is_loopback, parse_url
from polydomo.wire.mechanism import Mechanism

if TYPE_CHECKING:  # libsodium and OpenSSL are loaded only where they are used
    import ssl

    from polydomo.tls import TlsBytes
    from polydomo.wire.curve import KeyPair

DEFAULT_URL = "tcp://127.0.0.1:5246"


@dataclass(frozen=True)
class Security:
    """What a client needs to connect to a broker with access control; names of files, or keys.

    ```python
    Client("tcp://broker.example:5246", key="alice.key_secret", server_key="server.key")
    Client("tls+tcp://broker.example:5246", security=Security(ca="ca.pem", cert="alice.pem"))
    ```
    """

    key: str = ""  # a certificate file with our secret key
    server_key: str = ""  # the broker's public key, or a certificate file with it
    ca: str = ""  # PEM file: who signs the broker's TLS certificate
    cert: str = ""  # PEM file: our TLS certificate and its key
    user: str = ""  # with ``token``: PLAIN
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Proof:
    """A ``Security`` whose files have been read."""

    keys: "KeyPair | None" = None
    server_key: bytes = b""
    tls_context: "ssl.SSLContext | None" = None
    user: str = ""
    token: str = field(default="", repr=False)

    def mechanism(self, socket_type: bytes, max_frame: int, identity: bytes = b"") -> Mechanism | None:
        """The ZMTP mechanism to connect with; None is NULL."""
        from polydomo.wire.curve import CurveClient
        from polydomo.wire.plain import PlainClient

        if self.keys is not None:
            return CurveClient(
                self.keys, self.server_key, os.urandom, socket_type, identity=identity, max_frame=max_frame
            )
        if self.user:
            return PlainClient(self.user, self.token, socket_type, identity)
        return None

    def tls(self, host: str) -> "TlsBytes | None":
        """TLS to connect with; None if the address is not ``tls+tcp://``."""
        if self.tls_context is None:
            return None
        from polydomo.tls import TlsBytes

        return TlsBytes(self.tls_context, False, host)


_default: Security | None = None


def use(security: Security | None) -> None:
    """What connections of this process use that name nothing themselves: the command line's ``--key``, ``--context`` and so on."""
    global _default
    _default = security


def default() -> Security | None:
    """What ``use`` was given: for a program that starts other processes."""
    return _default


def target(
    to: str | None,
    key: str = "",
    server_key: str = "",
    context: str = "",
    security: Security | None = None,
) -> Address:
    """The address to connect to, with what is needed to be let in. Raises SettingError."""
    if context:
        saved = contexts.load(context)
        to = to or saved.to
        if security is None:
            security = Security(saved.key, saved.server_key, saved.ca, saved.cert, saved.user, saved.token)
    if security is None:
        security = _default or Security()
    if key or server_key:
        security = replace(security, key=key or security.key, server_key=server_key or security.server_key)
    address = parse_url(to or DEFAULT_URL, connect=True)
    return replace(address, security=read(security, address))


def targets(
    to: str | None,
    key: str = "",
    server_key: str = "",
    context: str = "",
    security: Security | None = None,
) -> list[Address]:
    """Several addresses with commas between them: brokers that share one job store, of which one leads. Raises SettingError."""
    if context and not to:
        to = contexts.load(context).to
    if to is not None and not isinstance(to, str):
        return [target(to, key, server_key, context, security)]  # which says what is wrong with it
    urls = [url.strip() for url in (to or DEFAULT_URL).split(",")]
    return [target(url, key, server_key, context, security) for url in urls]


def read(security: Security, address: Address) -> Proof | None:
    """Reads the files, so that a mistake is told at once. None if nothing is needed."""
    if security == Security() and not address.tls:
        return None
    from polydomo import keys as files
    from polydomo.tls import client_context

    keys, server_key = None, b""
    if bool(security.key) != bool(security.server_key):
        missing = "server_key" if security.key else "key"
        raise SettingError(f"{missing}: is missing; CURVE needs both one's own key and the broker's server_key")
    if security.key:
        keys = files.read_pair(security.key, "key")
        server_key = files.read_public(security.server_key, "server_key")
    if security.user and not security.token:
        raise SettingError("token: is missing; PLAIN needs a user and a token")
    if security.user and not security.key and not address.tls and not is_loopback(address):
        raise SettingError(f"user: PLAIN would show the token to everybody between here and {address}; use tls+tcp://")
    context = client_context(security.ca, security.cert) if address.tls else None
    return Proof(keys, server_key, context, security.user, security.token)


def proof_of(address: Address) -> Proof | None:
    return address.security if isinstance(address.security, Proof) else None
