"""Authentication of clients and workers to the broker, and of the broker to them.

CURVE needs your secret key and the broker's public key. TLS needs the authority that signed the broker's certificate, unless this machine
already trusts it, and optionally a client certificate. PLAIN needs a name and a token; it is used only on connections that cannot be
eavesdropped.
"""

import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from polydomo.client import contexts
from polydomo.errors import SettingError
from polydomo.wire.address import Address, is_loopback, parse_url
from polydomo.wire.security.mechanism import Mechanism

if TYPE_CHECKING:  # libsodium and OpenSSL are loaded only when needed
    import ssl

    from polydomo.tls import TlsBytes
    from polydomo.wire.security.curve import KeyPair

DEFAULT_URL = "tcp://127.0.0.1:5246"
ADDRESS_VARIABLE = "POLYDOMO_TO"  # the address of clients and workers that name none


@dataclass(frozen=True)
class Security:
    """The credentials for a broker with access control, as file names or keys.

    ```python
    Client("tcp://broker.example:5246", key="alice.key_secret", server_key="server.key")
    Client("tls+tcp://broker.example:5246", security=Security(ca="ca.pem", cert="alice.pem"))
    ```
    """

    key: str = ""  # a file with your secret key
    server_key: str = ""  # the broker's public key, or a file with it
    ca: str = ""  # PEM file: the authority that signs the broker's TLS certificate
    cert: str = ""  # PEM file: your TLS certificate and its key
    user: str = ""  # with ``token``: PLAIN
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Proof:
    """The loaded contents of a ``Security``."""

    keys: "KeyPair | None" = None
    server_key: bytes = b""
    tls_context: "ssl.SSLContext | None" = None
    user: str = ""
    token: str = field(default="", repr=False)

    def mechanism(self, socket_type: bytes, max_frame: int, identity: bytes = b"") -> Mechanism | None:
        """The ZMTP mechanism to connect with; None is NULL."""
        from polydomo.wire.security.curve import CurveClient
        from polydomo.wire.security.plain import PlainClient

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
    """Sets the default credentials of this process, from the command line's ``--key``, ``--context`` and so on."""
    global _default
    _default = security


def default() -> Security | None:
    """The default credentials, for a program that starts other processes."""
    return _default


def target(
    to: str | None,
    key: str = "",
    server_key: str = "",
    context: str = "",
    security: Security | None = None,
) -> Address:
    """The address to connect to and the credentials. Raises SettingError."""
    if context:
        saved = contexts.load(context)
        to = to or saved.to
        if security is None:
            security = Security(saved.key, saved.server_key, saved.ca, saved.cert, saved.user, saved.token)
    if security is None:
        security = _default or Security()
    if key or server_key:
        security = replace(security, key=key or security.key, server_key=server_key or security.server_key)
    address = parse_url(to or os.environ.get(ADDRESS_VARIABLE) or DEFAULT_URL, connect=True)
    return replace(address, security=read(security, address))


def targets(
    to: str | None,
    key: str = "",
    server_key: str = "",
    context: str = "",
    security: Security | None = None,
) -> list[Address]:
    """Parses comma-separated addresses of brokers that share a job store; one of them is the leader. Raises SettingError."""
    if context and not to:
        to = contexts.load(context).to
    if to is not None and not isinstance(to, str):
        return [target(to, key, server_key, context, security)]  # raises an error with the reason
    urls = [url.strip() for url in (to or os.environ.get(ADDRESS_VARIABLE, "")).split(",")]
    return [target(url, key, server_key, context, security) for url in urls]


def read(security: Security, address: Address) -> Proof | None:
    """Reads the files, so that errors are reported at once. Returns None if no credentials are set."""
    if security == Security() and not address.tls:
        return None
    from polydomo import keys as files
    from polydomo.tls import client_context

    keys, server_key = None, b""
    if bool(security.key) != bool(security.server_key):
        missing = "server_key" if security.key else "key"
        raise SettingError(f"{missing}: is missing; CURVE needs both your key and the broker's server_key")
    if security.key:
        keys = files.read_pair(security.key, "key")
        server_key = files.read_public(security.server_key, "server_key")
    if security.user and not security.token:
        raise SettingError("token: is missing; PLAIN needs a user and a token (the variable POLYDOMO_TOKEN, or token=)")
    if security.user and not security.key and not address.tls and not is_loopback(address):
        raise SettingError(f"user: PLAIN would send the token unencrypted to {address}; use tls+tcp://")
    context = client_context(security.ca, security.cert) if address.tls else None
    return Proof(keys, server_key, context, security.user, security.token)


def proof_of(address: Address) -> Proof | None:
    return address.security if isinstance(address.security, Proof) else None
