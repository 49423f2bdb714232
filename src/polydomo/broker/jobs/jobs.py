"""The state machine of durable jobs.

A job is stored before it is acknowledged, and its outcome is stored before it is reported. In between, the broker runs it like any other
request. A failed attempt is retried after a delay, and a job that has used all its attempts is dead.

    inserting -> delayed -> queued -> running -> recording -> done, dead or cancelled
                    ^---- a failed attempt ---'

``Jobs`` performs no I/O: it passes operations to a ``Store`` and attempts to a ``Runner``, and both call it back. It works only while this
broker is the leader. Times are seconds since the epoch.
"""

from collections.abc import Callable

from polydomo.broker.flows.flow import Settled
from polydomo.broker.flows.growth import Growth
from polydomo.broker.flows.ops import Gather, Grow, ReadGrowth
from polydomo.broker.jobs import events
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.failed_ops import FailedOps
from polydomo.broker.jobs.failures import NEVER, NOT_SAID, stored_text
from polydomo.broker.jobs.job import DELAYED, QUEUED, RECORDING, RUNNING, Job, Row
from polydomo.broker.jobs.ops import (
    ALWAYS,
    FULL,
    IN_DOUBT,
    NOT_LEADER,
    UNAVAILABLE,
    Collected,
    Finish,
    Get,
    Insert,
    Loaded,
    Op,
    Progress,
    Purge,
    PutLimits,
    PutPause,
    Remove,
    Reopen,
    Replace,
    Select,
    Store,
    StoreError,
)
from polydomo.broker.jobs.parts import JobParts
from polydomo.broker.jobs.policy import JobCounters, JobLanes, JobListener, JobPolicy, Runner
from polydomo.broker.jobs.unclaimed import Unclaimed
from polydomo.broker.jobs.waiting_jobs import ServiceQueue, WaitingJobs
from polydomo.limits import COST_JOB, DEAD_SHOWN, ERROR_EXAMPLE, FLOW_INPUT_KEPT, JOB_PURGE, JOB_REFUSED_WAIT
from polydomo.model.flows.growth import growth_of, is_growth
from polydomo.model.json_form import microseconds
from polydomo.model.outcomes import CANCELLED, DENIED, FAILED, NO_WORKER, OK, REFUSED, SHUTDOWN, TOO_LARGE
from polydomo.model.retry_policy import Backoff
from polydomo.model.service_limits import ServiceLimits

EXPIRED = "expired"  # the outcome of a job whose time to live expired

Answer = Callable[[Job | None, StoreError | None], None]
Changed = Callable[[bool, StoreError | None], None]


