"""The id of a request: 26 characters that sort by time and are unique across brokers.

It has the shape of a ULID: 48 bits of milliseconds when the request was accepted, 40 bits that name the run of the broker, 40 bits of
the request's number in it (each rounded up to whole characters of Crockford's base 32: 10, 8 and 8). Rows of the journal carry run and
number instead, so ids are made only for what a person or an HTTP client reads.
"""

from functools import lru_cache
from typing import NamedTuple

from polydomo.errors import SettingError

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]  # two characters for each 10 bits
_VALUE = {character: value for value, character in enumerate(ALPHABET)}
TIME_CHARACTERS, RUN_CHARACTERS, NUMBER_CHARACTERS = 10, 8, 8
LENGTH = TIME_CHARACTERS + RUN_CHARACTERS + NUMBER_CHARACTERS
RUN_BITS = 40


class RequestId(NamedTuple):
    accepted_ms: int
    run: int
    number: int

    def __str__(self) -> str:
        return id_text(self.accepted_ms, self.run, self.number)


def id_text(accepted_ms: int, run: int, number: int) -> str:
    return id_prefix(accepted_ms, run) + encode(number, NUMBER_CHARACTERS)


@lru_cache(maxsize=16)
def id_prefix(accepted_ms: int, run: int) -> str:
    """All but the number: the same for every request of one millisecond."""
    return encode(accepted_ms, TIME_CHARACTERS) + encode(run, RUN_CHARACTERS)


def encode(value: int, characters: int) -> str:
    """
    >>> encode(1023, 3)
    '0ZZ'
    """
    if characters == 8:
        return (
            _PAIRS[value >> 30 & 1023] + _PAIRS[value >> 20 & 1023] + _PAIRS[value >> 10 & 1023] + _PAIRS[value & 1023]
        )
    return "".join([ALPHABET[value >> shift & 31] for shift in range(5 * (characters - 1), -1, -5)])


def decode(text: str) -> int:
    value = 0
    for character in text:
        value = value << 5 | _VALUE[character]
    return value


def run_name(run: int) -> str:
    """A run as text, for display and file names."""
    return encode(run, RUN_CHARACTERS)


def parse(text: str) -> RequestId:
    """Parses an id, in upper or lower case. Raises SettingError.

    >>> parse(str(RequestId(1_700_000_000_000, 12345, 7)))
    RequestId(accepted_ms=1700000000000, run=12345, number=7)
    """
    word = text.strip().upper()
    if len(word) != LENGTH or any(character not in _VALUE for character in word):
        raise SettingError(
            f"{text!r} is not a request id, which has {LENGTH} letters and digits; `polydomo requests --since 10m` lists them"
        )
    after_run = TIME_CHARACTERS + RUN_CHARACTERS
    return RequestId(decode(word[:TIME_CHARACTERS]), decode(word[TIME_CHARACTERS:after_run]), decode(word[after_run:]))


def is_id(value: object) -> bool:
    """Whether the text has the form of an id."""
    return isinstance(value, str) and len(value) == LENGTH and all(character in _VALUE for character in value.upper())
