"""The broker's metrics in the Prometheus text format 0.0.4.

A page is rendered at most once per ``METRICS_INTERVAL``; scrapes in between get the same page. It has at most ``METRICS_SERVICES``
services; the others are summed under ``service="+other"``.
"""

import os
import resource
import sys
import time
from collections.abc import Iterable, Mapping

from polydomo import __version__, limits, native
from polydomo.broker.broker import Broker
from polydomo.broker.observe import inspection, states
from polydomo.broker.observe.figures import open_requests
from polydomo.broker.observe.histogram import Tally, cumulative
from polydomo.broker.observe.tallies import OTHERS, Key
from polydomo.model.outcomes import OK
from polydomo.server.host import Host
from polydomo.server.logs import INTERNAL_ERRORS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# Upper bounds of the exported latency buckets, in seconds: three per decade, starting at the duration of a loopback call.
BOUNDS = [
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0),
]

Labels = Mapping[str, str]
Sample = tuple[Labels, float]

OTHER = (
    "+other"  # label for all services beyond the first METRICS_SERVICES; no label of a single service begins with "+"
)

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"


class Page:
    """Lines of the text format."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def family(self, name: str, kind: str, help: str, samples: Iterable[Sample]) -> None:
        self._head(name, kind, help)
        self.lines += [sample(name, labels, value) for labels, value in samples]

    def histogram(self, name: str, help: str, rows: Iterable[tuple[Labels, list[int], int, float]]) -> None:
        """Each row: labels, the cumulative count for each of ``BOUNDS``, the total count, and the sum."""
        self._head(name, HISTOGRAM, help)
        for labels, within, count, total in rows:
            for bound, found in zip(BOUNDS, within, strict=True):
                self.lines.append(sample(f"{name}_bucket", {**labels, "le": f"{bound:g}"}, found))
            self.lines.append(sample(f"{name}_bucket", {**labels, "le": "+Inf"}, count))
            self.lines.append(sample(f"{name}_sum", labels, total))
            self.lines.append(sample(f"{name}_count", labels, count))

    def _head(self, name: str, kind: str, help: str) -> None:
        self.lines.append(f"# HELP {name} {help}")
        self.lines.append(f"# TYPE {name} {kind}")


def sample(name: str, labels: Labels, value: float) -> str:
    """
    >>> sample("up", {"service": 'a"b'}, 1)
    'up{service="a\\\\"b"} 1'
    """
    shown = ",".join(f'{key}="{_escape(word)}"' for key, word in labels.items())
    number = str(value) if isinstance(value, int) else repr(float(value))
    return f"{name}{{{shown}}} {number}" if shown else f"{name} {number}"


def _escape(word: str) -> str:
    return word.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def label(name: bytes) -> str:
    """A service's name as the value of a label: readable, without control characters, and different for different names.

    >>> label(b"resize"), label(b"caf\\xc3\\xa9")
    ('resize', 'café')
    >>> label(b"\\xff"), label(b"\\\\xff"), label(b"\\x1b[0m"), label(b"+other")
    ('\\\\xff', '\\\\\\\\xff', '\\\\x1b[0m', '\\\\x2bother')
    """
    words = name.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    if not words.isprintable():
        words = "".join(c if c.isprintable() else "".join(f"\\x{byte:02x}" for byte in c.encode()) for c in words)
    return "\\x2b" + words[1:] if words.startswith("+") else words


class MetricsPage:
    """The metrics page of one server, rendered on request if the last one is too old."""

    def __init__(self, server: Host) -> None:
        self.server = server
        self._page = b""
        self._until = 0.0  # how long the page is valid

    def get(self) -> bytes:
        now = time.monotonic()
        if now >= self._until:
            self._page = render(self.server).encode()
            # Rendering a large page is slow: limit it to a twentieth of the broker's time.
            self._until = now + max(limits.METRICS_INTERVAL, 20.0 * (time.monotonic() - now))
        return self._page


def render(server: Host) -> str:
    """The whole page."""
    page = Page()
    _broker(page, server)
    _services(page, server)
    _requests(page, server)
    _published(page, server.broker)
    _bridges(page, server.broker)
    _jobs(page, server)
    _traffic(page, server)
    _process(page)
    return "\n".join([*page.lines, ""])


def _broker(page: Page, server: Host) -> None:
    broker = server.broker
    info = {"version": __version__, "core": native.core()}
    page.family("polydomo_info", GAUGE, "Always 1; the labels have the version and the form of the core.", [(info, 1)])
    uptime = time.monotonic() - broker.started
    page.family("polydomo_uptime_seconds", GAUGE, "Seconds since the broker started.", [({}, uptime)])
    page.family(
        "polydomo_stopping",
        GAUGE,
        "1 during shutdown, while the broker rejects new requests and lets open ones finish.",
        [({}, int(broker.draining))],
    )
    page.family("polydomo_connections", GAUGE, "Current connections of all kinds.", [({}, _peers(server))])
    by_protocol: dict[str, int] = {}
    for session in broker.sessions:
        if not session.worker_count and not session.disconnected:
            by_protocol[session.protocol] = by_protocol.get(session.protocol, 0) + 1
    clients = [({"protocol": protocol}, count) for protocol, count in sorted(by_protocol.items())]
    page.family("polydomo_clients", GAUGE, "Current connections without a worker.", clients)
    workers: dict[tuple[str, str], int] = {}
    for worker in inspection.workers(broker):
        key = (worker.session.protocol, states.of_worker(broker, worker).state)
        workers[key] = workers.get(key, 0) + 1
    shown = [({"protocol": protocol, "state": state}, count) for (protocol, state), count in sorted(workers.items())]
    page.family("polydomo_workers", GAUGE, "Current workers, by state.", shown)
    lost = broker.counters.workers_lost
    page.family(
        "polydomo_workers_lost_total", COUNTER, "Workers that were lost: silent, or disconnected.", [({}, lost)]
    )
    catalog: dict[str, int] = {}
    for entry in broker.catalog.entries.values():
        catalog[entry.state] = catalog.get(entry.state, 0) + 1
    found = [({"state": state}, count) for state, count in sorted(catalog.items())]
    page.family("polydomo_catalog_services", GAUGE, "Services registered in the catalog (DBP), by state.", found)


def _peers(server: Host) -> int:
    """Connections without those to the other processes of the broker."""
    return len(server.connections) - len(server.broker.siblings.bridges)


def _services(page: Page, server: Host) -> None:
    workers: list[Sample] = []
    idle: list[Sample] = []
    queued: list[Sample] = []
    within: list[Sample] = []
    share: list[Sample] = []
    rest = [0, 0, 0]
    for place, service in enumerate(inspection.services(server.broker)):
        figures = len(service.workers), len(service.idle), service.queue_length
        if place < limits.METRICS_SERVICES:
            who = {"service": label(service.name)}
            workers.append((who, figures[0]))
            idle.append((who, figures[1]))
            queued.append((who, figures[2]))
            objective = server.tuning.objectives.get(service.name)
            if objective is not None:
                within.append((who, objective.seconds))
                share.append((who, objective.target))
        else:
            rest = [a + b for a, b in zip(rest, figures, strict=True)]
    if len(server.broker.services) > limits.METRICS_SERVICES:
        for samples, count in zip((workers, idle, queued), rest, strict=True):
            samples.append(({"service": OTHER}, count))
    page.family("polydomo_service_workers", GAUGE, "Workers that currently offer the service.", workers)
    page.family(
        "polydomo_service_idle_workers", GAUGE, "Workers that are currently ready for a request of the service.", idle
    )
    page.family("polydomo_service_queue", GAUGE, "Requests currently waiting for a worker.", queued)
    if within:
        page.family("polydomo_service_objective_seconds", GAUGE, "Latency objective of the service.", within)
        page.family(
            "polydomo_service_objective_ratio", GAUGE, "Share of requests that should be answered within it.", share
        )


def _requests(page: Page, server: Host) -> None:
    broker = server.broker
    monitor = broker.monitor
    monitor.fold()
    page.family(
        "polydomo_open_requests",
        GAUGE,
        "Accepted requests without an outcome yet.",
        [({}, open_requests(broker))],
    )
    page.family("polydomo_held_bytes", GAUGE, "Size of the bodies of open requests.", [({}, broker.held_bytes)])
    memory = broker.memory
    memory.measure()
    kinds: list[Sample] = [({"kind": kind}, size) for kind, size in memory.by_kind().items()]
    page.family("polydomo_memory_bytes", GAUGE, "Memory held for peers, by purpose.", kinds)
    largest: list[Sample] = [
        ({"peer": str(row["peer"]), "principal": str(row["principal"] or "")}, float(str(row["held_bytes"])))
        for row in memory.largest()
    ]
    page.family("polydomo_peer_memory_bytes", GAUGE, "Memory held for each of the largest peers.", largest)
    page.family(
        "polydomo_memory_limit_bytes",
        GAUGE,
        "Limit of the memory held for peers (limits.max_memory).",
        [({}, memory.limit)],
    )
    page.family(
        "polydomo_memory_cut_total", COUNTER, "Connections closed because memory was short.", [({}, memory.cut)]
    )
    page.family(
        "polydomo_throttled_connections",
        GAUGE,
        "Connections currently not read because memory is short.",
        [({}, len(memory.throttled))],
    )
    tallies = _tallies(monitor.tallies)
    outcomes: list[Sample] = []
    for labels, tally in tallies:
        outcomes.append(({**labels, "outcome": OK}, tally.answered))
        outcomes += [({**labels, "outcome": outcome}, count) for outcome, count in sorted(tally.failed.items())]
    page.family(
        "polydomo_requests_total", COUNTER, "Finished requests, by service, client protocol and outcome.", outcomes
    )
    rows = [(labels, cumulative(tally.total(), BOUNDS), tally.answered, tally.seconds) for labels, tally in tallies]
    page.histogram("polydomo_request_seconds", "Time from acceptance to the final reply, for answered requests.", rows)
    page.family("polydomo_refused_requests_total", COUNTER, "Rejected requests.", [({}, broker.counters.refused)])
    page.family(
        "polydomo_stale_replies_total",
        COUNTER,
        "Replies dropped because the worker did not hold the attempt they name.",
        [({}, broker.counters.stale)],
    )


def _tallies(found: Mapping[Key, Tally]) -> list[tuple[Labels, Tally]]:
    """Labels and counts by service and protocol; by protocol only for services beyond the limit and those that the monitor merges."""
    shown: list[tuple[Labels, Tally]] = []
    others: dict[str, Tally] = {}
    names: set[bytes] = set()
    for (name, protocol), tally in found.items():
        if name != OTHERS and (name in names or len(names) < limits.METRICS_SERVICES):
            names.add(name)
            shown.append(({"service": label(name), "protocol": protocol}, tally))
        else:
            others.setdefault(protocol, Tally()).absorb(tally)
    return shown + [({"service": OTHER, "protocol": protocol}, tally) for protocol, tally in others.items()]


def _published(page: Page, broker: Broker) -> None:
    values, logs = broker.publishing.last_values, broker.publishing.log_records
    page.family(
        "polydomo_publications_total",
        COUNTER,
        "Messages published to this broker.",
        [({}, broker.publishing.published)],
    )
    page.family("polydomo_subscriptions", GAUGE, "Subscriptions now.", [({}, len(broker.publishing.subscriptions))])
    page.family("polydomo_values", GAUGE, "Topics that currently have a last value.", [({}, len(values))])
    page.family("polydomo_value_bytes", GAUGE, "Size of the last values and their topics.", [({}, values.size)])
    page.family(
        "polydomo_values_forgotten_total", COUNTER, "Last values evicted to make room.", [({}, values.forgotten)]
    )
    page.family("polydomo_log_records_total", COUNTER, "Log records received.", [({}, logs.taken)])


def _bridges(page: Page, broker: Broker) -> None:
    bridges = broker.bridging
    page.family("polydomo_bridges", GAUGE, "Current bridges to other brokers.", [({}, len(bridges.learned))])
    known = sum(len(services) for services in bridges.learned.values())
    page.family("polydomo_bridge_services", GAUGE, "Services that other brokers offer over bridges.", [({}, known)])
    held = sum(len(worker.held) for worker in bridges.learned)
    page.family(
        "polydomo_bridge_requests", GAUGE, "Requests currently held by other brokers for this one.", [({}, held)]
    )


def _jobs(page: Page, server: Host) -> None:
    store = server.job_store
    if store is None:
        return
    jobs = store.durable.jobs
    counters = jobs.counters
    page.family(
        "polydomo_jobs_leading", GAUGE, "1 if this broker is the leader of the job store.", [({}, int(store.leads))]
    )
    page.family(
        "polydomo_jobs_store_failing",
        GAUGE,
        "1 if the job store is not available.",
        [({}, int(bool(store.thread.trouble)))],
    )
    phases = [({"phase": phase}, count) for phase, count in jobs.phases().items() if isinstance(count, int)]
    page.family("polydomo_jobs_open", GAUGE, "Durable jobs without an outcome, by phase.", phases)
    ends = {"done": counters.done, "dead": counters.dead, "cancelled": counters.cancelled}
    ended = [({"state": name}, count) for name, count in ends.items()]
    page.family("polydomo_jobs_ended_total", COUNTER, "Finished durable jobs, by state.", ended)
    page.family("polydomo_jobs_accepted_total", COUNTER, "Durable jobs stored.", [({}, counters.accepted)])
    page.family(
        "polydomo_jobs_repeated_total",
        COUNTER,
        "Submissions of a job that already existed.",
        [({}, counters.repeated)],
    )
    page.family(
        "polydomo_jobs_damaged_total",
        COUNTER,
        "Stored jobs that were found damaged when they were read.",
        [({}, counters.damaged)],
    )
    page.family("polydomo_jobs_refused_total", COUNTER, "Rejected durable jobs.", [({}, counters.refused)])
    page.family(
        "polydomo_jobs_retried_total",
        COUNTER,
        "Failed attempts of jobs that are retried.",
        [({}, counters.retried)],
    )
    page.family(
        "polydomo_jobs_attempts_total", COUNTER, "Attempts of jobs that were started.", [({}, counters.started)]
    )
    backoff = round(counters.backoff, 6)
    page.family("polydomo_jobs_backoff_seconds_total", COUNTER, "Waits between attempts of jobs.", [({}, backoff)])
    page.family("polydomo_jobs_reopened_total", COUNTER, "Dead jobs that were reopened.", [({}, counters.reopened)])
    page.family("polydomo_schedules", GAUGE, "Schedules.", [({}, len(store.durable.schedules.plans))])
    page.family("polydomo_schedule_skipped_total", COUNTER, "Missed runs that were left out.", [({}, counters.skipped)])
    page.family("polydomo_schedule_runs_total", COUNTER, "Runs of schedules.", [({}, counters.fired)])
    page.family("polydomo_store_commits_total", COUNTER, "Transactions of the job store.", [({}, store.thread.groups)])
    page.family(
        "polydomo_store_writes_total", COUNTER, "Writes in transactions of the job store.", [({}, store.thread.written)]
    )


def _traffic(page: Page, server: Host) -> None:
    server.count()
    counters = server.broker.counters
    received, sent = counters.bytes_received, counters.bytes_sent
    page.family("polydomo_received_bytes_total", COUNTER, "Bytes read from peers.", [({}, received)])
    page.family("polydomo_sent_bytes_total", COUNTER, "Bytes written to peers.", [({}, sent)])
    accepted, refused = counters.connections_accepted, counters.connections_refused
    page.family("polydomo_connections_total", COUNTER, "Accepted connections.", [({}, accepted)])
    page.family("polydomo_refused_connections_total", COUNTER, "Rejected connections.", [({}, refused)])
    denied = [({"what": what}, number) for what, number in sorted(counters.denied.items())]
    page.family("polydomo_denied_total", COUNTER, "Handshakes and operations denied by access control.", denied)
    memoiser = server.broker.memoiser
    if memoiser is not None:
        counts = {"hit": memoiser.hits, "miss": memoiser.misses, "joined": memoiser.joined}
        memoised = [({"result": result}, count) for result, count in counts.items()]
        page.family("polydomo_memo_requests_total", COUNTER, "Requests for memoised services, by result.", memoised)
        page.family(
            "polydomo_memo_running",
            GAUGE,
            "Requests of memoised services that a worker currently runs.",
            [({}, len(memoiser.runs.open))],
        )
    keyed = server.broker.keyed
    if keyed is not None:
        counts = {"first": keyed.started, "joined": keyed.joined, "reused": keyed.reused}
        results = [({"result": result}, count) for result, count in counts.items()]
        page.family("polydomo_keyed_requests_total", COUNTER, "Requests with an idempotency key, by result.", results)
    page.family("polydomo_violations_total", COUNTER, "Protocol violations by peers.", [({}, counters.violations)])
    datagrams = [({"kind": kind}, count) for kind, count in sorted(counters.datagrams.items())]
    page.family("polydomo_datagrams_total", COUNTER, "UDP datagrams, by type.", datagrams)
    page.family(
        "polydomo_internal_errors_total",
        COUNTER,
        "Errors in the broker's own code. The log has the traceback of each.",
        [({}, INTERNAL_ERRORS.total)],
    )
    for name, count in sorted(server.broker.recorder.figures().items()):
        page.family(f"polydomo_journal_{name}", GAUGE, f"The journal: {name.replace('_', ' ')}.", [({}, count)])


def _process(page: Page) -> None:
    """Process metrics, under the standard names."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    page.family("process_cpu_seconds_total", COUNTER, "User and system CPU time.", [({}, cpu)])
    if sys.platform == "linux":
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * resource.getpagesize()
        page.family("process_resident_memory_bytes", GAUGE, "Resident memory.", [({}, resident)])
        page.family("process_open_fds", GAUGE, "Open files.", [({}, len(os.listdir("/proc/self/fd")) - 1)])
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    page.family("process_max_fds", GAUGE, "Maximum number of open files.", [({}, soft)])
