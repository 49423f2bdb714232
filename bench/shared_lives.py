"""Requests that share runs in generated journals: those for memoised services, and those with a key.

A worker of the broker holds the requests. The run is a request of its own, which another client of the broker sends.
"""

import numpy as np

from bench.life import (
    EV,
    KEY_CLIENT,
    KEY_HOLDER,
    LINT,
    MEMO_CLIENT,
    MEMO_STORE,
    MINUTE,
    O_PARTIAL,
    OUTCOMES,
    SEARCH,
    Array,
    Blocks,
    Life,
    visitor,
)
from polydomo.journal import schema

HITS = 0.03  # per request of the other services
_HOW = {name: OUTCOMES.index(name) for name in ("hit", "miss", "joined", "first")}


def memoised(life: Life, dice: np.random.Generator, rows: Blocks, records: Blocks, number: int) -> int:
    """Requests for ``lint``: hits, and once a minute a miss that runs for 90 s, with a request that joins it. Returns the next number."""
    start, end = life.times
    count = int(life.requests * HITS)
    asked = np.sort(dice.integers(start + 1_000_000, end - 1_000_000, count))
    client = dice.integers(1, KEY_CLIENT, count)
    number = _stored(rows, records, number, asked, asked + 7, client, "hit")
    missed = np.arange(start + 4_000_000, end - 100_000_000, MINUTE)
    over = missed + 90_000_000
    number = _stored(rows, records, number, missed, over + 9, 1 + missed // MINUTE % 30, "miss")
    visitor(rows, records, np.arange(number, number + missed.size), LINT, missed + 5, over, client=MEMO_CLIENT)
    number += missed.size
    return _stored(rows, records, number, missed + 45_000_000, over + 9, 2 + missed // MINUTE % 30, "joined")


def _stored(rows: Blocks, records: Blocks, number: int, asked: Array, ended: Array, client: Array, how: str) -> int:
    """Requests that the memo store holds. Returns the next number."""
    numbers = np.arange(number, number + asked.size)
    visitor(rows, records, numbers, LINT, asked, ended, client=client, worker=MEMO_STORE)
    about = {"connection": client, "client": client, "number": numbers, "service": LINT}
    rows.add(t=asked + 2, event=EV[schema.MEMO], order=O_PARTIAL, outcome=_HOW[how], **about)
    return number + asked.size


def keyed(life: Life, rows: Blocks, records: Blocks, extras: Blocks, number: int) -> int:
    """Requests for ``search`` with a key: once a minute one that runs for 80 s, and two that join it. Every third run fails. Returns the
    next number."""
    start, end = life.times
    began = np.arange(start + 6_000_000, end - 90_000_000, MINUTE)
    over = began + 80_000_000
    keys = np.arange(1, began.size + 1)
    failed = (keys % 3 == 0).astype(np.int64)
    # A broker at level ``requests`` does not record which request is the first one.
    firsts = life.level == schema.MESSAGES

    def hold(number: int, later: int, how: str, recorded: bool) -> int:
        numbers = np.arange(number, number + began.size)
        client = 1 + (keys + later) % 30
        visitor(
            rows, records, numbers, SEARCH, began + later, over + 9, client=client, worker=KEY_HOLDER, failed=failed
        )
        if recorded:
            about = {"connection": client, "client": client, "number": numbers, "service": SEARCH}
            extra = np.arange(extras.count, extras.count + began.size)
            extras.add(key=keys, client=client)
            rows.add(
                t=began + later + 2, event=EV[schema.KEYED], order=O_PARTIAL, outcome=_HOW[how], extra=extra, **about
            )
        return number + began.size

    number = hold(number, 0, "first", firsts)
    runs = np.arange(number, number + began.size)
    visitor(rows, records, runs, SEARCH, began + 5, over, client=KEY_CLIENT, failed=failed)
    number = hold(number + began.size, 30_000_000, "joined", True)
    return hold(number, 79_000_000, "joined", True)
