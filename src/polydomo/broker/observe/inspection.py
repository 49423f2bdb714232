"""What the broker shows of itself: rows about services, workers, clients and requests, and the totals of ``polydomo.status``.

``builtin/registry`` names the services that return them.
"""

import json
from functools import partial

from polydomo.broker.builtin.service import Row, Rows
from polydomo.broker.cluster import merging
from polydomo.broker.observe import figures, states
from polydomo.broker.observe.error_groups import ErrorGroup
from polydomo.broker.observe.parts import Parts
from polydomo.broker.requests import outcomes
from polydomo.broker.requests.request_names import request_id, request_name
from polydomo.broker.state import State
from polydomo.limits import JOURNAL_CLIENT_ID, MAX_LISTED, TOPIC_PREVIEW
from polydomo.model.json_form import iso_time, microseconds
from polydomo.model.outcomes import ABANDON_MARK, CANCELLED, CLIENT_CANCELLED, CLIENT_TIMEOUT, TIMEOUT
from polydomo.model.records import DONE, HELD, PARKED, QUEUED, Request, Service, Session, Worker
from polydomo.wire.frames import split
from polydomo.wire.link import PAUSE_LISTING

STATES = {QUEUED: "queued", HELD: "running", DONE: "abandoned"}  # states of listed requests


def abandon(state: State, session: Session, body: bytes) -> bool:
    """A client takes back one of its own requests, over a protocol that has no message for that: the request's id, and a mark if the
    client's timeout passed. False if there is no such open request."""
    identity, _, mark = body.partition(ABANDON_MARK)
    request = session.find_request(identity)
    if request is None:
        return False
    if request.state != DONE:
        why, outcome = (CLIENT_TIMEOUT, TIMEOUT) if mark == b"timeout" else (CLIENT_CANCELLED, CANCELLED)
        outcomes.cancel(state, request, why, outcome)
    return True


def login(parts: Parts, principal: str) -> Row:
    return {"code": parts.logins.issue(principal) if principal else ""}


def services(state: State) -> "list[Service]":
    """Without those that process 0 of the broker offers to its siblings."""
    return [service for service in state.services.values() if not figures.is_hidden(state, service)]


def workers(state: State) -> "list[Worker]":
    """Without the other processes of the broker."""
    return [worker for worker in state.workers if not worker.session.is_sibling]


def clients(state: State) -> "list[Session]":
    return [
        session
        for session in state.sessions
        if not (session.worker_count or session.is_internal or session.disconnected)
    ]


def window(state: State, session: Session, name: bytes) -> int:
    """Twice the capacity of the service's workers: enough to keep them busy. More would only be queued. Limited by the client's limits."""
    policy = state.policy
    room = policy.max_outstanding - len(session.requests)
    service = state.services.get(name)
    if service is None:
        return max(0, min(room, 1))
    capacity = sum(worker.credit + len(worker.held) for worker in service.workers)
    return max(0, min(room, policy.max_queue - service.queue_length, max(1, 2 * capacity - service.queue_length)))


def status(parts: Parts) -> Row:
    state = parts.state
    return {
        "address": state.address,
        "started": iso_time(state.wall + state.started),
        "uptime_us": microseconds(state.now - state.started),
        "connections": figures.connections(state),
        "workers": len(workers(state)),
        "services": len(services(state)),
        "open_requests": figures.open_requests(state),
        "held_bytes": state.held_bytes,
        "memory": _memory(parts),
        "largest_peers": parts.memory.largest(),
        "draining": state.draining,
        "workers_by_state": figures.workers(state),
        "jobs": parts.durable.figures() if parts.durable is not None else None,
        **figures.totals(state),
        **_process(state),
    }


def _memory(parts: Parts) -> Row:
    """Memory held for peers, by category; ``limit_bytes`` is null without a limit."""
    memory = parts.memory
    row: Row = {"limit_bytes": memory.limit or None, "total_bytes": memory.measure()}
    row.update({f"{kind}_bytes": size for kind, size in memory.by_kind().items()})
    return row


def _process(state: State) -> Row:
    """What ``merging.status`` needs besides, in a broker of several processes."""
    process = state.process
    if process.count == 1:
        return {}
    names = [text(service.name) for service in services(state)]
    return {"process": process.index, "pid": process.pid, "service_names": names}


# The rows of long lists are built when they are read. With ``map``: compiled, a generator expression builds them all at once.


def service_rows(parts: Parts) -> Rows:
    found = services(parts.state)
    return Rows(len(found), map(partial(service_row, parts), found))


