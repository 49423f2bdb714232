"""Schedules submit jobs at given times. Each run is stored together with the time of the next run, so that it happens exactly once."""

from collections.abc import Callable
from datetime import datetime, tzinfo
from typing import Final, Protocol

from polydomo.broker.flows.flow import FlowRow
from polydomo.broker.flows.growth import Growth
from polydomo.broker.flows.ops import ReadGrowth, StartFlow
from polydomo.broker.jobs.events import firing
from polydomo.broker.jobs.job import SCHEDULED, Job, Row
from polydomo.broker.jobs.jobs import Jobs
from polydomo.broker.jobs.ops import FULL, DropSchedule, Fire, Op, PutSchedule, ScheduleRow, StoreError
from polydomo.broker.jobs.timing import Timing, missed_runs, read_timing
from polydomo.errors import SettingError
from polydomo.limits import JOB_REFUSED_WAIT, MAX_SCHEDULES, SCHEDULE_RUNS
from polydomo.model.json_form import iso_time
from polydomo.wire.frames import flat

# policies for missed runs
ONCE: Final = "once"
SKIP: Final = "skip"
# The service in the row of a schedule that starts a flow; the body is the flow in JSON.
STARTS_FLOW: Final = b"polydomo.flow.start"
LATE = 60.0  # seconds after which a run counts as missed: longer than a restart of the broker

Done = Callable[[bool, StoreError | None], None]
Read = Callable[[Growth | None, str, StoreError | None], None]


class ScheduleContext(Protocol):
    """The interface for time zones and job ids."""

    def zone(self, name: str) -> tzinfo:
        """The time zone with this name. Raises SettingError."""
        raise NotImplementedError

    def new_id(self) -> str:
        """Creates the id of a new job."""
        raise NotImplementedError

    def denial_of_services(self, principal: str, services: "list[bytes]") -> str:
        """Why the principal may not start a flow of these services now; "" if it may."""
        raise NotImplementedError

    def flow_started(self, row: FlowRow) -> None:
        """A flow was stored, and runs."""
        raise NotImplementedError

    def refusal_of(self, job: Job) -> str:
        """Why the job may not run: its principal does not have the right to call the service now. "" if it may."""
        raise NotImplementedError


class PlannedSchedule:
    """One schedule with its parsed timing."""

    def __init__(self, row: ScheduleRow, timing: Timing, zone: tzinfo) -> None:
        self.row = row
        self.timing = timing
        self.zone = zone
        self.firing = False  # a run is being stored
        self.retry_at = 0.0
        self.problem = ""  # why the last run was left out

    @property
    def starts_flow(self) -> bool:
        return self.row.service == STARTS_FLOW

    @property
    def principal(self) -> str:
        """The principal whose right each run needs."""
        pattern = Job("", self.row.service, b"", 0.0)
        pattern.configure(self.row.settings)
        return pattern.principal


