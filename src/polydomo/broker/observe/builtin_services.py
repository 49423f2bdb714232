"""The services that the broker answers itself, in every protocol: MMI (RFC 8) and polydomo's own.

``mmi.service``        200 if a worker offers the service named in the body, or if it is one of these services, otherwise 404;
                       any other ``mmi.*`` returns 501
``polydomo.status``    the status of the broker as a JSON object
``polydomo.services``  a JSON list: name, workers, idle, queued, ...
``polydomo.workers``   a JSON list: protocol, dialect, peer, services, state, held, ...
``polydomo.requests``  a JSON list of requests that are queued, running, or abandoned by their client while a worker still runs them, with
                       age and reason; at most ``MAX_LISTED``
``polydomo.clients``   a JSON list of connections that are not workers
``polydomo.gone``      workers, services and clients that disconnected recently, and why, as a JSON object
``polydomo.figures``   rates, latencies and states as a JSON object, as published under ``monitor.figures``
``polydomo.logs``      a JSON list of log records; the body may be a JSON object with filters (see ``broker/topics/logs.py``)
``polydomo.journal``   the status of the journal as a JSON object; with the body ``flush``, rows in memory are written to disk
``polydomo.schema``    a JSON object: the schemas of typed services by name; with a name as the body, the schema of that service
``polydomo.memo``      stored replies of memoised services, as JSON; the body may be a JSON object with ``op``: ls, rm, stats
``polydomo.catalog``   a JSON list: the services of the catalog, of all protocols
``polydomo.topics``    a JSON list: topics with the size and the beginning of their last value; the body may be a prefix
``polydomo.login``     a one-time code with which a browser logs in as this client, as a JSON object (``broker/guard/logins.py``)
``polydomo.abandon``   takes back the open request of this client whose id the body names (memo01)
``polydomo.window``    how many requests this client may usefully have outstanding for the service named in the body

Control (``workers/control.py``), each with a JSON object that names a ``service``, a ``worker`` or a ``request``: ``polydomo.pause``,
``polydomo.resume``, ``polydomo.drain``, ``polydomo.withdraw``.

Durable jobs (``broker/jobs/services.py``): ``polydomo.submit``, ``polydomo.job``, ``polydomo.result``, ``polydomo.cancel``,
``polydomo.jobs``, ``polydomo.retry``, ``polydomo.drop``, ``polydomo.schedule``, ``polydomo.schedules``, ``polydomo.unschedule`` and
``polydomo.fire``.
"""

import json
from typing import TYPE_CHECKING

from polydomo.broker.guard import authority
from polydomo.broker.jobs import services as job_services
from polydomo.broker.jobs import titanic
from polydomo.broker.observe import figures, states
from polydomo.broker.reserved_names import CONTROL, OWN
from polydomo.limits import MAX_CONTROL, MAX_LISTED, MAX_LOG_QUERY, TOPIC_PREVIEW
from polydomo.model.job_messages import answer_body, error_header
from polydomo.model.json_form import iso_time, microseconds
from polydomo.model.request import (
    ABANDON,
    ABANDON_MARK,
    CLIENT_CANCELLED,
    CLIENT_TIMEOUT,
    DONE,
    HELD,
    PARKED,
    QUEUED,
    Request,
)
from polydomo.model.service import Service, Worker
from polydomo.model.session import Session
from polydomo.wire.frames import Body, flat, frame, split
from polydomo.wire.link import PAUSE_LISTING

if TYPE_CHECKING:
    from polydomo.broker.broker import Broker

Row = dict[str, object]

STATES = {QUEUED: "queued", HELD: "running", DONE: "abandoned"}  # states of listed requests

NAMES: set[bytes] = {
    OWN + name
    for name in (
        b"status services workers requests clients gone figures logs journal window abandon schema topics catalog memo login"
    ).split()
} | {b"mmi.service", *CONTROL, *job_services.NAMES}


