"""The token of an attempt, which a worker sends back with its reply.

A token is the request's number in nine hexadecimal digits and the attempt's number in three. It is printable, because some peers treat it
as text and workers may put it into log records, where it identifies the request. It is valid only from the worker that holds it. Numbers
repeat after 2^36 requests: a week at 100,000 per second.
"""

from typing import Final

NUMBER_MASK: Final = (1 << 36) - 1
ATTEMPT_MASK: Final = (1 << 12) - 1
TOKEN_SIZE: Final = 12
BLOCK: Final = 12  # low bits of the number, converted for each token; the high bits are converted once per block
IN_BLOCK: Final = (1 << BLOCK) - 1
FIRST_ATTEMPTS: Final = tuple([b"%03x001" % number for number in range(1 << BLOCK)])


class Tokens:
    """Creates tokens. ``dispatch`` reads ``block`` and ``prefix`` directly in the common case, the first attempt of a recent request."""

    __slots__ = ("block", "prefix")

    def __init__(self) -> None:
        self.block = -1  # the high bits that ``prefix`` represents
        self.prefix = b""

    def make(self, number: int, attempt: int) -> bytes:
        if attempt == 1:
            self.block = number >> BLOCK
            self.prefix = b"%06x" % ((number & NUMBER_MASK) >> BLOCK)
        return b"%09x%03x" % (number & NUMBER_MASK, attempt & ATTEMPT_MASK)


def number_of(token: bytes, newest: int) -> int:
    """The request number in a token, where ``newest`` is the newest request; 0 if it is not a token."""
    if len(token) != TOKEN_SIZE:
        return 0
    try:
        number = int(token[:9], 16)
        int(token[9:], 16)
    except ValueError:
        return 0
    number |= newest & ~NUMBER_MASK
    if number > newest:
        number -= NUMBER_MASK + 1
    return max(number, 0)
