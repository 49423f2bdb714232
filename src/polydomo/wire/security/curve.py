"""The CURVE handshake (RFC 25 and 26), both ends.

    client                                  server
    HELLO     C', proof that it knows S  ->
                                         <- WELCOME   S' and a cookie, sealed for C'
    INITIATE  cookie, C, vouch, metadata ->
                                         <- READY     metadata

C and S are the permanent keys, C' and S' the keys of one connection. After WELCOME, the server keeps only the 16 octets that identify the
cookie: the secret key s' travels inside it, sealed with a key of the server (``CookieKeys``). The identifier binds the cookie to its
connection: a cookie replayed on another connection is rejected, as is one that is older than its key.

Randomness comes from the caller: ``entropy(n)`` returns n random octets.
"""

from collections.abc import Callable

from polydomo.errors import ProtocolViolation
from polydomo.limits import ENVELOPE, MAX_FRAME
from polydomo.wire.frames import Body
from polydomo.wire.security.curve_traffic import CurveTraffic
from polydomo.wire.security.mechanism import Mechanism, command, described, refusal
from polydomo.wire.security.sodium import KEY_SIZE, public_key, seal, shared_key, unseal
from polydomo.wire.zmtp import extensions

Random = Callable[[int], bytes]
Authenticate = Callable[[bytes], str]  # a permanent public key to the name of its principal; raises AccessDenied

VERSION = b"\x01\x00"
HELLO_SIZE = 194  # without the command's name; the next three likewise
WELCOME_SIZE = 160
INITIATE_LEAST = 248
READY_LEAST = 24
COOKIE_SIZE = 96
VOUCH_SIZE = 96
WRONG_SERVER_KEY = "; server_key is probably not the public key of this broker"
ZEROS_64 = bytes(64)
ZEROS_72 = bytes(72)


class KeyPair:
    """A permanent Curve25519 key."""

    def __init__(self, public: bytes, secret: bytes) -> None:
        self.public = public
        self.secret = secret

    def __repr__(self) -> str:
        return f"KeyPair(public={self.public.hex()})"  # the secret must not appear in logs or tracebacks


def new_pair(entropy: Random) -> KeyPair:
    secret = entropy(KEY_SIZE)
    return KeyPair(public_key(secret), secret)


class CookieKeys:
    """The keys that seal cookies: the current one, and the previous one, with which cookies may still return.

    "The server MUST discard from its memory the cookie key after a short interval": the owner calls ``rotate`` every
    ``limits.COOKIE_TIME`` seconds. One object serves all connections of a server.
    """

    def __init__(self, entropy: Random) -> None:
        self.current = entropy(KEY_SIZE)
        self.previous = self.current

    def rotate(self, key: bytes) -> None:
        self.previous = self.current
        self.current = key


class CurveServer(Mechanism):
    """The server side of one connection. ``principal`` is the authenticated peer, once ``done``."""

    name = b"CURVE"
    as_server = True
    transforms = True
    agrees = True
    traffic: CurveTraffic | None = None

    def __init__(
        self,
        keys: KeyPair,
        cookies: CookieKeys,
        entropy: Random,
        authenticate: Authenticate,
        max_frame: int = MAX_FRAME,
    ) -> None:
        self._keys = keys
        self._cookies = cookies
        self._entropy = entropy
        self._authenticate = authenticate
        self._max_frame = max_frame
        self._cookie_name = b""  # not empty: WELCOME was sent
        self._seen = 0
        self.our_type = b"ROUTER"

    def command(self, name: bytes, data: bytes) -> bytes:
        if name == b"HELLO" and not self._cookie_name:
            return self._hello(data)
        if name == b"INITIATE" and self._cookie_name and not self.done:
            return self._initiate(data)
        raise ProtocolViolation(f"command {name[:20]!r} out of order in the CURVE handshake")

    def _hello(self, data: bytes) -> bytes:
        if len(data) != HELLO_SIZE:
            raise ProtocolViolation(f"HELLO of {len(data) + 6} octets instead of 200")
        if data[:2] != VERSION:
            raise ProtocolViolation(f"CurveZMQ version {data[0]}.{data[1]}; version 1.0 is served")
        if data[2:74] != ZEROS_72:
            raise ProtocolViolation("HELLO with padding that is not zero")
        client = data[74:106]
        short = data[106:114]
        shared = shared_key(client, self._keys.secret)
        if unseal(data[114:], b"CurveZMQHELLO---" + short, shared, "HELLO") != ZEROS_64:
            raise ProtocolViolation("HELLO whose signature is not zero")
        self._seen = int.from_bytes(short, "big")
        transient = self._entropy(KEY_SIZE)
        name = self._entropy(16)
        cookie = name + seal(client + transient, b"COOKIE--" + name, self._cookies.current)
        long = self._entropy(16)
        box = seal(public_key(transient) + cookie, b"WELCOME-" + long, shared)
        self._cookie_name = name
        return command(b"WELCOME", long + box)

    def _initiate(self, data: bytes) -> bytes:
        if len(data) < INITIATE_LEAST:
            raise ProtocolViolation(f"INITIATE of {len(data) + 9} octets; it has at least 257")
        if data[:16] != self._cookie_name:
            raise ProtocolViolation("INITIATE with a cookie that was made for another connection")
        content = self._open_cookie(data[:COOKIE_SIZE])
        client = content[:KEY_SIZE]
        transient = content[KEY_SIZE:]
        short = data[COOKIE_SIZE : COOKIE_SIZE + 8]
        number = int.from_bytes(short, "big")
        if number <= self._seen:
            raise ProtocolViolation("INITIATE with a nonce that was used before")
        key = shared_key(client, transient)
        opened = unseal(data[COOKIE_SIZE + 8 :], b"CurveZMQINITIATE" + short, key, "INITIATE")
        permanent = opened[:KEY_SIZE]
        vouch = opened[KEY_SIZE : KEY_SIZE + VOUCH_SIZE]
        self._check_vouch(vouch, permanent, client, transient)
        self.principal = self._authenticate(permanent)
        self.read_metadata(opened[KEY_SIZE + VOUCH_SIZE :], listener=True)
        self.traffic = CurveTraffic(key, True, 1, number, self._max_frame)
        box = seal(
            described(self.our_type, b"", self.extensions if self.peer_extensions else b""),
            b"CurveZMQREADY---" + (1).to_bytes(8, "big"),
            key,
        )
        return command(b"READY", (1).to_bytes(8, "big") + box)

    def _check_vouch(self, vouch: bytes, permanent: bytes, client: bytes, transient: bytes) -> None:
        """Only the holder of C's secret key can create it. It proves that C' belongs to C and is meant for this server."""
        key = shared_key(permanent, transient)
        vouched = unseal(vouch[16:], b"VOUCH---" + vouch[:16], key, "the vouch of INITIATE")
        if vouched != client + self._keys.public:
            raise ProtocolViolation("INITIATE whose vouch is for another connection or server")

    def decode(self, data: bytes) -> bytes:
        """Decrypts sealed bytes, in any split, to plain frames."""
        assert self.traffic is not None
        return self.traffic.open(data)

    def encode(self, pieces: "list[Body]") -> "list[Body]":
        """Encrypts complete plain frames, in pieces."""
        assert self.traffic is not None
        return [self.traffic.seal(b"".join(pieces))]

    def _open_cookie(self, cookie: bytes) -> bytes:
        nonce = b"COOKIE--" + cookie[:16]
        try:
            return unseal(cookie[16:], nonce, self._cookies.current, "the cookie")
        except ProtocolViolation:
            return unseal(cookie[16:], nonce, self._cookies.previous, "the cookie of INITIATE")


