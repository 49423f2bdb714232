"""Finds an open request by its id or number.

There is no index from numbers to requests: it would cost every request two dictionary operations, and this question is rare. The id
is parsed once, and the search compares numbers.
"""

from polydomo.broker.requests import request_ids
from polydomo.broker.requests.request_names import request_name
from polydomo.broker.state import State
from polydomo.model.records import Request


def find(state: State, wanted: object) -> Request | None:
    """``wanted`` is an id, or a number of this run."""
    if isinstance(wanted, int):
        number = wanted
    elif isinstance(wanted, str) and request_ids.is_id(wanted):
        number = request_ids.parse(wanted).number
    else:
        return None
    if not 0 < number <= state.newest_request:
        return None
    for session in state.sessions:
        if session.requests:
            for request in session.requests:
                if request.number == number:
                    same = isinstance(wanted, int) or request_name(state, request) == wanted.upper()
                    return request if same else None  # the id of another run may have the same number
    return None
