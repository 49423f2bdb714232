"""The id of a request of this run, as in the journal; without a journal, it has the same form (``request_ids``)."""

from polydomo.broker.identity import identity
from polydomo.broker.requests.request_ids import id_text
from polydomo.broker.state import State
from polydomo.model.records import Request


def request_name(state: State, request: Request) -> str:
    return request_id(state, request.number, request.accepted)


def request_id(state: State, number: int, accepted: float) -> str:
    return state.recorder.request_id(number, accepted) or id_text(
        int((state.wall + accepted) * 1000), int(identity(state)[:10], 16), number
    )