class Schedules:
    def __init__(self, jobs: Jobs, clockwork: ScheduleContext) -> None:
        self.jobs = jobs
        self.clockwork = clockwork
        self.plans: dict[str, PlannedSchedule] = {}
        self.broken: dict[str, str] = {}  # stored schedules that cannot be parsed, and why

    def load(self, rows: "list[ScheduleRow]") -> None:
        """Loads the schedules when this broker becomes the leader."""
        self.plans.clear()
        self.broken.clear()
        for row in rows:
            if row.damage:
                self.broken[row.name] = row.damage
                continue
            try:
                self.plans[row.name] = self._plan(row)
            except SettingError as error:  # a missing time zone must not stop the other schedules
                self.broken[row.name] = str(error)

    def clear(self) -> None:
        self.plans.clear()

    def _plan(self, row: ScheduleRow) -> PlannedSchedule:
        return PlannedSchedule(row, read_timing(row.timing), self.clockwork.zone(row.zone))

    def check(self, row: ScheduleRow) -> None:
        """Sets the first run. Raises SettingError if the schedule is invalid."""
        plan = self._plan(row)
        if row.missed not in (ONCE, SKIP):
            raise SettingError(f"schedule: missed is {row.missed!r}; it must be {ONCE} or {SKIP}")
        row.next = plan.timing.after(self.jobs.runner.now(), row.created, plan.zone)
        if not row.next:
            raise SettingError(f"schedule: {row.timing!r} is never due")

    def put(self, row: ScheduleRow, answer: Done) -> None:
        """Stores a checked schedule. It replaces one of the same name; one that has not changed keeps its next run, so that a program can
        declare its schedules whenever it starts."""
        known = self.plans.get(row.name)
        if known is not None and known.row.next and row.same(known.row):
            row.next = known.row.next
            answer(True, None)
            return
        error = self.jobs.refusal(len(row.body))
        if error is None and row.name not in self.plans and len(self.plans) >= MAX_SCHEDULES:
            error = StoreError(FULL, f"there are already {len(self.plans)} schedules, which is the limit")
        if error is not None:
            answer(False, error)
            return
        op = PutSchedule(row)

        def stored(_: Op) -> None:
            if op.error is None and self.jobs.leads:
                self.plans[row.name] = self._plan(row)
                self.broken.pop(row.name, None)
            answer(op.error is None, op.error)

        op.then = stored
        self.jobs.put(op)

    def drop(self, name: str, answer: Done) -> None:
        if not self.jobs.leads:
            answer(False, self.jobs.not_leading())
            return
        op = DropSchedule(name)

        def dropped(_: Op) -> None:
            if op.error is None:
                self.plans.pop(name, None)
                self.broken.pop(name, None)
            answer(op.done, op.error)

        op.then = dropped
        self.jobs.put(op)

    # --- time -----------------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When the next run is due, in seconds since the epoch; 0: never."""
        if not self.jobs.leads or self.jobs.suspended:
            return 0.0
        first = 0.0
        for plan in self.plans.values():
            if plan.row.next and not plan.firing:
                due = max(plan.row.next, plan.retry_at)
                if not first or due < first:
                    first = due
        return first

    def run_due(self) -> None:
        if not self.jobs.leads or self.jobs.suspended:
            return
        now = self.jobs.runner.now()
        for plan in list(self.plans.values()):
            if plan.row.next and plan.row.next <= now and not plan.firing and plan.retry_at <= now:
                if self.jobs.store.refusal() is not None:
                    plan.retry_at = now + JOB_REFUSED_WAIT
                else:
                    self._fire(plan, now)

    def _fire(self, plan: PlannedSchedule, now: float) -> None:
        """One run for all that are due: missed runs are replaced by one run, or skipped."""
        row = plan.row
        fired, following = missed_runs(plan.timing, row.next, now, row.created, plan.zone)
        run = self._job(row, now, fired)
        if plan.starts_flow:
            self._fire_flow(plan, now, fired, following)
            return
        plan.problem = self.clockwork.refusal_of(run)
        skipped = bool(plan.problem) or (row.missed == SKIP and now - fired > LATE)
        self._store(plan, Fire(row, fired, following, None if skipped else run))

    def _fire_flow(self, plan: PlannedSchedule, now: float, fired: float, following: float) -> None:
        """The same for a schedule that starts a flow. Its key is the name of the schedule and the planned time."""
        row = plan.row
        plan.firing = True

        def read(growth: Growth | None, problem: str, error: StoreError | None) -> None:
            plan.firing = False
            if error is not None or not self.jobs.leads or self.plans.get(row.name) is not plan:
                plan.retry_at = now + JOB_REFUSED_WAIT
                return
            plan.problem = problem
            op = Fire(row, fired, following, None)
            if growth is not None and not problem and not (row.missed == SKIP and now - fired > LATE):
                op.growth = growth
                op.flow = self._flow(growth, now, f"{row.name} {iso_time(fired)}")
            self._store(plan, op)

        self.read(row, read)

    def _flow(self, growth: Growth, now: float, key: str) -> FlowRow:
        made = growth.row(self.clockwork.new_id(), now)
        made.key = key
        made.kept, made.kept_failed = self.jobs.policy.keep, self.jobs.policy.keep_dead
        return made

    def _store(self, plan: PlannedSchedule, op: Fire) -> None:
        row, job, flow = plan.row, op.job, op.flow
        plan.firing = True
        op.wanted = lambda: self.plans.get(row.name) is plan

        def stored(_: Op) -> None:
            plan.firing = False
            if op.error is not None or not self.jobs.leads or self.plans.get(row.name) is not plan:
                return
            row.next = op.following
            if op.done:
                event = firing(
                    row.name, op.fired, job, plan.problem, plan.principal, flow.id if flow is not None else ""
                )
                self.jobs.listener.job_event(event)
                if job is None and flow is None:
                    self.jobs.counters.skipped += 1
                    return
                self.jobs.counters.fired += 1
                if job is not None:
                    self.jobs.adopt_fired(job)
            if flow is not None and op.done:
                self.clockwork.flow_started(flow)

        op.then = stored
        self.jobs.put(op)

    def read(self, row: ScheduleRow, answer: Read) -> None:
        """Reads the flow of a schedule. Answers with it, and why its principal may not start it."""
        op = ReadGrowth(flat(row.body))

        def read(_: Op) -> None:
            growth, problem = op.growth, op.problem
            if growth is not None:
                pattern = self._job(row, 0.0, 0.0)
                growth.principal, growth.trace = pattern.principal, pattern.trace
                problem = self.clockwork.denial_of_services(pattern.principal, growth.services)
            answer(growth, problem, op.error)

        op.then = read
        self.jobs.put(op)

    def _job(self, row: ScheduleRow, now: float, fired: float) -> Job:
        job = Job(self.clockwork.new_id(), row.service, row.body, now)
        job.origin = SCHEDULED
        job.schedule = row.name
        job.fired = fired
        job.priority = row.priority
        job.configure(row.settings)
        return job

    def run_now(self, name: str) -> Job | None:
        """A job of the schedule, outside its planned times; None if there is no such schedule."""
        plan = self.plans.get(name)
        if plan is None:
            return None
        now = self.jobs.runner.now()
        job = self._job(plan.row, now, 0.0)
        return job

    def start_now(
        self, name: str, principal: str, answer: "Callable[[FlowRow | None, str, StoreError | None], None]"
    ) -> bool:
        """Starts the flow of a schedule, outside its planned times. Answers with it, or with why that is impossible. Returns False if no
        schedule of this name starts a flow."""
        plan = self.plans.get(name)
        if plan is None or not plan.starts_flow:
            return False

        def read(growth: Growth | None, problem: str, error: StoreError | None) -> None:
            if growth is None or problem or error is not None:
                answer(None, problem, error)
                return
            growth.principal = growth.principal or principal
            op = StartFlow(self._flow(growth, self.jobs.runner.now(), ""), growth)

            def started(_: Op) -> None:
                if op.error is None and self.jobs.leads:
                    self.clockwork.flow_started(op.row)
                answer(op.row if op.error is None else None, "", op.error)

            op.then = started
            self.jobs.put(op)

        self.read(plan.row, read)
        return True

    def rows(self) -> "list[Row]":
        """All schedules with their next runs."""
        found: list[Row] = [_described(plan) for _, plan in sorted(self.plans.items())]
        for name, problem in sorted(self.broken.items()):
            found.append({"name": name, "problem": problem})
        return found

    def one(self, name: str) -> "Row | None":
        """One schedule, with its next runs; None if there is no such schedule."""
        plan = self.plans.get(name)
        if plan is None:
            return {"name": name, "problem": self.broken[name]} if name in self.broken else None
        row = plan.row
        runs: list[Row] = []
        due = row.next
        while due and len(runs) < SCHEDULE_RUNS:
            runs.append({"time": iso_time(due), "local": datetime.fromtimestamp(due, plan.zone).isoformat()})
            due = plan.timing.after(due, row.created, plan.zone)
        return {**_described(plan), "runs": runs}


def _described(plan: PlannedSchedule) -> Row:
    row = plan.row
    return {
        "name": row.name,
        "service": "" if plan.starts_flow else row.service.decode(errors="backslashreplace"),
        "flow": plan.starts_flow,
        "when": row.timing,
        "zone": row.zone,
        "missed": row.missed,
        "next": iso_time(row.next) if row.next else None,
        "next_local": datetime.fromtimestamp(row.next, plan.zone).isoformat() if row.next else None,
        "body_bytes": len(row.body),
        "principal": plan.principal,
        "problem": plan.problem,
    }
