"""``polydomo.problems``: what is wrong, with its cause. An empty list means that nothing is."""

from polydomo.broker.flows.flow import FlowRow
from polydomo.broker.jobs.job import Job
from polydomo.broker.observe import figures
from polydomo.broker.observe.history.series import Series
from polydomo.broker.observe.inspection import why
from polydomo.broker.observe.monitor import SERVICE, WORKER
from polydomo.broker.observe.parts import Parts
from polydomo.broker.service_table import has_worker
from polydomo.limits import (
    FAILING_LEAST,
    FAILING_SEVERE,
    FAILING_SHARE,
    MAX_PROBLEMS,
    MEMORY_TIGHT,
    PROBLEM_TIME,
    QUEUE_GROWN,
    QUEUE_GROWTH,
    RECENT_SLOT,
    RECENT_SLOTS,
)
from polydomo.model.json_form import iso_time
from polydomo.model.outcomes import FAILED
from polydomo.model.records import LEFT, LOST, Service

Row = dict[str, object]

ERROR = "error"
WARNING = "warning"

# In the order in which they are shown.
(
    STORE,
    JOURNAL,
    PROCESSES,
    MEMORY,
    FAILING,
    NO_WORKERS,
    DEAD_JOBS,
    FAILED_FLOWS,
    LOST_WORKERS,
    GROWING,
    THROTTLED,
    PAUSED,
    DRAINED,
    STOPPING,
) = KINDS = (
    "store",
    "journal",
    "processes",
    "memory",
    "failing",
    "no-workers",
    "dead-jobs",
    "failed-flows",
    "lost-workers",
    "queue-growing",
    "throttled",
    "paused",
    "drained",
    "stopping",
)
OF_ALL = (STORE, JOURNAL, PROCESSES, MEMORY, STOPPING)  # the worst of all processes counts; the others add up


def answer(parts: Parts) -> Row:
    return _shown([*_broker(parts), *_services(parts), *_gone(parts), *_jobs(parts)], now_of(parts))


def now_of(parts: Parts) -> str:
    return iso_time(parts.state.wall + parts.state.now)


def problem(kind: str, severity: str, text: str, cause: str, service: str = "", count: int = 0) -> Row:
    return {
        "kind": kind,
        "severity": severity,
        "service": service,
        "text": text,
        "cause": cause,
        "since": None,
        "count": count,
        "of": None,
        "flow": None,
    }


def is_failing(requests: int, failed: int) -> bool:
    return failed >= FAILING_LEAST and failed >= FAILING_SHARE * requests


# --- services


def _services(parts: Parts) -> "list[Row]":
    state = parts.state
    found: list[Row] = []
    for service in state.services.values():
        if figures.is_hidden(state, service):
            continue
        name = service.name.decode(errors="backslashreplace")
        series = parts.history.series.get(service.name)
        held = service.paused or service.drained
        if series is not None and not held:  # what fails then fails because of that
            found += _figures(parts, service, name, series)
        queued = service.queue_length + (len(state.paused.get(service.name, {})) if service.paused else 0)
        waits = f"{queued:,} {'request waits' if queued == 1 else 'requests wait'}"
        if held:
            kind = PAUSED if service.paused else DRAINED
            what = f"{name} is {kind}: {waits}" if service.paused else f"{name} is {kind}: new requests are rejected"
            cause = "an operator paused it; resume it to serve them" if service.paused else "an operator drained it"
            row = problem(kind, WARNING, what, cause, name, queued)
            since = state.since.get(service.name)
            row["since"] = iso_time(state.wall + since) if since is not None else None
            found.append(row)
        elif queued and not service.workers and not service.remote:
            cause = service.state_cause or "no worker has offered it yet"
            row = problem(NO_WORKERS, ERROR, f"no worker offers {name}: {waits}", cause, name, queued)
            row["since"] = iso_time(state.wall + service.no_worker_since)
            found.append(row)
    return found


