"""The history as bytes, from one run of the broker to the next: a line that names the format, a line of JSON with the names and sizes of
the series, their samples, and a checksum."""

import json
from collections.abc import Iterator
from zlib import crc32

from polydomo.broker.observe.history.history import BROKER, FigureHistory
from polydomo.broker.observe.history.ring import Ring, Sample
from polydomo.broker.observe.history.series import PER_COARSE, Series
from polydomo.limits import HISTORY_COARSE_STEPS, HISTORY_STEPS

FORMAT = b"polydomo history 1\n"
CHECKSUM = 4  # bytes


class Copy:
    """The history at one moment. It can be written while the broker goes on."""

    __slots__ = ("pieces", "rows", "step")

    def __init__(self, step: int) -> None:
        self.step = step
        self.rows: list[object] = []
        self.pieces: list[bytes] = []

    def chunks(self) -> Iterator[bytes]:
        """What a file has."""
        head = json.dumps({"step": self.step, "series": self.rows}).encode()
        checksum = 0
        for piece in [FORMAT, head, b"\n", *self.pieces]:
            checksum = crc32(piece, checksum)
            yield piece
        yield checksum.to_bytes(CHECKSUM, "big")


def dump(history: FigureHistory) -> bytes:
    """Everything up to now; called when the broker stops."""
    last = history.step
    history.fold()
    history.sample(last)
    history.finish()
    return b"".join(copy(history, last).chunks())


def copy(history: FigureHistory, step: int) -> Copy:
    """All samples that are encoded; ``step`` is the one that has not ended."""
    copied = Copy(step)
    for name, series in [(BROKER, history.broker), *history.series.items()]:
        row: list[object] = [name.decode("latin-1")]
        for ring in (series.fine, series.coarse):
            row.append([ring.first, ring.last, ring.before, ring.workers, len(ring.data)])
            copied.pieces.append(bytes(ring.data))
        copied.rows.append(row)
    return copied


def load(history: FigureHistory, content: bytes) -> None:
    """Adds what an earlier run saved. Raises ValueError if it cannot be used."""
    if not content.startswith(FORMAT):
        raise ValueError("it has another format")
    body = content[:-CHECKSUM]
    if crc32(body) != int.from_bytes(content[-CHECKSUM:], "big"):
        raise ValueError("its checksum does not match")
    end = body.index(b"\n", len(FORMAT))
    head = json.loads(body[len(FORMAT) : end])
    if head["step"] > history.step:
        raise ValueError("it is from the future: the clock was set back")
    at = end + 1
    for name, fine, coarse in head["series"]:
        series = Series()
        at = _fill(series.fine, fine, body, at)
        at = _fill(series.coarse, coarse, body, at)
        known = name.encode("latin-1")
        if head["step"] // PER_COARSE != history.step // PER_COARSE:
            series.close_coarse(head["step"] // PER_COARSE, always=known == BROKER)
        series.fine.drop_before(history.step - HISTORY_STEPS)
        series.coarse.drop_before(history.step // PER_COARSE - HISTORY_COARSE_STEPS)
        own = history.broker if known == BROKER else history.series.get(known)
        if own is not None:
            history.bytes -= own.size()
            series.fine = merged(own.fine, series.fine)
            series.coarse = merged(own.coarse, series.coarse)
            if known != BROKER:
                del history.series[known]
        history.adopt(known, series)


def _fill(ring: Ring, head: "list[int]", body: bytes, at: int) -> int:
    ring.first, ring.last, ring.before, ring.workers, size = head
    ring.data += body[at : at + size]
    return at + size


def merged(one: Ring, other: Ring) -> Ring:
    """The history of a service that two processes served."""
    if not one.data:
        return other
    found = (dict(one.samples()), dict(other.samples()))
    workers = [one.before, other.before]
    ring = Ring(one.length)
    ring.before = one.before + other.before
    for step in sorted(found[0].keys() | found[1].keys()):
        both = Sample()
        for place, samples in enumerate(found):
            sample = samples.get(step)
            if sample is None:
                sample = Sample(workers=workers[place])
            workers[place] = sample.workers
            both.add_other(sample)
        ring.append(step, both)
    return ring
