"""The built-in services of durable jobs, in every protocol. ``model.jobs.messages`` describes the messages.

``polydomo.submit``      a new job: ``service``, and optionally ``id``, ``key``, ``delay_us``, ``at``, ``priority``, ``ttl_us``,
                         ``retries``, ``timeout_us``, ``group`` and ``near``; answers once it is stored: ``job``, ``state``, ``repeated``
``polydomo.submit.many`` several new jobs; answers once all are stored (``model.jobs.bulk``). Both are in ``submission``
``polydomo.job``         all information about the job ``job``
``polydomo.result``      the result of ``job``, after at most ``wait_us``; the body is the worker's reply
``polydomo.stream``      partial replies of ``job`` after ``after``, and then the rest of its result (``streams``)
``polydomo.cancel``      cancels ``job``, or the open request ``request``
``polydomo.jobs``        a list of jobs, the newest first, of a ``state`` and a ``service``, at most ``limit``; with ``after``, jobs
                         that have ended, in that order, from a position on: "" is the beginning, ``next`` of an answer continues
``polydomo.retry``       retries dead jobs: ``job``, a list of ``jobs``, all of a ``service``, or ``all``
``polydomo.drop``        removes dead jobs, with the same fields
``polydomo.schedule``    a new schedule: ``name``, ``service``, ``when``, and optionally ``zone``, ``missed``, ``priority``, ``retries``,
                         ``timeout_us`` and ``group``
``polydomo.schedules``   a list of schedules; with a ``name``, that one and its next runs
``polydomo.unschedule``  removes the schedule ``name``
``polydomo.fire``        submits a job of the schedule ``name`` now

Each function here answers one of them, now or later, and raises SettingError. Those of ZeroMQ RFC 9 are in ``titanic``.
"""

from polydomo.broker.flows.flow import FlowRow
from polydomo.broker.flows.growth import Growth
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.durable import NOT_FOUND, PENDING, Durable
from polydomo.broker.jobs.durable_order import order_of
from polydomo.broker.jobs.job import Job, Row
from polydomo.broker.jobs.ops import Op, ScheduleRow, Select, StoreError
from polydomo.broker.jobs.preview import preview
from polydomo.broker.jobs.schedules import STARTS_FLOW
from polydomo.broker.jobs.submission import state_of
from polydomo.errors import SettingError
from polydomo.limits import MAX_LISTED, MAX_RESULT_WAIT, MAX_SERVICE_NAME
from polydomo.model.jobs.messages import (
    read_count,
    read_duration,
    read_id,
    read_mark,
    read_octets,
    read_service,
    read_text,
)
from polydomo.model.json_form import iso_time, microseconds
from polydomo.model.outcomes import DENIED
from polydomo.model.records import HELD, Request
from polydomo.model.retry_policy import backoff_of
from polydomo.wire.frames import Body, split

WITHOUT_STORE = "this broker has no job store; start it with the setting `store`"


# --- jobs -----------------------------------------------------------------------------------------------------------------


def is_denied(durable: Durable, request: Request, job: Job) -> bool:
    """Returns True if the client may not see or cancel the job; then the request was answered."""
    why = durable.denial_of_use(request, job)
    if why:
        durable.fail(request, DENIED, why)
    return bool(why)


