"""The settings of payload tables: which payloads of the journal become typed tables of their own."""

import re

from polydomo.errors import SettingError
from polydomo.pipeline.engine.plan import Payload

JSON, ARROW = "json", "arrow"
FORMATS = (JSON, ARROW)
_TYPES = ("STRING", "BIGINT", "DOUBLE", "BOOLEAN", "TIMESTAMP", "DATE")


def parsed(text: str) -> Payload:
    """``NAME=FORMAT`` or ``NAME=FORMAT(column TYPE, ...)``; NAME is a service or topic, and may end with ``*``.

    >>> parsed("sensors.*=json").name
    'sensors'
    >>> parsed("resize=json(width BIGINT, name STRING)").columns
    (('width', 'BIGINT'), ('name', 'STRING'))
    """
    match = re.fullmatch(r"\s*(.+?)\s*=\s*(\w+)\s*(?:\((.*)\))?\s*", text)
    if match is None or match[2] not in FORMATS:
        raise SettingError(
            f"--payload: {text!r} is not NAME=FORMAT with json or arrow, such as sensors.*=json or resize=json(width BIGINT)"
        )
    columns = []
    for one in (match[3] or "").split(","):
        words = one.split()
        if not words:
            continue
        if len(words) != 2 or words[1].upper() not in _TYPES:
            raise SettingError(f"--payload: {one.strip()!r} is not a column and one of {', '.join(_TYPES)}")
        columns.append((words[0], words[1].upper()))
    name = re.sub(r"\W+", "_", match[1].rstrip("*").strip(".")).strip("_").lower() or "all"
    return Payload(match[1], match[2], name, tuple(columns))