def service_row(parts: Parts, service: Service) -> Row:
    state = parts.state
    found = states.of_service(state, service)
    return {
        "name": text(service.name),
        "protocols": sorted(protocols(service)),
        "workers": len(service.workers),
        "idle": len(service.idle),
        **figures.traffic(state, service),
        **parts.figures.recent_row(service.name),
        "state": found.state,
        "state_since": iso_time(state.wall + found.since),
        "state_us": microseconds(state.now - found.since),
        "cause": found.cause,
    }


def service_detail(parts: Parts, name: bytes) -> Row:
    """One service: its row, null if it is unknown, why its oldest waiting request waits, and the limits of its requests."""
    state = parts.state
    policy, tuning = state.policy, state.tuning
    service = state.services.get(name)
    durable = state.durable_requests
    limits: Row = {
        "max_queue": policy.max_queue,
        "max_outstanding": policy.max_outstanding,
        "max_message_bytes": policy.max_message,
        "attempts": policy.attempts,
        "queue_expiry_us": microseconds(policy.queue_expiry),
        "busy_timeout_us": microseconds(tuning.busy_timeout),
        "durable": durable is not None and durable.covers(name),
        "memoised": parts.memoiser is not None and parts.memoiser.names.get(name) is True,
    }
    hidden = service is None or figures.is_hidden(state, service)
    row = service_row(parts, service) if service is not None and not hidden else None
    waiting = parts.durable.jobs.waiting_jobs.count(name) if parts.durable is not None else 0
    first = figures.oldest(state, service) if service is not None and not hidden else None
    return {
        "service": row,
        "why": why(state, first) if first is not None else "",
        "waiting_jobs": waiting,
        "open_per_worker": merging.open_per_worker(row, waiting),
        "limits": limits,
        "typed": parts.schemas.find(name) is not None,
    }


def errors(parts: Parts, body: bytes) -> object:
    """Groups of failed requests, the most frequent first; of one service if the body names it."""
    query = json_object(body)
    wanted = query.get("service")
    table = parts.state.errors
    names = list(table.services) if wanted is None else [str(wanted).encode("utf-8", "surrogateescape")]
    found = [error_row(parts.state, name, group) for name in names for group in table.of(name)]
    return sorted(found, key=error_rank)


def error_rank(row: Row) -> int:
    count = row.get("count")
    return -count if isinstance(count, int) else 0


def error_row(state: State, service: bytes, group: ErrorGroup) -> Row:
    return {
        "service": text(service),
        "outcome": group.outcome,
        "reason": group.reason,
        "count": group.count,
        "first": iso_time(state.wall + group.first),
        "last": iso_time(state.wall + group.last),
        "request": request_id(state, group.number, group.accepted),
        "example": group.example,
        "worker": f"w{group.worker}" if group.worker else None,
        "worker_name": group.worker_name,
        "client": f"c{group.client}",
        "protocol": group.protocol,
        "principal": group.principal,
    }


def worker_rows(state: State) -> Rows:
    found = workers(state)
    return Rows(len(found), map(partial(worker_row, state), found))


def worker_row(state: State, worker: Worker) -> Row:
    found = states.of_worker(state, worker)
    return {
        "worker": f"w{worker.number}",
        "protocol": worker.session.protocol,
        "dialect": worker.session.dialect,
        "peer": worker.session.link.peer,
        "principal": worker.session.principal,
        "services": [text(service.name) for service in worker.services],
        "state": found.state,
        "state_since": iso_time(state.wall + found.since),
        "state_us": microseconds(state.now - found.since),
        "cause": found.cause,
        "held": len(worker.held),
        "credit": worker.credit,
        "slots": len(worker.held) + worker.credit,
        "done": worker.done,
        "name": worker.name,
        "failed": worker.failures,
        "mean_us": microseconds(worker.busy_time / worker.done) if worker.done else None,
        "max_us": microseconds(worker.slowest) if worker.done else None,
        "draining": worker.draining,
        "registered": iso_time(state.wall + worker.registered_at),
        "silent_us": microseconds(state.now - worker.last_heard),
    }


def client_rows(state: State) -> Rows:
    found = clients(state)
    return Rows(len(found), map(partial(client_row, state), found))


def client_row(state: State, session: Session) -> Row:
    found = states.of_client(session)
    return {
        "client": f"c{session.number}",
        "protocol": session.protocol,
        "dialect": session.dialect,
        "peer": session.link.peer,
        "principal": session.principal,
        "open_requests": len(session.requests),
        "held_bytes": session.link.held(),
        "paused": bool(session.link.pauses & ~PAUSE_LISTING),  # one that waits for this list is not at a limit
        "state": found.state,
        "state_since": iso_time(state.wall + found.since),
        "state_us": microseconds(state.now - found.since),
        "cause": found.cause,
    }