def accept(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    """A request to a durable service, from another process of this broker."""
    order = order_of(header, content)
    order.principal = request.origin
    durable.accept_relayed(request, order)


def content_size(body: Body) -> int:
    """The size of a body without framing."""
    return sum(map(len, split(body))) if body else 0


def job_row(job: Job) -> Row:
    """A job as JSON, without its body and result."""
    known = job.phase != states.RECORDING
    return {
        "job": job.id,
        "service": job.service.decode(errors="backslashreplace"),
        "state": state_of(job),
        "origin": job.origin,
        "key": job.key if job.origin != states.REQUEST else "",
        "priority": job.priority,
        "attempts": job.attempts,
        "created": iso_time(job.created),
        "due": iso_time(job.due),
        "expires": iso_time(job.expires) if job.expires else None,
        "ended": iso_time(job.ended) if job.ended and known else None,
        "outcome": job.outcome if known else "",
        "reason": job.reason if known else "",
        "progress": job.progress if job.phase == states.RUNNING else None,
        "schedule": job.schedule,
        # A stored body has at least one frame: it is empty if the store has removed it, or if a list leaves it out.
        "body_bytes": content_size(job.body) if job.body else None,
        "result_bytes": content_size(job.result) if known and job.result else None,
    }


def show(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    id = read_job(header)

    def found(job: Job | None, error: StoreError | None) -> None:
        if job is None:
            not_found(durable, request, id, error)
        elif not is_denied(durable, request, job):
            retries = durable.jobs.backoff_of(job).to_json()
            detail = _detail(durable, job)
            durable.reply(request, {**job_row(job), **detail, "retries": retries, "story": list(job.story)})

    durable.jobs.find(id, found)


def _detail(durable: Durable, job: Job) -> Row:
    """What only one job shows, not a list."""
    runs = job.phase in (states.RUNNING, states.RECORDING) and job.state == states.OPEN
    attempt = durable.running.get(job)
    worker = attempt.worker if attempt is not None and attempt.state == HELD else None
    holder = job.worker if worker is None else worker.name or f"w{worker.number}"
    return {
        "group": job.group,
        "principal": job.principal,
        "trace": job.trace,
        "flow": job.flow or None,
        "timeout_us": microseconds(job.run) if job.run else None,
        "worker": holder if runs else None,
        "started": iso_time(job.started) if runs and job.started else None,
        "body": preview(job.body),
        "result": preview(job.result) if job.phase != states.RECORDING else None,
    }


def not_found(durable: Durable, request: Request, id: str, error: StoreError | None) -> None:
    if error is not None:
        durable.refuse(request, error)
    else:
        durable.fail(request, NOT_FOUND, f"no such job: {id}; it never existed, or its result has expired")


def result(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    id = read_job(header)
    seconds = min(read_duration(header, "wait_us"), MAX_RESULT_WAIT)

    def ended(job: Job | None, error: StoreError | None) -> None:
        if job is None:
            not_found(durable, request, id, error)
        elif is_denied(durable, request, job):
            return
        elif job.state not in states.ENDED or job.id in durable.jobs.open:
            durable.reply(request, {**job_row(job), "error": PENDING, "text": durable.why_pending(job.service)})
        else:
            durable.reply(request, job_row(job), job.result)

    wait = durable.parked[request]
    known = durable.jobs.open.get(id)
    if known is not None and is_denied(durable, request, known):
        return
    if seconds and durable.jobs.wait(id, ended):
        wait.job = id
        durable.waiters.add(id, request)
        wait.answer = ended
        wait.deadline = durable.state.now + seconds
        durable.session.broker.set_timer(seconds, durable.session, request)
    else:
        durable.jobs.find(id, ended)


def cancel(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    id = read_job(header)

    def ended(job: Job | None, error: StoreError | None) -> None:
        if job is None:
            not_found(durable, request, id, error)
        else:
            durable.reply(request, job_row(job))

    def found(job: Job | None, error: StoreError | None) -> None:
        if job is None:
            not_found(durable, request, id, error)
        elif not is_denied(durable, request, job):
            durable.jobs.cancel(id, "cancelled by a client", ended)

    durable.jobs.find(id, found)


def list_jobs(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    state = read_text(header, "state", 20)
    known = (*states.STATES, states.DELAYED, states.QUEUED, states.RUNNING)
    if state and state not in known:
        raise SettingError(f"state: {state!r} must be delayed, queued, running, open, done, dead or cancelled")
    service = read_octets(header, "service", MAX_SERVICE_NAME)
    most = read_count(header, "limit", MAX_LISTED) or 100
    if state in (states.DELAYED, states.QUEUED, states.RUNNING):
        found = [job for job in durable.jobs.open.values() if job.phase == state and service in (b"", job.service)]
        found.sort(key=lambda job: job.created, reverse=True)
        durable.reply(request, {"jobs": [job_row(job) for job in found[:most]], **totals(durable, {})})
        return
    op = Select(state, service, most)
    if header.get("after") is not None:
        op.by_end = True
        op.after_time, op.after_id = _position(read_text(header, "after", 100))

    def selected(_: Op) -> None:
        if op.error is not None:
            durable.refuse(request, op.error)
            return
        if op.by_end:
            newest = op.jobs[-1] if op.jobs else None
            position = f"{newest.ended!r}/{newest.id}" if newest is not None else f"{op.after_time!r}/{op.after_id}"
            keep = durable.jobs.policy.keep
            found: Row = {"jobs": [job_row(job) for job in op.jobs], "next": position, "epoch": durable.jobs.epoch}
            durable.reply(request, {**found, "now": durable.now(), "keep_us": round(keep * 1e6)})
            return
        rows = [job_row(durable.jobs.open.get(job.id, job)) for job in op.jobs]
        durable.reply(request, {"jobs": rows, **totals(durable, op.counts)})

    op.then = selected
    durable.jobs.put(op)


def _position(text: str) -> tuple[float, str]:
    """A place in the order in which jobs ended: ``next`` of an answer. Raises SettingError."""
    if not text:
        return 0.0, ""
    time, _, id = text.partition("/")
    try:
        return float(time), id
    except ValueError:
        raise SettingError(f"after: {text!r} is not a position that an answer had as `next`") from None


def totals(durable: Durable, counts: "dict[str, int]") -> Row:
    jobs = durable.jobs
    return {"leads": jobs.leads, "leader": jobs.leader, "epoch": jobs.epoch, "stored": counts, "open": jobs.phases()}


def retry(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    _dead(durable, request, header, True)


def drop(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    _dead(durable, request, header, False)


def _dead(durable: Durable, request: Request, header: Row, again: bool) -> None:
    """Retries or removes dead jobs: one, some, those of a service, or all."""
    if header.get("job") is not None:
        _dead_some(durable, request, [read_job(header)], again)
        return
    if header.get("jobs") is not None:
        _dead_some(durable, request, _job_ids(header), again)
        return
    service = read_service(header) if header.get("service") is not None else b""
    if not service and header.get("all") is not True:
        raise SettingError("give one of job, jobs (a list), service and all (true)")
    op = Select(states.DEAD, service, 10 * MAX_LISTED)

    def selected(_: Op) -> None:
        if op.error is not None:
            durable.refuse(request, op.error)
        else:
            _dead_some(durable, request, [job.id for job in op.jobs], again)

    op.then = selected
    durable.jobs.put(op)


def _dead_some(durable: Durable, request: Request, ids: "list[str]", again: bool) -> None:
    left = len(ids)
    done: list[str] = []
    problems: list[StoreError] = []

    def one_more(id: str, changed: bool, error: StoreError | None) -> None:
        nonlocal left
        left -= 1
        if changed:
            done.append(id)
        if error is not None:
            problems.append(error)
        if left <= 0:
            if problems and not done:
                durable.refuse(request, problems[0])
            else:
                durable.reply(request, {"retried" if again else "dropped": len(done), "jobs": done[:MAX_LISTED]})

    if not ids:
        durable.reply(request, {"retried" if again else "dropped": 0, "jobs": []})
    for id in ids:
        if again:
            durable.jobs.reopen(
                id,
                lambda job, error, id=id: one_more(id, job is not None, error),  # type: ignore[misc]
                request.origin,
            )
        else:
            durable.jobs.remove(id, lambda changed, error, id=id: one_more(id, changed, error), states.DEAD)  # type: ignore[misc]


def _job_ids(header: Row) -> "list[str]":
    given = header.get("jobs")
    if not isinstance(given, list) or len(given) > MAX_LISTED:
        raise SettingError(f"jobs: must be a list of at most {MAX_LISTED:,} ids")
    return list(dict.fromkeys(read_job({"job": id}) for id in given))


def read_job(header: Row) -> str:
    given = read_text(header, "job", 64).strip()
    id = read_id(given)
    if not id:
        raise SettingError(
            f"job: {given!r} is not a job id, which has 26 letters and digits; `polydomo jobs` lists them"
        )
    return id


# --- schedules --------------------------------------------------------------------------------------------------------------

SCHEDULE_FIELDS = {"flow", "name", "service", "when", "zone", "missed", "priority", "retries", "timeout_us", "group"}


def _name(header: Row) -> str:
    name = read_text(header, "name", MAX_SERVICE_NAME)
    if not name:
        raise SettingError("name: the name of the schedule is missing")
    return name


def list_schedules(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    name = read_text(header, "name", MAX_SERVICE_NAME)
    if not durable.jobs.leads:
        durable.refuse(request, durable.jobs.not_leading())
    elif name:
        found = durable.schedules.one(name)
        if found is None:
            _no_schedule(durable, request, name)
        else:
            durable.reply(request, {"schedule": found})
    else:
        durable.reply(request, {"schedules": durable.schedules.rows()})


def _no_schedule(durable: Durable, request: Request, name: str) -> None:
    durable.fail(request, NOT_FOUND, f"no such schedule: {name!r}; `polydomo schedule ls` lists them")


def schedule(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    unknown = sorted(str(name) for name in header if name not in SCHEDULE_FIELDS)
    if unknown:
        raise SettingError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(SCHEDULE_FIELDS))}")
    starts_flow = header.get("flow") is True
    row = ScheduleRow(
        _name(header),
        STARTS_FLOW if starts_flow else read_service(header),
        content,
        read_text(header, "when", 255),
        read_text(header, "zone", 100) or "UTC",
        durable.now(),
    )
    row.missed = read_text(header, "missed", 20) or "once"
    pattern = Job("", row.service, b"", 0.0)
    pattern.run = read_duration(header, "timeout_us")
    pattern.backoff = backoff_of(header["retries"]) if header.get("retries") is not None else None
    pattern.principal = request.origin
    pattern.group = read_mark(header, "group")
    row.settings = pattern.settings()
    row.priority = read_count(header, "priority", 1_000_000)
    if not starts_flow:
        durable.put_schedule(row, request)
        return
    for name in ("service", "priority", "retries", "timeout_us", "group"):
        if header.get(name):
            raise SettingError(f"{name}: a schedule that starts a flow has none; its nodes have")
    if not durable.jobs.leads:
        durable.refuse(request, durable.jobs.not_leading())
        return

    def read(growth: Growth | None, problem: str, error: StoreError | None) -> None:
        if error is not None:
            durable.refuse(request, error)
        elif problem:
            durable.fail(request, "invalid" if growth is None else DENIED, problem)
        else:
            try:
                durable.put_schedule(row, request)
            except SettingError as wrong:
                durable.fail(request, "invalid", str(wrong))

    durable.schedules.read(row, read)


def unschedule(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    name = _name(header)

    def dropped(done: bool, error: StoreError | None) -> None:
        if error is not None:
            durable.refuse(request, error)
        elif not done:
            _no_schedule(durable, request, name)
        else:
            durable.reply(request, {"name": name})

    durable.schedules.drop(name, dropped)


def fire(durable: Durable, request: Request, header: Row, content: bytes) -> None:
    name = _name(header)

    def started(row: FlowRow | None, problem: str, error: StoreError | None) -> None:
        if row is not None:
            durable.reply(request, {"flow": row.id, "name": name})
        elif error is not None:
            durable.refuse(request, error)
        else:
            durable.fail(request, DENIED, problem)

    if durable.jobs.leads and durable.schedules.start_now(name, request.origin, started):
        return
    job = durable.schedules.run_now(name)
    if job is None:
        if durable.jobs.leads:
            _no_schedule(durable, request, name)
        else:
            durable.refuse(request, durable.jobs.not_leading())
        return

    if not job.principal:
        job.principal = request.origin

    def stored(found: Job | None, error: StoreError | None) -> None:
        if found is None:
            durable.refuse(request, error if error is not None else durable.jobs.not_leading())
        else:
            durable.reply(request, {"job": found.id, "name": name})

    durable.submit(job, stored)