def answer(broker: "Broker", session: Session, name: bytes, body: Body, principal: str) -> Body:
    """Builds the reply to a request for a reserved name. ``principal`` is its origin; admission has checked the right that it needs."""
    if name == b"mmi.service":
        # RFC 18: "the broker may integrate services directly rather than using MDP/Worker"
        asked = flat(body)
        own = asked in NAMES or (asked in titanic.NAMES and broker.durable is not None)
        return frame(b"200" if own or broker.has_worker(asked) else b"404", False)
    if name == b"polydomo.window":
        return frame(str(window(broker, session, flat(body))).encode(), False)
    if name == ABANDON:
        return frame(b"200" if abandon(session, flat(body)) else b"404", False)
    rows: object
    if name == b"polydomo.status":
        rows = status(broker)
    elif name == b"polydomo.services":
        rows = [service_row(broker, service) for service in services(broker)]
    elif name == b"polydomo.workers":
        rows = [worker_row(broker, worker) for worker in workers(broker)]
    elif name == b"polydomo.requests":
        rows = requests(broker)
    elif name == b"polydomo.clients":
        rows = [client_row(broker, peer) for peer in clients(broker)]
    elif name == b"polydomo.gone":
        rows = {kind: list(gone.values()) for kind, gone in broker.monitor.gone.items()}
    elif name == b"polydomo.figures":
        rows = figures.figures(broker)
    elif name == b"polydomo.logs":
        rows = broker.publishing.log_records.answer(flat(body) if len(body) <= MAX_LOG_QUERY else b"?")
    elif name == b"polydomo.schema":
        return frame(broker.schemas.answer(session, flat(body), principal).encode(), False)
    elif name == b"polydomo.memo":
        rows = memo(broker, flat(body))
    elif name == b"polydomo.catalog":
        return frame(broker.directory.first().encode(), False)
    elif name == b"polydomo.topics":
        rows = topics(broker, principal, flat(body))
    elif name == b"polydomo.journal":
        rows = broker.recorder.journal(flat(body) == b"flush")
    elif name == b"polydomo.login":
        return frame(login(broker, principal), False)
    elif name in CONTROL:
        rows = broker.control.answer(name, flat(body))
    elif name in job_services.NAMES:
        return answer_body(error_header("no-store", job_services.WITHOUT_STORE))
    else:
        return frame(b"501", False)  # "501 (Not implemented)"
    return frame(json.dumps(rows).encode(), False)


def too_large(size: int) -> Body:
    """The answer to a request that the broker does not parse."""
    text = f"the request has {size:,} bytes; the limit for built-in services is {MAX_CONTROL:,} (MAX_CONTROL)"
    return answer_body(error_header("too-large", text))


def abandon(session: Session, body: bytes) -> bool:
    """A client takes back one of its own requests, over a protocol that has no message for that: the request's id, and a mark if the
    client's timeout passed. False if there is no such open request."""
    identity, _, mark = body.partition(ABANDON_MARK)
    request = session.find_request(identity)
    if request is None:
        return False
    expired = mark == b"timeout"
    session.broker.cancel(request, CLIENT_TIMEOUT if expired else CLIENT_CANCELLED, expired)
    return True


def login(broker: "Broker", principal: str) -> bytes:
    return json.dumps({"code": broker.logins.issue(principal) if principal else ""}).encode()


def services(broker: "Broker") -> "list[Service]":
    """Without those that process 0 of the broker offers to its siblings."""
    return [service for service in broker.services.values() if not figures.is_hidden(service)]


def workers(broker: "Broker") -> "list[Worker]":
    """Without the other processes of the broker."""
    return [worker for worker in broker.workers if not worker.session.is_sibling]


def clients(broker: "Broker") -> "list[Session]":
    return [
        session
        for session in broker.sessions
        if not (session.worker_count or session.is_internal or session.disconnected)
    ]


def window(broker: "Broker", session: Session, name: bytes) -> int:
    """Twice the capacity of the service's workers: enough to keep them busy. More would only be queued. Limited by the client's limits."""
    policy = broker.policy
    room = policy.max_outstanding - len(session.requests)
    service = broker.services.get(name)
    if service is None:
        return max(0, min(room, 1))
    capacity = sum(worker.credit + len(worker.held) for worker in service.workers)
    return max(0, min(room, policy.max_queue - service.queue_length, max(1, 2 * capacity - service.queue_length)))


def status(broker: "Broker") -> Row:
    return {
        "address": broker.address,
        "started": iso_time(broker.wall + broker.started),
        "uptime_us": microseconds(broker.now - broker.started),
        "connections": figures.connections(broker),
        "workers": len(workers(broker)),
        "services": len(services(broker)),
        "open_requests": figures.open_requests(broker),
        "held_bytes": broker.held_bytes,
        "memory": _memory(broker),
        "largest_peers": broker.memory.largest(),
        "draining": broker.draining,
        "workers_by_state": figures.workers(broker),
        "jobs": broker.durable.figures() if broker.durable is not None else None,
        **figures.totals(broker),
        **_process(broker),
    }


def _memory(broker: "Broker") -> Row:
    """Memory held for peers, by category; ``limit_bytes`` is null without a limit."""
    memory = broker.memory
    row: Row = {"limit_bytes": memory.limit or None, "total_bytes": memory.measure()}
    row.update({f"{kind}_bytes": size for kind, size in memory.by_kind().items()})
    return row


def _process(broker: "Broker") -> Row:
    """What ``merging.status`` needs besides, in a broker of several processes."""
    siblings = broker.siblings
    if siblings.count == 1:
        return {}
    names = [text(service.name) for service in services(broker)]
    return {"process": siblings.index, "pid": siblings.pid, "service_names": names}


