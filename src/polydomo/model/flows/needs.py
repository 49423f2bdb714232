"""The numbers of the nodes that a node needs, as the journal has them: a short text, however many there are."""

from collections.abc import Iterable
from typing import Final

CUT: Final = "..."  # ends a text that has not all numbers


def needs_text(numbers: "Iterable[int]", most: int) -> str:
    """Numbers in order, with ranges, in at most ``most`` characters.

    >>> needs_text([7, 0, 1, 2], 100), needs_text(range(0, 1000, 2), 10)
    ('0-2,7', '0,2,4,...')
    """
    ordered = sorted(numbers)
    parts: list[str] = []
    length = place = 0
    while place < len(ordered):
        first = last = ordered[place]
        while place < len(ordered) and ordered[place] <= last + 1:
            last = ordered[place]
            place += 1
        part = f"{first}-{last}" if last > first else str(first)
        if length + len(part) + 1 + len(CUT) > most:
            parts.append(CUT)
            break
        parts.append(part)
        length += len(part) + 1
    return ",".join(parts)


def needs_of(text: str) -> "list[int]":
    """The numbers in such a text, as far as it has them.

    >>> needs_of("0-2,7"), needs_of("0,2,4,..."), needs_of("")
    ([0, 1, 2, 7], [0, 2, 4], [])
    """
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            found.extend(range(int(first), int(last or first) + 1))
    return found
