"""Ids of requests and runs, as the journal uses them: ``polydomo.broker.requests.request_ids`` makes them."""

from polydomo.broker.requests.request_ids import (
    ALPHABET,
    LENGTH,
    NUMBER_CHARACTERS,
    RUN_BITS,
    TIME_CHARACTERS,
    RequestId,
    decode,
    encode,
    id_text,
    is_id,
    parse,
    run_name,
)

__all__ = [
    "ALPHABET",
    "LENGTH",
    "NUMBER_CHARACTERS",
    "RUN_BITS",
    "TIME_CHARACTERS",
    "RequestId",
    "decode",
    "encode",
    "id_text",
    "is_id",
    "parse",
    "run_name",
]