def _figures(parts: Parts, service: Service, name: str, series: Series) -> "list[Row]":
    found: list[Row] = []
    requests, failed = sum(series.requests), sum(series.failed)
    if is_failing(requests, failed):
        share = failed / requests
        row = problem(
            FAILING,
            ERROR if share >= FAILING_SEVERE else WARNING,
            f"{name} fails {100 * share:.0f} % of its requests",
            _cause(parts, service.name),
            name,
            failed,
        )
        row["of"] = requests
        found.append(row)
    before, queue = series.queues[0], series.queues[-1]
    if queue >= QUEUE_GROWN and queue >= QUEUE_GROWTH * before and service.workers:
        first = figures.oldest(parts.state, service)
        row = problem(
            GROWING,
            WARNING,
            f"the queue of {name} grows: {service.queue_length:,} requests",
            why(parts.state, first) if first is not None else "requests arrive faster than they are served",
            name,
            service.queue_length,
        )
        row["of"] = before
        found.append(row)
    return found


def _cause(parts: Parts, service: bytes) -> str:
    """The most frequent reason of the failures of the last minutes."""
    since = parts.state.now - RECENT_SLOT * RECENT_SLOTS
    for group in parts.state.errors.of(service):
        if group.last >= since:
            return _reason(group.outcome, group.example)
    return ""


def _reason(outcome: str, text: str) -> str:
    """The reason of a worker begins with its own code."""
    return text if outcome == FAILED and text else f"{outcome}: {text}"


# --- peers that are gone


def _gone(parts: Parts) -> "list[Row]":
    state = parts.state
    since = iso_time(state.wall + state.now - PROBLEM_TIME)
    found: list[Row] = []
    for row in parts.monitor.gone[SERVICE].values():
        name = str(row["name"])
        known = state.services.get(name.encode())
        if row["state"] not in (LOST, LEFT) or str(row["time"]) < since or has_worker(state, name.encode()):
            continue
        if known is not None and (known.queue_length or known.paused or known.drained):
            continue  # it is listed for its queue
        made = problem(NO_WORKERS, WARNING, f"no worker offers {name}", str(row["cause"]), name)
        made["since"] = row["time"]
        found.append(made)
    lost: dict[str, list[Row]] = {}
    for row in parts.monitor.gone[WORKER].values():
        services = row.get("services")
        if row["state"] == LOST and str(row["time"]) >= since:
            lost.setdefault(str(services[0]) if isinstance(services, list) and services else "", []).append(row)
    for name, rows in lost.items():
        last = rows[-1]
        count = len(rows)
        what = f"{'a worker' if count == 1 else f'{count} workers'} of {name or 'no service'} {'was' if count == 1 else 'were'} lost"
        made = problem(LOST_WORKERS, WARNING, what, f"{last['name']} at {last['peer']}: {last['cause']}", name, count)
        made["since"] = rows[0]["time"]
        found.append(made)
    return found


# --- durable jobs


def _jobs(parts: Parts) -> "list[Row]":
    durable = parts.durable
    if durable is None:
        return []
    jobs = durable.jobs
    found: list[Row] = []
    if not jobs.leads or jobs.suspended:
        refusal = jobs.not_leading()
        found.append(problem(STORE, WARNING if jobs.leader else ERROR, "jobs do not run at this broker", refusal.text))
    by_service: dict[bytes, list[Job]] = {}
    for death in jobs.dead.values():
        by_service.setdefault(death.service, []).append(death)
    for service, deaths in by_service.items():
        count, last = len(deaths), deaths[-1]
        name = service.decode(errors="backslashreplace")
        what = f"{count:,} {'job' if count == 1 else 'jobs'} of {name} died"
        made = problem(DEAD_JOBS, WARNING, what, _reason(last.outcome, last.reason), name, count)
        made["since"] = iso_time(last.ended)
        found.append(made)
    by_name: dict[str, list[FlowRow]] = {}
    for row in durable.flows.failed.values():
        by_name.setdefault(row.name, []).append(row)
    for flow_name, rows in by_name.items():
        newest = rows[-1]
        what = f"the flow {flow_name} failed" if len(rows) == 1 else f"{len(rows)} runs of the flow {flow_name} failed"
        cause = f"{newest.dead:,} {'node is' if newest.dead == 1 else 'nodes are'} dead, {newest.skipped:,} skipped"
        made = problem(FAILED_FLOWS, WARNING, what, cause, count=len(rows))
        made["since"] = iso_time(newest.ended)
        made["flow"] = newest.id
        found.append(made)
    return found