class Jobs:
    def __init__(self, store: Store, runner: Runner, policy: JobPolicy, listener: JobListener | None = None) -> None:
        self.store = store
        self.runner = runner
        self.policy = policy
        self.listener = listener if listener is not None else JobListener()
        self.counters = JobCounters()
        self.lanes = JobLanes()
        self.leads = False
        self.suspended = False  # is the leader, but must not start jobs
        self.draining = False  # the broker is shutting down and starts no more jobs
        self.epoch = 0
        self.leader = ""  # the address of the broker that leads instead of this one, if known
        self.open: dict[str, Job] = {}
        self.keys: dict[str, Job] = {}  # open jobs by idempotency key, with its owner and its service
        self.bytes = 0  # size of the bodies of open jobs, and of results until they are stored
        self.waiting_jobs = WaitingJobs()
        self.paused: set[bytes] = set()
        self.inserting: dict[str, Insert] = {}
        self.waiting: dict[str, list[Answer]] = {}  # job -> callbacks that wait for its outcome
        self.dead: dict[str, Job] = {}  # dead jobs without bodies, the last ones, until they are retried or dropped
        self.parts = JobParts(self.put)
        self._failed_ops = FailedOps()
        self._on_failed_op: Callable[[Op], bool] = self._put_again
        self._condemned: set[str] = set()  # damaged jobs whose ``Replace`` is under way
        self._settings: dict[str, Op] = {}  # the last write of each pause and of each limit, while it is under way
        self._unclaimed = Unclaimed()
        self._purge_at = 0.0
        self.nodes: dict[str, dict[str, Job]] = {}  # flow -> its open jobs
        self.waiting_nodes = 0  # nodes of flows that will become jobs, or be skipped
        self.on_settled: Callable[[Settled | None, bool], None] | None = (
            None  # (``flows``) what an outcome changed in flows
        )
        self.on_growth: Callable[[Job, Growth], tuple[str, str]] | None = (
            None  # why a node may not grow: a code and a reason
        )

    # --- leadership -----------------------------------------------------------------------------------------------------------

    def lead(self, epoch: int, loaded: Loaded) -> None:
        """Called when this broker becomes the leader."""
        self._forget()
        self.leads = True
        self.leader = ""
        self.suspended = False
        self.epoch = epoch
        self.paused = set(loaded.paused)
        now = self.runner.now()
        self._purge_at = now + JOB_PURGE
        for ended in self._sound(loaded.uncollected, False):
            self._unclaimed.add(ended.digest, ended.id, ended.ended)
        for job in self._sound(loaded.jobs, True):
            if job.digest:
                self._unclaimed.add(job.digest, job.id, 0.0)
            self.adopt(job, now)
        self.listener.job_event(JobEvent(events.LEADS, f"epoch {epoch}: {len(loaded.jobs)} open jobs"))
        self.pump_all()
        self._remember_dead()

    def follow(self, leader: str, why: str) -> None:
        """Called when another broker becomes the leader: drops all state, and fails the waiting callbacks."""
        led, self.leads = self.leads, False
        self.leader = leader
        for job in list(self.open.values()):
            if job.phase == RUNNING:
                self.runner.stop(job)
        waiting = [answer for answers in self.waiting.values() for answer in answers]
        self._forget()
        for answer in waiting:
            answer(None, self.not_leading())
        if led:
            self.listener.job_event(JobEvent(events.FOLLOWS, f"epoch {self.epoch}: {why}"))

    def suspend(self, suspended: bool) -> None:
        """Called when the lease may have expired: running jobs may finish, and no new ones start."""
        self.suspended = suspended
        if not suspended:
            self.pump_all()

    def _forget(self) -> None:
        self.open.clear()
        self.keys.clear()
        self.nodes.clear()
        self.waiting_nodes = 0
        self.bytes = sum(len(op.job.body) for op in self.inserting.values())
        self.waiting_jobs = WaitingJobs()
        self.waiting.clear()
        self.dead.clear()
        self._unclaimed.clear()
        self.parts.clear()
        self._failed_ops.clear()
        self._condemned.clear()
        self._settings.clear()

    def not_leading(self) -> StoreError:
        if self.leader:
            return StoreError(
                NOT_LEADER,
                f"another broker is the leader, at {self.leader}; if it is down, try again: another broker takes over within seconds",
            )
        trouble = self.store.refusal()
        why = (
            f"the job store is not available: {trouble.text}"
            if trouble is not None
            else "the job store has no leader at the moment"
        )
        return StoreError(NOT_LEADER, f"{why}; try again later")

    def put(self, op: Op) -> None:
        """Passes an operation to the store, under the current epoch."""
        op.epoch = self.epoch
        op.put_again = self._on_failed_op
        self.store.put(op)

    def _put_again(self, op: Op) -> bool:
        """An operation has failed alone. Returns whether it will be put again. Otherwise its caller gets the error."""
        if (
            not self.leads
            or op.epoch != self.epoch
            or not (op.repeat == ALWAYS or (op.repeat == IN_DOUBT and op.in_doubt))
        ):
            return False
        self._failed_ops.add(op, self.runner.now())
        return True

    # --- submission -----------------------------------------------------------------------------------------------------------

    def refusal(self, size: int, more: int = 1) -> StoreError | None:
        """Why new jobs cannot be accepted now, one or ``more``; None if they can."""
        if not self.leads or self.suspended:
            return self.not_leading()
        known = len(self.open) + self.waiting_nodes
        if known + len(self.inserting) + more > self.policy.max_jobs:
            return StoreError(FULL, f"{known} jobs are open; the limit is {self.policy.max_jobs} (`durable.max_jobs`)")
        if self.bytes + size > self.policy.max_bytes:
            return StoreError(
                FULL,
                f"open jobs hold {self.bytes:,} bytes; the limit is {self.policy.max_bytes:,} (`durable.max_bytes`)",
            )
        if self.policy.max_memory and self.memory() + size > self.policy.max_memory:
            return StoreError(
                FULL,
                f"open jobs take {self.memory():,} bytes of memory; the limit is {self.policy.max_memory:,}, half of `limits.max_memory`",
            )
        return self.store.refusal()

    def memory(self) -> int:
        """Bytes that open jobs take, and those that are being stored."""
        return self.bytes + COST_JOB * (len(self.open) + len(self.inserting))

    def submit(self, job: Job, answer: Answer) -> None:
        """Stores a new job, then answers with it. If its key or id already exists, answers with the existing job."""
        known = self.open.get(job.id) or (self.keys.get(job.scoped_key()) if job.key else None)
        if known is not None:
            self.counters.repeated += 1
            answer(known, None)
            return
        pending = self.inserting.get(job.id)
        if pending is not None:  # submitted again before the store has answered
            self.counters.repeated += 1
            first = pending.then

            def both(op: Op) -> None:
                if first is not None:
                    first(op)
                found = self.open.get(job.id) or pending.existing
                answer(found, pending.error if found is None else None)

            pending.then = both
            return
        error = self.refusal(len(job.body))
        if error is not None:
            self.counters.refused += 1
            answer(None, error)
            return
        op = Insert(job)
        self.inserting[job.id] = op
        self.bytes += len(job.body)

        def stored(_: Op) -> None:
            self._stored(op, answer)

        op.then = stored
        self.put(op)

    def _stored(self, op: Insert, answer: Answer) -> None:
        job = op.job
        self.inserting.pop(job.id, None)
        self.bytes -= len(job.body)
        if op.error is not None or not self.leads:
            self.counters.refused += 1
            answer(None, op.error if op.error is not None else self.not_leading())
            return
        found = op.existing
        if found is not None and found.damage:
            self._condemn(found)
        if found is not None and (found.id != job.id or found.state != states.OPEN or found.id in self.open):
            self.counters.repeated += 1
            answer(self.open.get(found.id, found), None)
            return
        self.counters.accepted += 1
        self.adopt(job, self.runner.now())
        self._tell_accepted(job)
        answer(job, None)
        self.pump(job.service)

    def adopt(self, job: Job, now: float) -> None:
        """Adds a stored job to the open jobs."""
        self.open[job.id] = job
        if job.key:
            self.keys[job.scoped_key()] = job
        if job.flow:
            self.nodes.setdefault(job.flow, {})[job.id] = job
        self.bytes += len(job.body) + input_size(job)
        self.waiting_jobs.accept(job)
        self._wait(job, now)

    def adopt_fired(self, job: Job) -> None:
        """Adds a job that was stored together with a run of its schedule."""
        if job.id not in self.open:
            self.counters.accepted += 1
            self.adopt(job, self.runner.now())
            self._tell_accepted(job)
            self.pump(job.service)

    def adopt_released(self, released: list[Job]) -> int:
        """Adds the jobs of nodes that were released. Those that are known already are left out. Returns how many are new."""
        services: dict[bytes, None] = {}
        fresh: list[Job] = []
        now = self.runner.now()
        for job in released:
            if job.id in self.open:
                continue
            if job.damage:
                self._condemn(job, True)
                continue
            fresh.append(job)
            self.counters.accepted += 1
            self.adopt(job, now)
            services[job.service] = None
            if job.story:
                self.counters.reopened += 1
                self.listener.job_event(events.reopened(job))
            else:
                self._tell_accepted(job)
        for service in services:
            self.pump(service)
        for job in fresh:  # one that waits does not hold a large input in memory
            if job.phase != RUNNING and input_size(job) > FLOW_INPUT_KEPT:
                self._drop_input(job)
        return len(fresh)

    def _drop_input(self, job: Job) -> None:
        self.bytes -= input_size(job)
        job.input = None

    def _tell_accepted(self, job: Job) -> None:
        event = events.released(job, events.ACCEPTED)
        event.allowed = job.allowed
        event.size = len(job.body)
        self.listener.job_event(event)

    def _wait(self, job: Job, now: float) -> None:
        if job.due > now:
            self.waiting_jobs.delay(job)
        else:
            self.waiting_jobs.queue(job)

    # --- running --------------------------------------------------------------------------------------------------------------

    def service_changed(self, service: bytes) -> None:
        """Called when a worker registered, or a pause ended."""
        if service in self.waiting_jobs.by_service:
            self.pump(service)

    def pump_all(self) -> None:
        for service in list(self.waiting_jobs.by_service):
            self.pump(service)

    def pump(self, service: bytes) -> None:
        """Passes queued jobs to the broker, as many as its workers can use."""
        queue = self.waiting_jobs.by_service.get(service)
        if queue is None:
            return
        if not self.leads or self.suspended or self.draining or service in self.paused or not self.store.holds_lease():
            return
        room = self._room(service, queue)
        while room > 0:
            job = self.waiting_jobs.pop(queue)
            if job is None:
                break
            lane = self.lanes.lane(job)
            if lane is not None and not self.waiting_jobs.releases(queue, job, lane[0], lane[1]):
                continue
            room -= 1
            self._start(queue, job)
            if not room and lane is not None:
                room = self._room(service, queue)  # some of them wait for their limit
        self.waiting_jobs.forget(service)

    def _room(self, service: bytes, queue: ServiceQueue) -> int:
        """How many more jobs the workers of a service can use."""
        if not queue.length:
            return 0
        return self.runner.capacity(service) + self.lanes.parked(service) - queue.released

    def limits_changed(self, service: bytes) -> None:
        self.waiting_jobs.rejoin(service)
        self.service_changed(service)

    def _start(self, queue: ServiceQueue, job: Job) -> None:
        queue.released += 1
        self.counters.started += 1
        job.phase = RUNNING
        job.started = self.runner.now()
        job.worker = ""
        job.progress = None
        job.reused = False
        self.parts.begin(job)
        if job.template and job.input is None:
            self._gather(job)
        else:
            self.runner.start(job)

    def _gather(self, job: Job) -> None:
        """Reads the results that a node gets, then starts it."""
        started = job.started
        op = Gather(job, self.policy.max_message)

        def gathered(_: Op) -> None:
            if job.phase != RUNNING or self.open.get(job.id) is not job or job.started != started:
                return
            if op.error is not None:
                self.attempt_ended(job, REFUSED, op.error.text, b"", False)
            elif op.input is None:
                self.waiting_jobs.returned(job)
                self.record(job, states.DEAD, TOO_LARGE if op.too_large else states.DAMAGED, op.problem)
                self.pump(job.service)
            else:
                job.input = op.input
                self.bytes += len(op.input)
                self.runner.start(job)

        op.then = gathered
        self.put(op)

    def attempt_ended(
        self, job: Job, code: str, reason: str, body: bytes, taken: bool, after: float = NOT_SAID
    ) -> None:
        """Called with the outcome of an attempt that ``Runner.start`` began. ``taken``: it was dispatched to a worker. ``after``: the
        worker asked for a retry after this many seconds, or said NEVER."""
        if job.phase != RUNNING or self.open.get(job.id) is not job:
            return
        if code == OK and is_growth(body):
            text = growth_of(body, job.id)
            if text is not None:
                self._read_growth(job, text)
                return
            if job.flow:  # a reply that was shared with an equal request
                code, reason, body = FAILED, "the worker answered another job with a flow", b""
        self._ended(job, code, reason, body, taken, after)

    def _read_growth(self, job: Job, text: bytes) -> None:
        """A worker answered with a flow: reads it, and stores it together with the outcome."""
        started = job.started
        self._drop_input(job)
        job.input = text
        self.bytes += len(text)
        op = ReadGrowth(text)

        def read(_: Op) -> None:
            if job.phase != RUNNING or self.open.get(job.id) is not job or job.started != started:
                return
            if op.error is not None:
                self._ended(job, REFUSED, op.error.text, b"", False, NOT_SAID)
                return
            code, reason = FAILED, f"the worker answered with a flow that is not valid: {op.problem}"
            after = NEVER
            if op.growth is not None and self.on_growth is not None:
                code, reason = self.on_growth(job, op.growth)
                after = NEVER if code == FAILED else NOT_SAID
            if code or op.growth is None:
                self._ended(job, code, reason, b"", True, after)
                return
            self.waiting_jobs.returned(job)
            job.attempts += 1
            self.record(job, states.DONE, OK, "", op.growth)
            self.pump(job.service)

        op.then = read
        self.put(op)

    def _ended(self, job: Job, code: str, reason: str, body: bytes, taken: bool, after: float) -> None:
        self.waiting_jobs.returned(job)
        self._drop_input(job)
        now = self.runner.now()
        if taken and code != SHUTDOWN:
            job.attempts += 1
        if code == OK:
            job.result = body
            self.bytes += len(body)
            self.record(job, states.DONE, OK, "")
        elif code == SHUTDOWN or (code == NO_WORKER and not taken):
            # It never ran, or a broker that stops interrupted it: it waits for the next worker.
            self.waiting_jobs.queue(job)
            if code == NO_WORKER:
                return
        elif code == REFUSED and not taken:
            job.due = now + JOB_REFUSED_WAIT
            self.waiting_jobs.delay(job)
        else:
            self._attempt_failed(job, code, reason, after, now)
        self.pump(job.service)

    def _attempt_failed(self, job: Job, code: str, reason: str, after: float, now: float) -> None:
        attempt = job.failed_attempt(now, code, reason)
        job.tell(attempt)
        backoff = self.backoff_of(job)
        final = (
            code == FAILED
            and after < 0
            and job.origin == states.REQUEST
            and self.policy.backoffs.get(job.service) is None
        )
        if final or after == NEVER or code in (TOO_LARGE, DENIED) or job.attempts >= backoff.attempts:
            self.record(job, states.DEAD, code, reason)
            return
        wait = after if after >= 0 else backoff.wait(max(1, job.attempts), self.runner.chance())
        if job.expires and now + wait >= job.expires:
            self.record(
                job, states.DEAD, EXPIRED, f"the time to live expires before the next attempt; the last one: {reason}"
            )
            return
        self.counters.retried += 1
        self.counters.backoff += wait
        job.due = now + wait
        job.waited += wait
        attempt["waited_us"] = microseconds(job.waited)
        self.waiting_jobs.delay(job)
        self.put(Progress(job))
        event = events.about(job, events.RETRY, code, reason)
        event.wait = wait
        self.listener.job_event(event)

    def backoff_of(self, job: Job) -> Backoff:
        if job.backoff is not None:
            return job.backoff
        own = self.policy.backoffs.get(job.service)
        return own if own is not None else self.policy.backoff

    # --- end ------------------------------------------------------------------------------------------------------------------

    def record(self, job: Job, state: str, outcome: str, reason: str, growth: Growth | None = None) -> None:
        """Stores the outcome, and with it the flow that replaces a node. It is not reported before it is on disk."""
        now = self.runner.now()
        self.waiting_jobs.leave(job)
        job.phase = RECORDING
        job.state = state
        job.outcome = outcome
        job.reason = stored_text(reason)
        job.ended = now
        keep = self.policy.keep_dead if state == states.DEAD else self.policy.keep
        job.keep = now + keep if keep and not job.flow else 0.0  # a node is kept as long as its flow
        if state == states.DONE:
            self.parts.succeeded(job)
        self.parts.flush(now)  # before the outcome
        op = Finish(job) if growth is None else Grow(job, growth)
        if state == states.DEAD:
            op.repeat = ALWAYS

        def recorded(_: Op) -> None:
            if op.error is not None and op.error.code == UNAVAILABLE and self.leads and state != states.DEAD:
                # It failed alone, and was not written: while a store is away, outcomes are retained.
                self.bytes -= len(job.result)
                job.result = b""
                self.record(job, states.DEAD, FAILED, f"its outcome could not be stored: {op.error.text}")
            elif op.error is None and not op.done and self.open.get(job.id) is job:
                if growth is not None:
                    job.state, job.outcome = states.DEAD, states.DAMAGED
                    job.reason = "the stored job is damaged; the flow that its worker answered with was not stored"
                self._replace(job)
            else:
                self._recorded(op, job)

        op.then = recorded
        self.put(op)

    def _replace(self, job: Job) -> None:
        """Stores the outcome of an open job whose record is no longer that of an open job. Only the leader writes, so the record is
        damaged; the job in memory is not."""
        self.counters.damaged += 1
        op = Replace(job)

        def replaced(_: Op) -> None:
            self._recorded(op, job)

        op.then = replaced
        self.put(op)

    def _recorded(self, op: Op, job: Job) -> None:
        if op.error is not None or self.open.get(job.id) is not job:
            return  # no longer the leader: the new leader runs it again
        del self.open[job.id]
        self.parts.forget(job.id)
        if job.flow:
            self._leave_flow(job)
        job.phase = job.state
        if job.key:
            self.keys.pop(job.scoped_key(), None)
        self.bytes -= len(job.body) + len(job.result)
        self._drop_input(job)
        self.waiting_jobs.forget(job.service)
        answers = self.waiting.pop(job.id, [])
        if job.state == states.DONE:
            self.counters.done += 1
        elif job.state == states.DEAD:
            self._died(job)
        else:
            self.counters.cancelled += 1
        event = events.outcome(job)
        event.added = len(op.growth.specs) if isinstance(op, Grow) else 0
        self.listener.job_event(event)
        if job.digest:
            if answers:
                self.put(Collected(job.id))
            else:
                self._unclaimed.add(job.digest, job.id, job.ended)
        for answer in answers:
            answer(job, None)
        if job.flow and self.on_settled is not None:
            if isinstance(op, Finish):
                self.on_settled(op.settled, False)
            elif isinstance(op, Replace):
                self.on_settled(op.settled, op.in_doubt)

    def _leave_flow(self, job: Job) -> None:
        others = self.nodes.get(job.flow)
        if others is not None:
            others.pop(job.id, None)
            if not others:
                del self.nodes[job.flow]

    def _died(self, job: Job) -> None:
        self.counters.dead += 1
        if job.flow:
            return  # ``Flows.failed`` has its flow, which is retried as a whole
        self._note_dead(job)
        if len(self.dead) > DEAD_SHOWN:
            del self.dead[next(iter(self.dead))]

    def _note_dead(self, job: Job) -> None:
        note = self.dead[job.id] = Job(job.id, job.service, b"", job.created)
        note.ended, note.outcome, note.reason = job.ended, job.outcome, job.reason[:ERROR_EXAMPLE]

    def _remember_dead(self) -> None:
        """Notes the jobs that died under earlier leaders: they wait for an operator as those of this one do."""
        op = Select(states.DEAD, b"", DEAD_SHOWN)
        op.repeat = ALWAYS
        epoch = self.epoch

        def selected(_: Op) -> None:
            if op.error is not None or not self.leads or self.epoch != epoch:
                return
            newer, self.dead = self.dead, {}
            for job in sorted(op.jobs, key=lambda job: (job.ended, job.id)):
                if job.id not in self.open and not job.flow:
                    self._note_dead(job)
            self.dead.update(newer)
            while len(self.dead) > DEAD_SHOWN:
                del self.dead[next(iter(self.dead))]

        op.then = selected
        self.put(op)

    # --- orders of clients and operators --------------------------------------------------------------------------------------

    def cancel(self, id: str, why: str, answer: Answer) -> None:
        """Cancels an open job and answers with it, or with None if it is not open. The reply of a worker that runs it is ignored."""
        job = self.open.get(id)
        if job is None or job.phase == RECORDING:
            self.find(id, answer)
            return
        if job.phase == RUNNING:
            self.runner.stop(job)
            self.waiting_jobs.returned(job)
            self._drop_input(job)
        self.wait(id, answer)
        self.record(job, states.CANCELLED, CANCELLED, why)
        self.pump(job.service)

    def reopen(self, id: str, answer: Answer, principal: str = "") -> None:
        """Retries a dead job for an operator. Answers with None if there is no such dead job."""
        if not self.leads:
            answer(None, self.not_leading())
            return
        op = Reopen(id, self.runner.now(), principal)

        def reopened(_: Op) -> None:
            job = op.job
            if job is not None and op.error is None:
                self.dead.pop(id, None)
            if job is not None and op.error is None and self.leads and job.id not in self.open:
                self.adopt(job, self.runner.now())
                self.counters.reopened += 1
                self.listener.job_event(events.reopened(job))
                self.pump(job.service)
            answer(job, op.error)

        op.then = reopened
        self.put(op)

    def remove(self, id: str, answer: Changed, state: str = "") -> None:
        """Removes a finished job and its result; with ``state``, only if it ended in that state."""
        if not self.leads:
            answer(False, self.not_leading())
            return
        op = Remove(id, state)

        def removed(_: Op) -> None:
            if op.done:
                self.dead.pop(id, None)
            answer(op.done, op.error)

        op.then = removed
        self.put(op)

    def pause(self, service: bytes, paused: bool) -> None:
        """Jobs of a paused service wait without limit."""
        if paused:
            self.paused.add(service)
        else:
            self.paused.discard(service)
        if self.leads:
            self._put_setting(f"pause {service!r}", PutPause(service, paused))
        if not paused:
            self.service_changed(service)

    def put_limits(self, pattern: str, limits: ServiceLimits | None) -> None:
        """Stores the limits that an operator has set."""
        if self.leads:
            self._put_setting(f"limits {pattern}", PutLimits(pattern, limits))

    def _put_setting(self, name: str, op: Op) -> None:
        """Of several values of one setting, only the last one is put again."""
        self._settings[name] = op
        op.wanted = lambda: self._settings.get(name) is op

        def stored(_: Op) -> None:
            if self._settings.get(name) is op:
                del self._settings[name]

        op.then = stored
        self.put(op)

    # --- stored data that has changed on disk ---------------------------------------------------------------------------------

    def _condemn(self, job: Job, was_open: bool = False) -> None:
        """Stores that the data of a job is damaged: from now on the job is dead. For a loaded open job, this is its outcome; that of any
        other job was recorded before. A job that is open in memory is not damaged: its outcome replaces the record."""
        if job.id in self.open or job.id in self._condemned:
            return
        self._condemned.add(job.id)
        job.ended = self.runner.now()
        job.keep = job.ended + self.policy.keep_dead if self.policy.keep_dead and not job.flow else 0.0
        self.counters.damaged += 1
        op = Replace(job)

        def recorded(_: Op) -> None:
            if op.epoch == self.epoch:
                self._condemned.discard(job.id)
            if was_open and op.error is None:
                self._died(job)
                self.listener.job_event(events.outcome(job))
            if op.error is None and self.on_settled is not None and self.leads:
                self.on_settled(op.settled, op.in_doubt)

        op.then = recorded
        self.put(op)

    def _sound(self, loaded: list[Job], were_open: bool) -> list[Job]:
        """The loaded jobs that are not damaged. The others are condemned."""
        for job in loaded:
            if job.damage:
                self._condemn(job, were_open)
        return [job for job in loaded if not job.damage]

    # --- queries --------------------------------------------------------------------------------------------------------------

    def find(self, id: str, answer: Answer) -> None:
        """The current job, from memory or from the store; None if it does not exist."""
        job = self.open.get(id)
        if job is not None:
            answer(job, None)
            return
        if not self.leads:
            answer(None, self.not_leading())
            return
        op = Get(id)

        def found(_: Op) -> None:
            if op.job is not None and op.job.damage:
                self._condemn(op.job)
            answer(self.open.get(id, op.job), op.error)

        op.then = found
        self.put(op)

    def wait(self, id: str, answer: Answer) -> bool:
        """Calls back when the open job ``id`` has its outcome. Returns False if it is not open; see ``find``."""
        if id not in self.open:
            return False
        self.waiting.setdefault(id, []).append(answer)
        return True

    def stop_waiting(self, id: str, answer: Answer) -> None:
        """The waiting client has disconnected. The job continues, and a repeated ordinary request finds it again."""
        answers = self.waiting.get(id)
        if answers is None or answer not in answers:
            return
        answers.remove(answer)
        if not answers:
            del self.waiting[id]
            job = self.open.get(id)
            if job is not None and job.digest:
                self._unclaimed.add(job.digest, id, 0.0)

    def abandon(self, id: str) -> None:
        """The client of an ordinary request disconnected before its job was stored."""
        job = self.open.get(id)
        if job is not None and job.digest and id not in self.waiting:
            self._unclaimed.add(job.digest, id, 0.0)

    # --- repeated ordinary requests ---------------------------------------------------------------------------------------------

    def claim(self, digest: bytes) -> str:
        """The job of an equal request whose client disconnected before it got the result; "" if there is none. Each can be claimed once."""
        found = self._unclaimed.claim(digest, self.runner.now() - self.policy.repeat)
        if found:
            self.counters.repeated += 1
        return found

    def collected(self, id: str) -> None:
        """Called when the stored result of an ordinary request was sent to the client that repeated it."""
        self.put(Collected(id))

    # --- time -----------------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """When to call ``run_due`` next, in seconds since the epoch; 0: no timer is needed."""
        if not self.leads:
            return 0.0
        first = self.waiting_jobs.next()
        for due in (self.parts.next_deadline(), self._failed_ops.next_deadline()):
            if due and (not first or due < first):
                first = due
        return min(first, self._purge_at) if first else self._purge_at

    def run_due(self) -> None:
        if not self.leads:
            return
        now = self.runner.now()
        self.parts.run_due(now)
        for op in self._failed_ops.due(now):
            self.put(op)
        services: dict[bytes, None] = {}
        for job in self.waiting_jobs.due(now):
            self.waiting_jobs.queue(job)
            services[job.service] = None
        for job in self.waiting_jobs.expired(now):
            self.record(job, states.DEAD, EXPIRED, "the time to live expired")
        for service in services:
            self.pump(service)
        if now >= self._purge_at:
            self._purge_at = now + JOB_PURGE
            self._unclaimed.expire(now - self.policy.repeat)
            op = Purge(now)
            op.then = lambda _: self._purged(op)
            self.put(op)

    def _purged(self, op: Purge) -> None:
        if op.count:  # there may be more
            self._purge_at = min(self._purge_at, self.runner.now() + 1.0)

    # --- counts ---------------------------------------------------------------------------------------------------------------

    def phases(self) -> Row:
        """The number of open jobs in each phase."""
        counts: Row = {DELAYED: 0, QUEUED: 0, RUNNING: 0, RECORDING: 0}
        for job in self.open.values():
            count = counts[job.phase]
            assert isinstance(count, int)
            counts[job.phase] = count + 1
        return counts

    def check(self) -> None:
        """For tests: cross-checks the redundant state. Raises AssertionError if something is inconsistent."""
        inserting = sum(len(op.job.body) for op in self.inserting.values())
        assert self.bytes == inserting + sum(
            len(job.body) + len(job.result) + input_size(job) for job in self.open.values()
        )
        queued: dict[bytes, int] = {}
        released: dict[bytes, int] = {}
        for id, job in self.open.items():
            assert job.id == id and (job.state == states.OPEN) == (job.phase != RECORDING), (job.state, job.phase)
            assert not job.key or self.keys[job.scoped_key()] is job
            if job.phase == QUEUED:
                queued[job.service] = queued.get(job.service, 0) + 1
            elif job.phase == RUNNING:
                released[job.service] = released.get(job.service, 0) + 1
        for service, queue in self.waiting_jobs.by_service.items():
            assert queue.length == queued.pop(service, 0) and queue.released == released.pop(service, 0), service
        assert not queued and not released, (queued, released)
        self.parts.check(self.open)
        assert set(self.waiting) <= set(self.open)
        nodes = {id for jobs in self.nodes.values() for id in jobs}
        assert nodes == {id for id, job in self.open.items() if job.flow}, nodes
        assert self.waiting_nodes >= 0, self.waiting_nodes


def input_size(job: Job) -> int:
    return len(job.input) if job.input is not None else 0