def service_row(broker: "Broker", service: Service) -> Row:
    state = states.of_service(broker, service)
    return {
        "name": text(service.name),
        "protocols": sorted(protocols(service)),
        "workers": len(service.workers),
        "idle": len(service.idle),
        **figures.traffic(broker, service),
        "state": state.state,
        "state_since": iso_time(broker.wall + state.since),
        "state_us": microseconds(broker.now - state.since),
        "cause": state.cause,
    }


def worker_row(broker: "Broker", worker: Worker) -> Row:
    state = states.of_worker(broker, worker)
    return {
        "worker": f"w{worker.number}",
        "protocol": worker.session.protocol,
        "dialect": worker.session.dialect,
        "peer": worker.session.link.peer,
        "principal": worker.session.principal,
        "services": [text(service.name) for service in worker.services],
        "state": state.state,
        "state_since": iso_time(broker.wall + state.since),
        "state_us": microseconds(broker.now - state.since),
        "cause": state.cause,
        "held": len(worker.held),
        "credit": worker.credit,
        "done": worker.done,
        "name": worker.name,
        "failed": worker.failures,
        "mean_us": microseconds(worker.busy_time / worker.done) if worker.done else None,
        "max_us": microseconds(worker.slowest) if worker.done else None,
        "draining": worker.draining,
        "registered": iso_time(broker.wall + worker.registered_at),
        "silent_us": microseconds(broker.now - worker.last_heard),
    }


def client_row(broker: "Broker", session: Session) -> Row:
    state = states.of_client(session)
    return {
        "client": f"c{session.number}",
        "protocol": session.protocol,
        "dialect": session.dialect,
        "peer": session.link.peer,
        "principal": session.principal,
        "open_requests": len(session.requests),
        "held_bytes": session.link.held(),
        "paused": bool(session.link.pauses & ~PAUSE_LISTING),  # one that waits for this list is not at a limit
        "state": state.state,
        "state_since": iso_time(broker.wall + state.since),
        "state_us": microseconds(broker.now - state.since),
        "cause": state.cause,
    }


def requests(broker: "Broker") -> list[Row]:
    found: list[Row] = []
    for session in broker.sessions:
        if session.is_sibling:
            continue  # listed by the process whose client asked
        for request in session.requests:
            if len(found) == MAX_LISTED:
                return found
            found.append(request_row(broker, request))
    # requests that a worker still runs although they have ended: the client disconnected, or they timed out
    for worker in broker.workers:
        for request in worker.held.values():
            if request.state == DONE and not request.session.is_sibling:
                if len(found) == MAX_LISTED:
                    return found
                found.append(request_row(broker, request))
    return found


def request_row(broker: "Broker", request: Request) -> Row:
    worker = request.worker
    held = request.state != QUEUED and worker is not None
    since = request.dispatched if held else request.accepted
    return {
        "request": broker.request_name(request),
        "service": text(request.service.name),
        "client": f"c{request.session.number}",
        "protocol": request.session.protocol,
        "state": _state(request),
        "state_since": iso_time(broker.wall + since),
        "state_us": microseconds(broker.now - since),
        "accepted": iso_time(broker.wall + request.accepted),
        "age_us": microseconds(broker.now - request.accepted),
        "worker": f"w{worker.number}" if worker is not None and held else None,
        "attempts": request.attempts,
        "forwards": request.history.forwards,
        "request_bytes": len(request.body)
        if request.state != DONE
        else None,  # a finished request no longer has its body
        "why": why(request),
    }


def _state(request: Request) -> str:
    if request.state == PARKED:
        return "queued" if request.service.paused else "waiting"
    return STATES[request.state]


def why(request: Request) -> str:
    """Why the request is in its current state, as text."""
    service = request.service
    worker = request.worker
    if request.state == PARKED:
        return "the service is paused" if service.paused else "its durable job has no outcome yet"
    if request.state == HELD and worker is not None:
        return f"{_holder(worker)} has it"
    if request.state == DONE and worker is not None:
        return f"{_holder(worker)} still runs it, although it ended as {request.outcome}: {request.history.reason}"
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


def memo(broker: "Broker", asked: bytes) -> object:
    if broker.memoiser is None:
        return {"services": []}
    return broker.memoiser.answer(authority.memo_command(asked))


def topics(broker: "Broker", principal: str, prefix: bytes) -> list[Row]:
    """Topics with their last value, with a preview if it is text: those that the principal may subscribe to."""
    found: list[Row] = []
    for value in broker.publishing.last_values.under(prefix, MAX_LISTED):
        if not broker.access.allows_topic(principal, value.topic):
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
