"""The metrics shown by ``monitor.figures``, ``polydomo.figures`` and ``polydomo watch``.

Rates and latencies cover the second between the last two ticks of the monitor.
"""

from collections import deque
from collections.abc import Callable

from polydomo.broker.catalog.catalog import Catalog
from polydomo.broker.observe import states
from polydomo.broker.observe.histogram import Counts, Tally, add, quantile
from polydomo.broker.observe.tallies import DURABLE, STANDING_IN
from polydomo.broker.requests import queues
from polydomo.broker.state import State
from polydomo.limits import MAX_LISTED, MONITOR_EVENTS, MONITOR_SHOWN
from polydomo.model.json_form import iso_time, microseconds
from polydomo.model.records import BUSY, LATE, READY, REGISTERING, Request, Service

Row = dict[str, object]

PARTS = (("p50_us", 0.5), ("p99_us", 0.99), ("max_us", 1.0))


class Figures:
    def __init__(self, state: State, catalog: Catalog) -> None:
        self._state = state
        self._catalog = catalog
        self.span = 0.0  # seconds between the last two ticks of the monitor, the divisor of rates
        self.events: deque[Row] = deque(maxlen=MONITOR_EVENTS)  # newest last
        self.recent: Callable[[bytes], tuple[int, int]] = lambda name: (
            0,
            0,
        )  # requests of the last minutes, and those that failed
        self.jobs: Callable[[], Row] | None = None  # the figures of durable jobs, if this process has the job store

    def figures(self) -> Row:
        state = self._state
        services = [service for service in state.services.values() if not is_hidden(state, service)]
        recent = _recent(state)
        seen: set[bytes] = set()
        rows: list[Row] = []
        for service in services[:MAX_LISTED]:
            seen.add(service.name)
            rows.append(self._service(service, recent.get(service.name, {})))
        for entry in list(self._catalog.entries.values())[: MAX_LISTED - len(rows)]:
            if entry.state in (READY, LATE):
                rows.append(
                    {
                        **_nothing(entry.name),
                        "protocols": ["dbp"],
                        "state": entry.state,
                        "cause": entry.cause,
                        "workers": 1,
                    }
                )
        everything: Counts = {}
        failed = 0
        for tallies in recent.values():
            for tally in tallies.values():
                add(everything, tally.last)
                failed += tally.last_failures
        return {
            "time": iso_time(state.wall + state.now),
            "address": state.address,
            "uptime_us": microseconds(state.now - state.started),
            "draining": state.draining,
            "connections": connections(state),
            "workers": workers(state),
            "open_requests": open_requests(state),
            "queued": sum(service.queue_length for service in services) + sum(map(len, state.paused.values())),
            "held_bytes": state.held_bytes,
            "span_us": microseconds(self.span),
            **_rates(everything, failed, self.span),
            "jobs": self.jobs() if self.jobs is not None else None,
            "more_services": max(0, len(services) - MAX_LISTED),
            "services": rows,
            "events": list(self.events)[-MONITOR_SHOWN:],
        }

    def _service(self, service: Service, tallies: "dict[str, Tally]") -> Row:
        state = states.of_service(self._state, service)
        counts: Counts = {}
        for tally in tallies.values():
            add(counts, tally.last)
        span = self.span
        callers = {protocol: round(sum(tally.last.values()) / span, 1) for protocol, tally in tallies.items() if span}
        return {
            "name": service.name.decode(errors="backslashreplace"),
            "protocols": sorted({worker.session.protocol for worker in service.workers}),
            "state": state.state,
            "cause": state.cause,
            "workers": len(service.workers),
            "busy": sum(1 for worker in service.workers if worker.held),
            **traffic(self._state, service),
            **self.recent_row(service.name),
            **_rates(counts, sum(tally.last_failures for tally in tallies.values()), span),
            "callers": callers,  # answered requests per second, by client protocol
        }

    def recent_row(self, name: bytes) -> Row:
        """Requests that ended in the last five minutes."""
        requests, failed = self.recent(name)
        return {"recent_requests": requests, "recent_failed": failed}


def is_hidden(state: State, service: Service) -> bool:
    """Whether it is one that process 0 of the broker offers to its siblings."""
    return service.name in state.builtin.offered and not service.workers


