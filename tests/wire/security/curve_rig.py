"""Two ends of a CURVE handshake in memory, with randomness from a seed."""

import random

from polydomo.errors import AccessDenied
from polydomo.wire.security.curve import CookieKeys, CurveClient, CurveServer, KeyPair, new_pair
from polydomo.wire.security.mechanism import parse_command


class Dice:
    """``entropy`` for tests: the same seed, the same bytes."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)

    def __call__(self, count: int) -> bytes:
        return self._random.randbytes(count)


class World:
    """A server's permanent key, cookie keys and known clients."""

    def __init__(self, seed: int = 1) -> None:
        self.dice = Dice(seed)
        self.server_keys = new_pair(self.dice)
        self.client_keys = new_pair(self.dice)
        self.cookies = CookieKeys(self.dice)
        self.known = {self.client_keys.public: "alice"}

    def authenticate(self, key: bytes) -> str:
        name = self.known.get(key)
        if name is None:
            raise AccessDenied("400", "no principal has this key")
        return name

    def server(self) -> CurveServer:
        return CurveServer(self.server_keys, self.cookies, self.dice, self.authenticate)

    def client(
        self,
        keys: KeyPair | None = None,
        server_key: bytes = b"",
        socket_type: bytes = b"DEALER",
        identity: bytes = b"",
    ) -> CurveClient:
        keys, server_key = keys or self.client_keys, server_key or self.server_keys.public
        return CurveClient(keys, server_key, self.dice, socket_type, identity)

    def shaken(self) -> tuple[CurveServer, CurveClient]:
        """Both ends after the handshake."""
        server, client = self.server(), self.client()
        say(client, say(server, say(client, say(server, client.begin()))))
        assert server.done and client.done
        return server, client


def say(mechanism: CurveServer | CurveClient, wire: bytes) -> bytes:
    """One command as it comes over the wire; returns the answer."""
    return mechanism.command(*split(wire))


def split(wire: bytes) -> tuple[bytes, bytes]:
    return parse_command(wire[2:] if wire[0] == 4 else wire[9:])
