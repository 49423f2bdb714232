"""Types and helpers that the parts of the reference share."""

from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
HOUR = 3_600_000_000  # microseconds
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OWN = ("memoised", "keyed")  # protocols of the broker's own workers, which hold requests and do not work


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def hour_of(time: datetime) -> int:
    return us(time) // HOUR


def window_of(time: datetime) -> datetime:
    """The beginning of the hour."""
    return moment(hour_of(time) * HOUR)


def host(peer: str) -> str:
    """A peer without its port."""
    head, found, tail = peer.rpartition(":")
    return head if found and tail.isdigit() else peer
