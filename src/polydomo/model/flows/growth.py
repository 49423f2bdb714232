"""How the worker of a node answers with more work: a flow that replaces the node.

The reply is one line, ``polydomo-then JOB``, and the flow in JSON, in the form of a flow file. JOB is the id of the job that the worker
runs, so that data that a worker passes on cannot be taken for such an answer: whoever wrote it does not know the id.
"""

import json
from typing import Final

import msgspec

from polydomo.errors import SettingError
from polydomo.limits import MAX_GROWTH
from polydomo.model.flows.flow import Flow
from polydomo.model.flows.flow_file import read_flow, write_flow
from polydomo.wire.frames import Body, bounds, flat

MARK: Final = b"polydomo-then "
_decode = msgspec.json.Decoder().decode


def write_growth(job: str, flow: Flow) -> bytes:
    """The reply of a worker. Raises SettingError."""
    if not 0 < len(flow) <= MAX_GROWTH:
        raise SettingError(f"then: the flow has {len(flow):,} nodes; there must be 1 to {MAX_GROWTH:,} (MAX_GROWTH)")
    return MARK + job.encode() + b"\n" + _text(flow)


def write_stored_flow(flow: Flow) -> bytes:
    """The flow of a schedule. Raises SettingError."""
    if not 0 < len(flow) <= MAX_GROWTH:
        raise SettingError(
            f"schedule: the flow has {len(flow):,} nodes; there must be 1 to {MAX_GROWTH:,} (MAX_GROWTH). A worker can add more"
        )
    return _text(flow)


def _text(flow: Flow) -> bytes:
    return json.dumps(write_flow(flow), separators=(",", ":")).encode()


def is_growth(body: Body) -> bool:
    """Whether a reply begins as one with more work does."""
    if not body:
        return False
    start, end, _ = bounds(body, 0)
    return end - start > len(MARK) and bytes(body[start : start + len(MARK)]) == MARK


def growth_of(body: Body, job: str) -> bytes | None:
    """The JSON of the flow in a reply; None if it is another reply."""
    if not is_growth(body):
        return None
    line, _, rest = flat(body).partition(b"\n")
    return rest if line[len(MARK) :].strip() == job.encode() else None


def read_stored_flow(text: bytes) -> Flow:
    """A flow that is added within one transaction: of a worker's reply, or of a schedule. Raises SettingError."""
    try:
        given = _decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise SettingError(f"the flow is not JSON: {error}") from None
    flow = read_flow(given, MAX_GROWTH)
    if len(flow) > MAX_GROWTH:
        raise SettingError(f"the flow has {len(flow):,} nodes; the limit is {MAX_GROWTH:,} (MAX_GROWTH)")
    return flow
