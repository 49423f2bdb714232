"""The libsodium functions that CURVE uses, called through PyNaCl's compiled binding.

The boxes are Curve25519, XSalsa20 and Poly1305. ``nacl.bindings`` copies every argument and result; a busy broker seals and opens twenty
boxes per request, so ``curve_traffic`` calls the functions below directly with buffers. The handshake uses the small wrappers.
"""

from typing import Any

from nacl._sodium import ffi, lib

from polydomo.errors import ProtocolViolation

KEY_SIZE = 32
MAC_SIZE = 16

# libsodium selects its fast implementations for this CPU here; without it XSalsa20 and Poly1305 take twice the time.
if lib.sodium_init() < 0:
    raise ImportError("libsodium cannot be used on this machine: sodium_init failed")

from_buffer: Any = ffi.from_buffer
seal_into: Any = lib.crypto_box_easy_afternm  # (box, message, size of the message, nonce, shared key)
open_into: Any = lib.crypto_box_open_easy_afternm  # (message, box, size of the box, nonce, shared key): 0 if authentic

_new: Any = ffi.new
_buffer: Any = ffi.buffer
_beforenm: Any = lib.crypto_box_beforenm
_base: Any = lib.crypto_scalarmult_base


def public_key(secret: bytes) -> bytes:
    """The public key of a secret key. Any 32 random bytes are a secret key."""
    made = bytearray(KEY_SIZE)
    _base(from_buffer(made), secret)
    return bytes(made)


def shared_key(public: bytes, secret: bytes) -> bytes:
    """The key that two parties share: one key agreement, by far the most expensive step of a handshake."""
    made = bytearray(KEY_SIZE)
    if _beforenm(from_buffer(made), public, secret) != 0:
        raise ProtocolViolation("the peer's public key is not a usable Curve25519 point")
    return bytes(made)


def seal(message: bytes, nonce: bytes, key: bytes) -> bytes:
    """``key`` is a shared key, or any 32-byte key of our own: a box made from a shared key is a secretbox."""
    box = bytearray(len(message) + MAC_SIZE)
    seal_into(from_buffer(box), message, len(message), nonce, key)
    return bytes(box)


def unseal(box: bytes, nonce: bytes, key: bytes, what: str) -> bytes:
    """Opens a box. Raises ProtocolViolation, which names ``what``, if it was made with another key or nonce, or was modified."""
    if len(box) < MAC_SIZE:
        raise ProtocolViolation(f"{what} is too short")
    message = bytearray(len(box) - MAC_SIZE + 1)  # one more, since an empty buffer has no address
    if open_into(from_buffer(message), box, len(box), nonce, key) != 0:
        raise ProtocolViolation(f"{what} cannot be decrypted: it was encrypted with another key, or modified")
    return bytes(message[: len(box) - MAC_SIZE])
