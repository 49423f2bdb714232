"""Requests with an idempotency key: one with the key of a request that is still open joins it and does not run again.

A key belongs to a principal and a service. Every request under the key gets the partial replies, the final reply or the failure of the one
run. When the last of its clients cancels or its deadline passes, the run is cancelled. If the last client lost its connection, a run that a
worker has begun continues for ``KEYED_LINGER`` seconds, so that a client that connects again and repeats its request finds it.

After the run has ended, the key is free again: replies are not stored. Durable and memoised services store them, and ``Idempotency-Key``
over HTTP does so for a while (``web/idempotency.py``).

**Processes.** If the broker has several processes, process 0 knows the keys of all of them. Another process sends its run of a key to the
service JOIN of process 0, which joins it or runs the request at a worker of any process. Requests of one process are joined there before.
"""

from typing import Final

from polydomo.broker.requests import outcomes
from polydomo.broker.reserved_names import JOIN
from polydomo.broker.sharing.shared_runs import RunOwner, SharedRuns
from polydomo.broker.state import State
from polydomo.limits import KEYED_LINGER, SHARED_PARTS
from polydomo.model.broker_api import BrokerApi
from polydomo.model.outcomes import KEY_REUSED, REFUSED
from polydomo.model.records import Request, Session
from polydomo.model.request_options import RequestOptions
from polydomo.model.shared_run import KEYED, SharedRun
from polydomo.wire.frames import MORE, Body, bounds, join, more

OTHER_BODY: Final = "an open request with this key has another body; use a new key for another request"
TOO_LATE: Final = f"the request with this key has sent more than {SHARED_PARTS} bytes of partial replies already; retry when it has ended"


# How a request was handled, for the recorder.
FIRST: Final = "first"
JOINED: Final = "joined"


def name_of(origin: str, service: bytes, key: bytes) -> bytes:
    """The key with its owner and its service."""
    principal = origin.encode("utf-8", "replace")
    return b"%d,%d:%b%b%b" % (len(principal), len(service), principal, service, key)


def from_sibling(
    broker: BrokerApi, session: Session, message: Body, ref: object, options: RequestOptions
) -> Request | None:
    """In process 0: a run under a key of another process. The message is the key with its owner and service, the service, and the body."""
    data = bytes(message)
    start, after, _ = bounds(data, 0)
    name = data[start:after]
    start, after, flags = bounds(data, after)
    body = data[after:] if flags & MORE else b""
    own = RequestOptions(needs_worker=True, key=name, group=options.group, near=options.near)
    return broker.request(session, data[start:after], body, ref, 0.0, own)


class KeyedRequests(RunOwner):
    """See the module docstring."""

    def __init__(self, api: BrokerApi, state: State) -> None:
        self.state = state
        self.runs = SharedRuns(api, state, self, KEYED, True)
        self.started = 0  # requests that started a run
        self.joined = 0  # requests that joined one
        self.reused = 0  # requests whose key was in use with another body

    def serve(self, request: Request, key: bytes, needs_worker: bool) -> None:
        """Handles an accepted request of a client."""
        state = self.state
        runs = self.runs
        session = request.session
        name = key if session.is_sibling else name_of(request.origin, request.service.name, key)
        run = runs.open.get(name)
        if run is not None and run.body != request.body:
            self.reused += 1
            outcomes.end(state, request, REFUSED, OTHER_BODY)
            request.session.send_failure(request, KEY_REUSED, OTHER_BODY)
        elif run is not None and run.parts is None:
            outcomes.fail(state, request, REFUSED, TOO_LATE)
        elif run is not None:
            self.joined += 1
            number = run.request.number if run.request is not None else 0
            state.recorder.keyed(request, JOINED, key, number)
            runs.hold(request)
            runs.join(run, request)
        else:
            self.started += 1
            if state.records_messages:
                state.recorder.keyed(request, FIRST, key, state.newest_request + 1)
            runs.hold(request)
            service, body = request.service, request.body
            if state.process.index and JOIN in state.services and (service.workers or service.remote):
                head = [name, service.name]
                runs.start(name, request, needs_worker, JOIN, more(head) + body if body else join(head))
            else:
                runs.start(name, request, needs_worker, service.name, body)

    def keeps_running(self, run: SharedRun, disconnected: bool) -> float:
        return KEYED_LINGER if disconnected else 0.0
