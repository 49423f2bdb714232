"""Progress of a request as it is written in messages and lists: a share of the work, from 0 to 1, and a text."""

from typing import Final

from polydomo.limits import MAX_PROGRESS_TEXT

MAX_SHARE: Final = 24  # bytes of a share as text


def progress_row(share: float, text: str) -> "dict[str, object]":
    return {"share": share, "text": text}


def is_share(share: float) -> bool:
    """
    >>> is_share(0.4), is_share(1.1), is_share(float("nan"))
    (True, False, False)
    """
    return 0.0 <= share <= 1.0


def write_share(share: float) -> bytes:
    """
    >>> write_share(0.4), write_share(1), write_share(1 / 3)
    (b'0.4', b'1', b'0.333333')
    """
    return f"{share:g}".encode()


def read_share(text: bytes) -> float | None:
    """The share that ``write_share`` wrote; None if it is none.

    >>> read_share(b"0.4"), read_share(b"1e9"), read_share(b"half"), read_share(b"nan")
    (0.4, None, None, None)
    """
    if len(text) > MAX_SHARE:
        return None
    try:
        share = float(text)
    except ValueError:
        return None
    return share if is_share(share) else None


def read_text(text: bytes) -> str:
    return text[: 4 * MAX_PROGRESS_TEXT].decode("utf-8", "replace")[:MAX_PROGRESS_TEXT]


def write_text(text: str) -> bytes:
    return text.encode("utf-8", "replace")
