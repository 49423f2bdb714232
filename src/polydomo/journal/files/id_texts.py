"""Converts the ids that clients gave their requests to a column of texts; bytes that are not UTF-8 become ``\\xNN``.

Nearly all of it is numpy's and Arrow's work, during which the broker's loop can run.
"""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polydomo.journal.recording.client_ids import ClientIds
from polydomo.limits import CLIENT_IDS_AT_ONCE

Ints = Any  # np.ndarray of int64
Octets = Any  # np.ndarray of uint8

LOOP_RUNS = 0.00005  # seconds: about the shortest sleep of Linux

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def id_texts(ids: ClientIds, seqs: Ints) -> pa.DictionaryArray:
    """The ids of the events with these sequence numbers; "" for those without. There is at least one id."""
    known, lengths, octets = _arrays(ids)
    texts = _texts(octets, lengths)
    if not np.array_equal(known, seqs):
        places = np.minimum(np.searchsorted(known, seqs), len(known) - 1)
        texts = pc.fill_null(texts.take(pa.array(places, mask=known[places] != seqs)), "")
    return texts.dictionary_encode()


def _arrays(ids: ClientIds) -> "tuple[Ints, Ints, Octets]":
    """Sequence numbers, lengths and bytes. What reads the lists holds the interpreter lock, so it lets the broker's loop run after each
    piece: a release for no time would often be taken back before another thread has woken up."""
    known: list[Ints] = []
    lengths: list[Ints] = []
    octets: list[bytes] = []
    for first in range(0, len(ids.seqs), CLIENT_IDS_AT_ONCE):
        if first:
            time.sleep(LOOP_RUNS)
        piece = ids.identities[first : first + CLIENT_IDS_AT_ONCE]
        octets.append(b"".join(piece))
        lengths.append(np.fromiter(map(len, piece), np.int64, len(piece)))
        known.append(np.array(ids.seqs[first : first + CLIENT_IDS_AT_ONCE], np.int64))
    return np.concatenate(known), np.concatenate(lengths), np.frombuffer(b"".join(octets), np.uint8)


def _texts(octets: Octets, lengths: Ints) -> pa.StringArray:
    ends = np.cumsum(lengths)
    high = octets >= 0x80
    if not high.any():
        return _strings(octets, ends)
    sizes = np.where(high, 4, 1)
    after = np.cumsum(sizes)
    places = after - sizes
    written = np.empty(int(after[-1]), np.uint8)
    written[places] = octets
    places, values = places[high], octets[high]
    written[places] = ord("\\")
    written[places + 1] = ord("x")
    written[places + 2] = _HEX[values >> 4]
    written[places + 3] = _HEX[values & 15]
    texts = _strings(written, after[ends - 1])
    # Only where a byte that can begin a character of UTF-8 precedes one that can continue it may there be such a character.
    begins = (octets[:-1] >= 0xC2) & (octets[:-1] <= 0xF4) & (octets[1:] & 0xC0 == 0x80)
    if not begins.any():
        return texts
    decoded = np.zeros(len(ends), bool)
    decoded[np.searchsorted(ends, np.flatnonzero(begins), "right")] = True
    raw = octets.tobytes()
    spans = zip((ends - lengths)[decoded].tolist(), ends[decoded].tolist(), strict=True)
    others = [raw[first:end].decode(errors="backslashreplace") for first, end in spans]
    return pc.replace_with_mask(texts, pa.array(decoded), pa.array(others, pa.string()))


def _strings(octets: Octets, ends: Ints) -> pa.StringArray:
    offsets = np.zeros(len(ends) + 1, np.int32)
    offsets[1:] = ends
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets), pa.py_buffer(octets))
