"""Curve25519 keys as text: Z85 (RFC 32), and certificate files in the format of CZMQ and pyzmq's ``zmq.auth``.

A certificate file is ZPL (RFC 4); only this part is used::

    curve
        public-key = "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"
        secret-key = "JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"

A public file has no secret key. By convention, its name ends in ``.key``, and that of the secret file in ``.key_secret``.
"""

import re

from polydomo.errors import SettingError
from polydomo.wire.security.sodium import KEY_SIZE, public_key

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
VALUES = {digit: value for value, digit in enumerate(DIGITS)}
Z85_KEY = 40  # characters of a key

_ENTRY = re.compile(
    r"^[ \t]*(public-key|secret-key)[ \t]*=[ \t]*(\"([^\"\n]*)\"|'([^'\n]*)'|(\S+))[ \t]*$", re.MULTILINE
)


def encode_z85(data: bytes) -> str:
    if len(data) % 4:
        raise ValueError("Z85 encodes a multiple of 4 bytes")
    digits = []
    for i in range(0, len(data), 4):
        value = int.from_bytes(data[i : i + 4], "big")
        digits += [DIGITS[value // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(digits)


def decode_z85(text: str) -> bytes:
    """Raises ValueError if the text is not Z85."""
    if len(text) % 5 or any(digit not in VALUES for digit in text):
        raise ValueError("not Z85")
    data = bytearray()
    for i in range(0, len(text), 5):
        value = 0
        for digit in text[i : i + 5]:
            value = value * 85 + VALUES[digit]
        if value >= 1 << 32:
            raise ValueError("not Z85")
        data += value.to_bytes(4, "big")
    return bytes(data)


class Certificate:
    """The contents of a certificate file; ``secret`` is empty in a public one."""

    def __init__(self, public: bytes, secret: bytes = b"") -> None:
        self.public = public
        self.secret = secret

    def __repr__(self) -> str:
        return f"Certificate({encode_z85(self.public)})"  # the secret must not appear in logs or tracebacks


def parse_certificate(text: str, where: str) -> Certificate:
    """Parses a certificate file. Raises SettingError, which names ``where`` it is from and never shows a key."""
    found: dict[str, bytes] = {}
    for match in _ENTRY.finditer(text):
        name = match[1]
        value = next(part for part in match.groups()[2:] if part is not None)
        if name in found:
            raise SettingError(f"{where}: has more than one {name}")
        found[name] = parse_key(value, f"{where}: {name}")
    if "secret-key" in found and found.get("public-key") != public_key(found["secret-key"]):
        raise SettingError(f"{where}: public-key and secret-key do not match")
    if "public-key" not in found:
        raise SettingError(f"{where}: is not a CURVE certificate; create one with `polydomo keys new NAME`")
    return Certificate(found["public-key"], found.get("secret-key", b""))


def parse_key(text: str, where: str) -> bytes:
    """A key of 40 Z85 characters. Raises SettingError."""
    try:
        key = decode_z85(text) if len(text) == Z85_KEY else b""
    except ValueError:
        key = b""
    if len(key) != KEY_SIZE:
        raise SettingError(f"{where} must be a key of {Z85_KEY} Z85 characters")
    return key


def format_certificate(public: bytes, secret: bytes = b"", name: str = "") -> str:
    """The text of a certificate file; with ``secret``, of the secret one."""
    kind = "Secret" if secret else "Public"
    advice = (
        "DO NOT PROVIDE THIS FILE TO OTHER USERS nor change its permissions."
        if secret
        else "Exchange this file securely: an attacker who replaces it can impersonate its owner."
    )
    lines = [f"#   ZeroMQ CURVE {kind} Certificate", f"#   {advice}", "", "metadata"]
    if name:
        lines.append(f'    name = "{name}"')
    lines += ["curve", f'    public-key = "{encode_z85(public)}"']
    if secret:
        lines.append(f'    secret-key = "{encode_z85(secret)}"')
    return "\n".join([*lines, ""])
