"""Every service that the broker answers itself, in every protocol: MMI (RFC 8), polydomo's own, and Titanic (RFC 9).

One entry is all that a new service needs; docs/monitoring.md has a table of them, which a test compares.
"""

from collections.abc import Callable

from polydomo.broker.builtin.service import (
    FIRST,
    ITSELF,
    NAME,
    OFFERED,
    PROCESSES,
    QUERY,
    Asked,
    BuiltinService,
    BuiltinServices,
)
from polydomo.broker.cluster import merging
from polydomo.broker.flows import services as flow_services
from polydomo.broker.flows import starting as flow_starting
from polydomo.broker.guard.rules import ADMIN, CALL, INSPECT
from polydomo.broker.jobs import services, streams, submission, titanic
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.limiting.limiter import LIMIT
from polydomo.broker.observe import inspection, problems
from polydomo.broker.observe.history import query as history
from polydomo.broker.observe.parts import Parts
from polydomo.broker.reserved_names import ACCEPT, JOIN
from polydomo.broker.service_table import has_worker
from polydomo.limits import MAX_CONTROL, MAX_LOG_QUERY
from polydomo.model.jobs.bulk import count_jobs
from polydomo.model.jobs.messages import answer_body, error_header, read_message
from polydomo.model.outcomes import ABANDON
from polydomo.model.records import Request
from polydomo.wire.frames import Body, flat

Row = dict[str, object]


def build(parts: Parts) -> BuiltinServices:
    """The services of one broker."""
    return BuiltinServices([*_inspection(parts), *_control(parts), *_jobs(parts), *_processes()])


def _inspection(parts: Parts) -> "list[BuiltinService]":
    state = parts.state
    return [
        BuiltinService(
            b"mmi.service",
            INSPECT,
            "`200` if a worker offers the service named in the body, or if it is one of these services, otherwise `404`; any other `mmi.*` "
            "returns `501`",
            # RFC 18: "the broker may integrate services directly rather than using MDP/Worker"
            lambda asked: b"200" if is_known(parts, asked.body) or has_worker(state, asked.body) else b"404",
        ),
        BuiltinService(
            b"polydomo.status",
            INSPECT,
            "totals since the start",
            lambda asked: inspection.status(parts),
            merge=merging.status,
            path="/v1/status",
        ),
        BuiltinService(
            b"polydomo.figures",
            INSPECT,
            "rates and latencies of the last second, by service; states; recent events: as published under `monitor.figures`",
            lambda asked: parts.figures.figures(),
            merge=merging.figures,
            path="/v1/figures",
        ),
        BuiltinService(
            b"polydomo.history",
            INSPECT,
            "the figures of the last 24 hours, of the broker or of a `service`: the body may be a JSON object with `service`, `from`, `to` "
            "and `step` ([history](monitoring.md#history))",
            lambda asked: history.answer(state, parts.history, asked.body),
            merge=history.merged,
            path="/v1/history",
            takes=QUERY,
        ),
        BuiltinService(
            b"polydomo.services",
            INSPECT,
            "a list: name, workers, idle, queued, state, ...",
            rows=lambda: inspection.service_rows(parts),
            merge=merging.by_name,
            path="/v1/services",
        ),
        BuiltinService(
            b"polydomo.service",
            INSPECT,
            "the `service` that the body names, as in the list, null if it is unknown; `why` its oldest waiting request waits; "
            "`open_per_worker`, the open requests of each worker; its `limits`; whether it is `typed`",
            lambda asked: inspection.service_detail(parts, asked.body),
            merge=merging.detail,
            path="/v1/services",
            takes=NAME,
        ),
        BuiltinService(
            b"polydomo.problems",
            INSPECT,
            "what is [wrong](monitoring.md#problems), and why: the worst first; nothing if the list is empty",
            lambda asked: problems.answer(parts),
            merge=problems.merged,
            path="/v1/problems",
        ),
        BuiltinService(
            b"polydomo.errors",
            INSPECT,
            "failed requests by reason, with their count and the last example; the body may be a JSON object with a `service`",
            lambda asked: inspection.errors(parts, asked.body),
            merge=merging.errors,
            path="/v1/errors",
            takes=QUERY,
        ),
        BuiltinService(
            b"polydomo.events",
            INSPECT,
            "the last 256 changes of workers and services, the oldest first",
            lambda asked: list(parts.monitor.events),
            merge=merging.events,
            path="/v1/events",
        ),
        BuiltinService(
            b"polydomo.workers",
            INSPECT,
            "a list: protocol, dialect, peer, services, state, held, ...",
            rows=lambda: inspection.worker_rows(state),
            merge=merging.lists,
            path="/v1/workers",
        ),
        BuiltinService(
            b"polydomo.clients",
            INSPECT,
            "a list of connections that are not workers",
            rows=lambda: inspection.client_rows(state),
            merge=merging.lists,
            path="/v1/clients",
        ),
        BuiltinService(
            b"polydomo.requests",
            INSPECT,
            "a list of requests that are queued, running, or abandoned by their client while a worker still runs them, with their age and "
            "why they wait; at most 1,000",
            lambda asked: inspection.requests(state),
            merge=merging.limited,
            path="/v1/requests",
        ),
        BuiltinService(
            b"polydomo.gone",
            INSPECT,
            "workers, services and clients that disconnected recently, and why",
            lambda asked: {kind: list(gone.values()) for kind, gone in parts.monitor.gone.items()},
            merge=merging.gone,
            path="/v1/gone",
        ),
        BuiltinService(
            b"polydomo.logs",
            INSPECT,
            "log records; the body may contain [filters](logs.md#a-record-on-the-wire)",
            lambda asked: parts.publishing.log_records.answer(asked.body if len(asked.body) <= MAX_LOG_QUERY else b"?"),
            path="/v1/logs",
            takes=QUERY,
        ),
        BuiltinService(
            b"polydomo.journal",
            INSPECT,
            "the status of the journal; with the body `flush`, rows in memory are written to disk",
            lambda asked: state.recorder.journal(asked.body == b"flush"),
            merge=merging.journal,
            path="/v1/journal",
        ),
        BuiltinService(
            b"polydomo.topics",
            INSPECT,
            "topics with the size and the beginning of their last value; the body may be a prefix",
            lambda asked: inspection.topics(parts, asked.principal, asked.body),
            path="/v1/topics",
        ),
        BuiltinService(
            b"polydomo.catalog",
            INSPECT,
            "a list: the services of the catalog, of all protocols",
            lambda asked: parts.directory.first().encode(),
            process=OFFERED,
            path="/v1/catalog",
        ),
        BuiltinService(
            b"polydomo.schema",
            INSPECT,
            "the schemas of typed services by name; with a name as the body, the schema of that service",
            lambda asked: _schema(parts, asked),
            path="/v1/schema",
            takes=NAME,
        ).for_bodies(
            lambda body: body[:1] == b"{",
            BuiltinService(
                b"polydomo.schema",
                ITSELF,
                "a worker describes its service, which it must have the right to offer",
                lambda asked: _schema(parts, asked),
                merge=merging.first,
            ),
        ),
        BuiltinService(
            b"polydomo.memo",
            INSPECT,
            "stored replies of memoised services; the body may be a JSON object with `op`: `ls` or `stats`",
            lambda asked: inspection.memo(parts, asked.body),
            process=OFFERED,
        ).for_bodies(
            lambda body: inspection.json_object(body).get("op") == "rm",
            BuiltinService(
                b"polydomo.memo",
                ADMIN,
                "the `op` `rm` removes stored replies",
                lambda asked: inspection.memo(parts, asked.body),
                process=OFFERED,
            ),
        ),
        BuiltinService(
            b"polydomo.login",
            INSPECT,
            "a one-time code with which a browser logs in as this client",
            lambda asked: inspection.login(parts, asked.principal),
            process=FIRST,
        ),
        BuiltinService(
            b"polydomo.window",
            INSPECT,
            "the number of open requests for the service named in the body that keeps its workers busy ([why](protocols/memo01.md))",
            lambda asked: inspection.window(state, asked.session, asked.body),
            merge=merging.window,
        ),
        BuiltinService(
            ABANDON,
            ITSELF,  # a request of the same connection
            "cancels the open request of this client whose id the body names; [memo01 clients](protocols/extensions.md#memo01) use it",
            lambda asked: b"200" if inspection.abandon(state, asked.session, asked.body) else b"404",
        ),
    ]