# --- the broker itself


def _broker(parts: Parts) -> "list[Row]":
    state = parts.state
    found: list[Row] = []
    journal = state.recorder.journal(False)
    if journal.get("trouble"):
        found.append(problem(JOURNAL, ERROR, "the journal cannot be written", str(journal["trouble"])))
    elif journal.get("dropped"):
        dropped = journal["dropped"]
        made = problem(
            JOURNAL, ERROR, f"{dropped:,} rows of the journal were dropped", "the disk was too slow, or full"
        )
        made["count"] = dropped
        found.append(made)
    process = state.process
    if process.count > 1 and len(process.bridges) + 1 < process.count:
        made = problem(
            PROCESSES, ERROR, "a process of the broker does not answer", "it ended and is started again; see the log"
        )
        made["count"] = len(process.bridges) + 1
        made["of"] = process.count
        found.append(made)
    memory = parts.memory
    total = memory.measure() if memory.limit else 0
    if memory.limit and total >= MEMORY_TIGHT * memory.limit:
        kinds = memory.by_kind()
        most = max(kinds, key=lambda kind: kinds[kind])
        made = problem(
            MEMORY,
            ERROR if total >= 0.9 * memory.limit else WARNING,
            f"{100 * total / memory.limit:.0f} % of limits.max_memory are in use",
            f"most of it is held for {most}",
        )
        made["count"], made["of"] = total, memory.limit
        found.append(made)
    paused = len(state.paused_clients)
    if paused:
        service = next(iter(state.paused_clients.values()))
        cause = f"limits.max_outstanding, max_client_bytes or max_queue is reached, for {service.name.decode(errors='backslashreplace')}"
        found.append(_throttled(paused, cause))
    if memory.throttled:
        found.append(_throttled(len(memory.throttled), "limits.max_memory is nearly reached"))
    if state.draining:
        found.append(problem(STOPPING, WARNING, "the broker is shutting down", "it was asked to stop"))
    return found


def _throttled(count: int, cause: str) -> Row:
    text = "a client is not read" if count == 1 else f"{count:,} clients are not read"
    return problem(THROTTLED, WARNING, text, cause, "", count)


# --- the answer


def _shown(rows: "list[Row]", time: object) -> Row:
    ordered = sorted(rows, key=_rank)
    return {"time": time, "problems": ordered[:MAX_PROBLEMS], "more": max(0, len(ordered) - MAX_PROBLEMS)}


def _rank(row: Row) -> "tuple[int, int, int]":
    count, whole = row["count"], row["of"]
    size = count if isinstance(count, int) else 0
    if row["kind"] == FAILING and isinstance(whole, int) and whole:
        size = 1_000_000 * size // whole  # by the share that fails
    return int(row["severity"] != ERROR), KINDS.index(str(row["kind"])), -size


def merged(parts: "list[object]") -> object:
    """The problems of several processes: those of the same kind and service are one."""
    found: dict[tuple[str, str, str], Row] = {}
    time: object = None
    more = 0
    for part in parts:
        if not isinstance(part, dict):
            continue
        time = time or part.get("time")
        more += int(part.get("more") or 0)
        for row in part.get("problems") or ():
            key = (str(row["kind"]), str(row["service"]), str(row.get("flow")))
            known = found.get(key)
            if known is None:
                found[key] = row
            elif key[0] in OF_ALL:
                found[key] = min(known, row, key=_rank)
            else:
                _join(known, row)
    answer = _shown(list(found.values()), time)
    answer["more"] = more + (extra if isinstance(extra := answer["more"], int) else 0)
    return answer


def _join(known: Row, other: Row) -> None:
    if other["severity"] == ERROR and known["severity"] != ERROR:
        known.update({name: other[name] for name in ("severity", "text", "cause")})
    for name in ("count", "of"):
        one, two = known[name], other[name]
        if isinstance(one, int) and isinstance(two, int):
            known[name] = one + two
    times = [str(row["since"]) for row in (known, other) if row["since"]]
    known["since"] = min(times) if times else None
