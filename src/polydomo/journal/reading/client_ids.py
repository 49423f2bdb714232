"""Finds requests by the id that their client gave them: the columns ``client_id`` and ``trace``.

Every segment is read, because ids of clients are not sorted: the cost grows with the size of the journal.
"""

import re
from typing import TYPE_CHECKING, Any

from polydomo import limits
from polydomo.journal import schema
from polydomo.journal.recording.chunk import text

if TYPE_CHECKING:
    from datetime import datetime

    from polydomo.journal.reading.reader import Reader

_TRACE_ID = re.compile("[0-9a-f]{32}")
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")
_BINARY = re.compile("(?:[0-9a-fA-F]{2}){8,}")  # an id of 8 bytes or more, such as a UUID without its dashes


def has_client_id(identity: str) -> Any:
    """The condition for rows of ``requests`` with this id, as an expression of pyarrow.compute. A W3C trace context is found by all of it,
    or by its trace id, the second of its four parts."""
    import pyarrow.compute as pc

    found = _recorded(identity) | (pc.field("trace") == identity)
    if _TRACE_ID.fullmatch(identity):
        found = found | pc.match_substring(pc.field("trace"), f"-{identity}-")
    return found


def _recorded(identity: str) -> Any:
    """A condition for ``client_id``, of which the journal has the first bytes. An id that is no text is given as commands print it, with
    ``\\xNN`` for each byte that is no character, or in hexadecimal."""
    import pyarrow.compute as pc

    raw = identity.encode(errors="surrogateescape")
    forms = {raw, _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), raw)}
    digits = identity.replace("-", "")
    if _BINARY.fullmatch(digits):
        forms.add(bytes.fromhex(digits))
    beginnings = {text(form[: limits.JOURNAL_CLIENT_ID]) for form in forms}
    return pc.field("client_id").isin([identity, *sorted(beginnings)])


def requests_named(reader: "Reader", identity: str) -> "list[tuple[datetime, int, int]]":
    """Time, run and number of each request with this id, in order of time. A request without an outcome has only its row ``accepted``,
    which the level ``messages`` records."""
    if not identity:
        return []
    for kind, where in ((schema.REQUESTS, has_client_id(identity)), (schema.MESSAGES, _recorded(identity))):
        found = [
            row
            for table in reader.tables(kind, where=where)
            for row in zip(*(table[name].to_pylist() for name in ("time", "run", "number")), strict=True)
        ]
        if found:
            return sorted(found)
    return []