def connections(state: State) -> int:
    """Connections of peers, without the broker's internal sessions and those to its other processes."""
    return sum(
        not (session.is_internal or session.is_sibling or session.runs_shared or session.disconnected)
        for session in state.sessions
    )


def open_requests(state: State) -> int:
    """Requests of clients of this process, and attempts of jobs that were submitted as jobs."""
    found = 0
    for session in state.sessions:
        if session.counted_as:
            found += len(session.requests) if session.counted_as not in STANDING_IN else 0
        else:
            found += sum([session.counts_as(request) not in STANDING_IN for request in session.requests])
    return found


def workers(state: State) -> "dict[str, int]":
    """The number of workers in each state."""
    found = {READY: 0, BUSY: 0, LATE: 0}
    for worker in state.workers:
        if worker.session.is_sibling:
            continue
        found[states.of_worker(state, worker).state] += 1
    return found


def totals(state: State) -> Row:
    """Counters since startup."""
    counters = state.counters
    answered = 0
    failed: dict[str, int] = {}
    for (_, protocol), tally in state.tallies.table.items():
        if protocol in STANDING_IN:
            continue
        answered += tally.answered + len(tally.fresh)
        for outcome, count in tally.failed.items():
            failed[outcome] = failed.get(outcome, 0) + count
    return {
        "answered": answered,
        "failed": failed,
        "refused": counters.refused,
        "denied": dict(counters.denied),
        "stale": counters.stale,
        "violations": counters.violations,
        "connections_accepted": counters.connections_accepted,
        "connections_refused": counters.connections_refused,
        "received_bytes": counters.bytes_received,
        "sent_bytes": counters.bytes_sent,
        "datagrams": dict(counters.datagrams),
    }


def _recent(state: State) -> "dict[bytes, dict[str, Tally]]":
    """The tallies with requests that ended in the last second, by service and client protocol."""
    found: dict[bytes, dict[str, Tally]] = {}
    for (name, protocol), tally in state.tallies.table.items():
        if protocol not in STANDING_IN and (tally.last or tally.last_failures):
            found.setdefault(name, {})[protocol] = tally
    return found


def oldest(state: State, service: Service) -> Request | None:
    """The request of a service that waits longest, in its queue or because it is paused."""
    if service.queue_length:
        return queues.oldest(service)
    return next(iter(state.paused.get(service.name, {})), None) if service.paused else None


def traffic(state: State, service: Service) -> Row:
    """The queue and the outcomes of a service."""
    parked = len(state.paused.get(service.name, {})) if service.paused else 0
    first = oldest(state, service)
    answered = failed = 0  # of requests that stand for those of clients
    for protocol in STANDING_IN:
        if protocol == DURABLE:
            continue  # the client's request waits for its job, not at the service: the attempts count there
        tally = state.tallies.table.get((service.name, protocol))
        if tally is not None:
            answered += tally.answered + len(tally.fresh)
            failed += sum(tally.failed.values())
    objective = state.tuning.objectives.get(service.name)
    return {
        "queued": service.queue_length + parked,
        "oldest_wait_us": microseconds(state.now - first.accepted) if first is not None else None,
        "open_requests": service.accepted - service.answered - service.failed,
        "requests": service.accepted - answered - failed,
        "answered": service.answered - answered,
        "failed": service.failed - failed,
        "requeued": service.requeued,
        "objective": str(objective) if objective is not None else None,
        "limits": service.limits.row() if service.limits is not None else None,
    }


def _nothing(name: str) -> Row:
    """A row for a service of the catalog, which clients reach directly."""
    row: Row = {"name": name, "protocols": [], "state": REGISTERING, "cause": "", "workers": 0, "busy": 0, "queued": 0}
    row.update(
        {
            "oldest_wait_us": None,
            "requests": 0,
            "answered": 0,
            "failed": 0,
            "requeued": 0,
            "objective": None,
            "limits": None,
        }
    )
    row.update({"recent_requests": 0, "recent_failed": 0})
    return {**row, **_rates({}, 0, 0.0), "callers": {}}


def _rates(counts: Counts, failed: int, span: float) -> Row:
    row: Row = {
        "rate": round(sum(counts.values()) / span, 1) if span else 0.0,
        "failed_rate": round(failed / span, 1) if span else 0.0,
    }
    for name, part in PARTS:
        row[name] = microseconds(quantile(counts, part)) if counts else None  # null: no request was answered
    return row
