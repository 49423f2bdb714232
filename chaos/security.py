"""The credentials of the encrypted actors: the stage writes keys and certificates into the directory that CHAOS_KEYS names."""

import os
from pathlib import Path

import zmq
import zmq.auth

from polydomo.client.security import Security


def proof(url: str, kind: str) -> tuple[str, Security | None]:
    """The address and the credentials for a client or worker of the library; ``kind`` is "curve", "tls" or ""."""
    keys = Path(os.environ["CHAOS_KEYS"])
    if kind == "curve":
        return url, Security(key=str(keys / "peer.key_secret"), server_key=str(keys / "server.key"))
    if kind == "tls":
        return url.replace("tcp://", "tls+tcp://"), Security(ca=str(keys / "ca.pem"), cert=str(keys / "peer.pem"))
    return url, None


def encrypt(socket: "zmq.Socket[bytes]", name: str) -> None:
    """Sets the keys of a pyzmq socket if its actor uses CURVE."""
    if "pyzmq-curve" not in name:
        return
    keys = Path(os.environ["CHAOS_KEYS"])
    public, secret = zmq.auth.load_certificate(keys / "peer.key_secret")
    server, _ = zmq.auth.load_certificate(keys / "server.key")
    assert secret is not None
    socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = public, secret, server