def _control(parts: Parts) -> "list[BuiltinService]":
    """Each takes a JSON object that names a ``service``, a ``worker`` or a ``request`` (``workers/control.py``)."""

    def control(name: bytes, says: str) -> BuiltinService:
        return BuiltinService(
            name, ADMIN, says, lambda asked: parts.control.answer(asked.name, asked.body), merge=merging.orders
        )

    return [
        control(b"polydomo.pause", "pauses a `service`: requests are accepted and wait"),
        control(b"polydomo.resume", "ends the pause or drain of a `service` or a `worker`"),
        control(b"polydomo.drain", "drains a `service`, which rejects new requests, or a `worker`, which gets none"),
        control(b"polydomo.withdraw", "cancels the open `request`"),
        BuiltinService(
            LIMIT,
            ADMIN,
            "limits a `service`, a name or pattern: `running`, `rate` and `per`; or `remove`",
            lambda asked: parts.limiter.answer(asked.body),
            merge=merging.first,
        ),
        BuiltinService(
            b"polydomo.limits",
            INSPECT,
            "the limits of services, those that operators have set first",
            lambda asked: parts.limiter.rows(),
            path="/v1/limits",
        ),
    ]


def _jobs(parts: Parts) -> "list[BuiltinService]":
    """Durable jobs and schedules (``jobs/services.py``), and Titanic (``jobs/titanic.py``)."""

    def durable() -> Durable:
        assert parts.durable is not None, "a service that needs the job store was asked without one"
        return parts.durable

    def without_store(asked: Asked) -> object:
        return flat(answer_body(error_header("no-store", services.WITHOUT_STORE)))

    def job(
        name: bytes,
        right: str,
        says: str,
        serve: "Callable[[Durable, Request, Row, bytes], None]",
        uses_quota: bool = False,
    ) -> BuiltinService:
        def served(request: Request, body: Body) -> None:
            header, content = read_message(body, MAX_CONTROL)
            serve(durable(), request, header, content)

        return BuiltinService(
            name,
            right,
            says,
            without_store if right != PROCESSES else None,
            job=served,
            process=OFFERED,
            uses_quota=uses_quota,
        )

    def titanic_service(name: bytes, says: str, serve: "Callable[[Durable, Request, Body], None]") -> BuiltinService:
        def served(request: Request, body: Body) -> None:
            serve(durable(), request, body)

        return BuiltinService(name, CALL, says, job=served, process=OFFERED)

    return [
        # The right to call the service of the job; for `job`, `result`, `stream` and `cancel` of another principal's job, admin.
        job(b"polydomo.submit", ITSELF, "stores a [job](durability.md)", submission.submit, uses_quota=True),
        job(
            b"polydomo.submit.many",
            ITSELF,
            "stores several [jobs](durability.md#many-jobs-at-once) in one transaction",
            submission.submit_many,
            uses_quota=True,
        ).counted(lambda body: count_jobs(read_message(body, MAX_CONTROL)[0])),
        job(b"polydomo.job", ITSELF, "all information about the job `job`", services.show),
        job(
            b"polydomo.result",
            ITSELF,
            "the result of `job`, after at most `wait_us`; the body is the reply",
            services.result,
        ),
        job(
            b"polydomo.stream",
            ITSELF,
            "[partial replies](durability.md#results-while-they-come) of `job` after a position, after at most `wait_us`",
            streams.stream,
        ),
        job(b"polydomo.cancel", ITSELF, "cancels `job`", services.cancel),
        job(
            b"polydomo.jobs",
            INSPECT,
            "a list of jobs of a `state` and a `service`, at most `limit`",
            services.list_jobs,
        ),
        job(
            b"polydomo.retry",
            ADMIN,
            "retries dead jobs: `job`, a list of `jobs`, all of a `service`, or `all`",
            services.retry,
        ),
        job(b"polydomo.drop", ADMIN, "removes dead jobs, with the same fields", services.drop),
        job(b"polydomo.schedule", ADMIN, "adds the [schedule](durability.md#schedules) `name`", services.schedule),
        job(
            b"polydomo.schedules",
            INSPECT,
            "a list of schedules; with a `name`, that one and its next runs",
            services.list_schedules,
        ),
        job(b"polydomo.unschedule", ADMIN, "removes the schedule `name`", services.unschedule),
        job(b"polydomo.fire", ADMIN, "submits a job of the schedule `name` now", services.fire),
        # The right to call each service of the flow; for a flow of another principal, admin.
        job(
            b"polydomo.flow.start",
            ITSELF,
            "stores a [flow](flows.md), in one message or in parts, and starts it",
            flow_starting.start,
            uses_quota=True,
        ),
        job(b"polydomo.flow.show", ITSELF, "the flow `flow`, and its nodes from number `first` on", flow_services.show),
        job(
            b"polydomo.flow.steps",
            ITSELF,
            "nodes of `flow` that have ended, after the position `after`; waits at most `wait_us` for one; with `open`, also "
            "those that run; with `only_end`, no nodes: it waits for the end of the flow; with `reports`, how many reports of progress "
            "the client knows of, also the next `report`",
            flow_services.steps,
        ),
        job(
            b"polydomo.flow.result",
            ITSELF,
            "the result of the `node` of `flow`, after at most `wait_us`",
            flow_services.result,
        ),
        # With the right inspect, the flows of all principals; without it, its own.
        job(b"polydomo.flow.list", ITSELF, "a list of flows of a `state`, at most `limit`", flow_services.list_flows),
        job(b"polydomo.flow.cancel", ITSELF, "cancels `flow`", flow_services.cancel),
        job(b"polydomo.flow.retry", ITSELF, "runs what failed in `flow` again", flow_services.retry),
        job(b"polydomo.flow.remove", ITSELF, "removes `flow`, which has ended, and its results", flow_services.remove),
        job(ACCEPT, PROCESSES, "stores a request to a durable service, for another process", services.accept),
        titanic_service(
            b"titanic.request", "RFC 9: stores a request; needs the right to call its service too", titanic.submit
        ),
        titanic_service(b"titanic.reply", "RFC 9: the reply to it", titanic.reply),
        titanic_service(b"titanic.close", "RFC 9: removes it", titanic.close),
    ]


def _processes() -> "list[BuiltinService]":
    return [
        # Its requests are not answered but run: ``admission`` passes them to ``sharing.keyed``.
        BuiltinService(
            JOIN, PROCESSES, "runs or joins a request with an idempotency key, for another process", process=OFFERED
        ),
    ]


def is_known(parts: Parts, name: bytes) -> bool:
    """Whether the broker answers this name to clients."""
    service = parts.state.builtin.by_name.get(name)
    return service is not None and service.right != PROCESSES and not (service.needs_store() and parts.durable is None)


def _schema(parts: Parts, asked: Asked) -> bytes:
    return parts.schemas.answer(asked.session, asked.body, asked.principal).encode()