def requests(state: State) -> list[Row]:
    found: list[Row] = []
    for session in state.sessions:
        if session.is_sibling:
            continue  # listed by the process whose client asked
        for request in session.requests:
            if len(found) == MAX_LISTED:
                return found
            found.append(request_row(state, request))
    # requests that a worker still runs although they have ended: the client disconnected, or they timed out
    for worker in state.workers:
        for request in worker.held.values():
            if request.state == DONE and not request.session.is_sibling:
                if len(found) == MAX_LISTED:
                    return found
                found.append(request_row(state, request))
    return found


def request_row(state: State, request: Request) -> Row:
    worker = request.worker
    held = request.state != QUEUED and worker is not None
    since = request.dispatched if held else request.accepted
    return {
        "request": request_name(state, request),
        "service": text(request.service.name),
        "client": f"c{request.session.number}",
        "client_id": text(request.session.client_id_of(request)[:JOURNAL_CLIENT_ID]),
        "protocol": request.session.protocol,
        "group": text(request.options.group),
        "principal": request.origin,
        "state": _state(request),
        "state_since": iso_time(state.wall + since),
        "state_us": microseconds(state.now - since),
        "accepted": iso_time(state.wall + request.accepted),
        "age_us": microseconds(state.now - request.accepted),
        "worker": f"w{worker.number}" if worker is not None and held else None,
        "attempts": request.attempts,
        "forwards": request.history.forwards,
        "request_bytes": len(request.body)
        if request.state != DONE
        else None,  # a finished request no longer has its body
        "progress": request.history.progress.to_json() if request.history.progress is not None else None,
        "why": why(state, request),
    }


def _state(request: Request) -> str:
    if request.state == PARKED:
        return "queued" if request.service.paused else "waiting"
    return STATES[request.state]


def why(state: State, request: Request) -> str:
    """Why the request is in its current state, as text."""
    service = request.service
    worker = request.worker
    if request.state == PARKED:
        return "the service is paused" if service.paused else "its durable job has no outcome yet"
    if request.state == HELD and worker is not None:
        return f"{_holder(worker)} has it"
    if request.state == DONE and worker is not None:
        return f"{_holder(worker)} still runs it, although it ended as {request.outcome}: {request.history.reason}"
    limited = state.limits.why(request)
    if limited:
        return limited
    count = len(service.workers)
    if not count:
        return "the bridges to its workers are full" if service.remote else "no worker offers it"
    who = "its only worker is" if count == 1 else "both workers are" if count == 2 else f"all {count} workers are"
    lost = request.attempts - request.history.attempts_before_forward
    again = f"; lost {lost} times" if lost else ""
    return f"{who} busy{again}"


def _holder(worker: Worker) -> str:
    if worker.session.is_sibling:
        return "a worker of another process"
    return f"{'the broker behind' if worker.session.protocol == 'bridge' else 'worker'} w{worker.number}"


def memo(parts: Parts, asked: bytes) -> object:
    if parts.memoiser is None:
        return {"services": []}
    return parts.memoiser.answer(json_object(asked))


def json_object(body: bytes) -> Row:
    """The body of a request to a built-in service; empty if it is not a JSON object."""
    try:
        command = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        return {}
    return command if isinstance(command, dict) else {}


def topics(parts: Parts, principal: str, prefix: bytes) -> list[Row]:
    """Topics with their last value, with a preview if it is text: those that the principal may subscribe to."""
    found: list[Row] = []
    for value in parts.publishing.last_values.under(prefix, MAX_LISTED):
        if not parts.access.allows_topic(principal, value.topic):
            continue
        topic, *frames = split(value.message)
        content = b"".join(frames)
        row: Row = {"topic": text(topic), "frames": len(frames), "size_bytes": len(content)}
        try:
            shown = content[: 4 * TOPIC_PREVIEW].decode(
                "utf-8", "strict" if len(content) <= 4 * TOPIC_PREVIEW else "ignore"
            )
            row["value"] = shown[:TOPIC_PREVIEW]
        except UnicodeDecodeError:
            row["value"] = None
        found.append(row)
    return found


def protocols(service: Service) -> set[str]:
    """The protocols of its workers; ``bridge`` if another broker offers it."""
    found = {worker.session.protocol for worker in service.workers}
    away = any(not worker.session.is_sibling for worker in service.remote)
    return found | {"bridge"} if away else found


def text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")