class CurveClient(Mechanism):
    """The client side of one connection."""

    name = b"CURVE"
    transforms = True
    traffic: CurveTraffic | None = None

    def __init__(
        self,
        keys: KeyPair,
        server_key: bytes,
        entropy: Random,
        socket_type: bytes,
        identity: bytes = b"",
        max_frame: int = MAX_FRAME,
    ) -> None:
        self._keys = keys
        self._server_key = server_key
        self._entropy = entropy
        self._max_frame = max_frame
        self._transient = new_pair(entropy)
        self._with_server = b""  # the key shared between C' and S
        self._key = b""  # not empty: INITIATE was sent
        self.our_type = socket_type
        self.our_identity = identity

    def begin(self) -> bytes:
        self._with_server = shared_key(self._server_key, self._transient.secret)
        short = (1).to_bytes(8, "big")
        box = seal(ZEROS_64, b"CurveZMQHELLO---" + short, self._with_server)
        return command(b"HELLO", VERSION + ZEROS_72 + self._transient.public + short + box)

    def command(self, name: bytes, data: bytes) -> bytes:
        if name == b"ERROR":
            raise refusal(data, "" if self._key else WRONG_SERVER_KEY)
        if name == b"WELCOME" and not self._key:
            return self._welcome(data)
        if name == b"READY" and self._key and not self.done:
            return self._ready(data)
        raise ProtocolViolation(f"command {name[:20]!r} out of order in the CURVE handshake")

    def _welcome(self, data: bytes) -> bytes:
        if len(data) != WELCOME_SIZE:
            raise ProtocolViolation(f"WELCOME of {len(data) + 8} octets instead of 168")
        opened = unseal(data[16:], b"WELCOME-" + data[:16], self._with_server, "WELCOME")
        transient = opened[:KEY_SIZE]
        cookie = opened[KEY_SIZE:]
        self._key = shared_key(transient, self._transient.secret)
        long = self._entropy(16)
        vouch = seal(
            self._transient.public + self._server_key,
            b"VOUCH---" + long,
            shared_key(transient, self._keys.secret),
        )
        short = (2).to_bytes(8, "big")
        content = self._keys.public + long + vouch + described(self.our_type, self.our_identity, self.extensions)
        return command(b"INITIATE", cookie + short + seal(content, b"CurveZMQINITIATE" + short, self._key))

    def _ready(self, data: bytes) -> bytes:
        if len(data) < READY_LEAST:
            raise ProtocolViolation(f"READY of {len(data) + 6} octets; it has at least 30")
        short = data[:8]
        self.read_metadata(unseal(data[8:], b"CurveZMQREADY---" + short, self._key, "READY"), listener=False)
        largest = max(self._max_frame, extensions.parse(self.peer_extensions).max_message + ENVELOPE)
        self.traffic = CurveTraffic(self._key, False, 2, int.from_bytes(short, "big"), largest)
        return b""

    def decode(self, data: bytes) -> bytes:
        """Decrypts sealed bytes, in any split, to plain frames."""
        assert self.traffic is not None
        return self.traffic.open(data)

    def encode(self, pieces: "list[Body]") -> "list[Body]":
        """Encrypts complete plain frames, in pieces."""
        assert self.traffic is not None
        return [self.traffic.seal(b"".join(pieces))]
