"""Checks one run of a broker at every step: rules that must hold all the time, and that the record does not show afterwards."""

from typing import TYPE_CHECKING

from polydomo import limits
from polydomo.broker import service_table
from polydomo.broker.requests import queues
from polydomo.model.outcomes import CANCELLED, GAVE_UP, OK
from polydomo.model.records import ASKED, HELD, LOST, NOT_ASKED, QUEUED, Request, Service, Session, Worker
from polydomo.protocols.emqp.session import EmqpRef
from polydomo.wire.link import PAUSE_SHARE_USED, Link
from polydomo.wire.sp import SpLink
from polydomo.wire.zmtp.link import ZmtpLink
from sim.dialog import Dialog
from sim.dialogs import EmqpDialog
from sim.limited import LimitRules
from sim.lives import Lives

if TYPE_CHECKING:
    from sim.brokers import BrokerNode

MANY_SUBSCRIPTIONS = (
    300  # checks of all invariants take longer with more subscriptions, and are made less often, in steps of this many
)
EVERY = 8  # steps between two checks of limits and invariants; cheap rules are checked at every step
LATE = 0.05  # seconds that a deadline may be late, besides the tolerance of the broker's timers


ONE_MESSAGE = 200  # units of work of the most expensive message of a simulated peer
SPARE_TURNS = 3  # turns that a peer may wait, besides one for each other waiting peer
AMPLE = 1 << 20  # bytes, more than all requests without clients have
MEMORY_SLACK = 6 << 20  # bytes that may arrive between two measurements


class Watcher:
    def __init__(self, node: "BrokerNode") -> None:
        self.node = node
        self.dialogs: dict[str, Dialog] = {}  # by connection
        self.tokens: set[bytes] = set()  # every token that was sent to a worker
        self.memo_ids: set[bytes] = set()
        self.released_tokens: set[bytes] = set()  # attempts that workers released
        self.cancelled: set[str] = set()  # calls that were open when their clients cancelled them
        self.lives = Lives(self.breach)
        self.steps = 0
        self.fresh = False  # the clock has just jumped, or the process was frozen: lateness is checked after this turn
        self._idle: dict[Worker, int] = {}  # the step since which it has been idle
        self._seats: dict[Worker, Session] = {}  # its connection: a worker on a new connection is last in the order
        self._served: dict[tuple[Service, Session], int] = {}  # number of the client's last dispatch from its queue
        self._near: dict[tuple[bytes, bytes], Worker] = {}  # the worker that served a key last
        self.dispatches = 0
        self._waiting: dict[Link, int] = {}  # number of turns that a link has waited
        self.came: dict[Request, int] = {}  # queued requests: number of dispatches when it was queued
        self.limits = LimitRules(self)
        self._late: dict[Request, float] = {}  # time since when it is overdue
        self._empty: dict[Service, float] = {}  # time since when it has no worker

    def breach(self, rule: str, text: str, tag: str = "") -> None:
        self.node.world.breach(rule, f"{self.node.run_name}: {text}", tag)

    # --- dispatch, when it happens -----------------------------------------------------------------------------

    def accepted(self, request: Request) -> None:
        self.lives.accepted(request)
        self.came[request] = self.dispatches

    def ended(self, request: Request) -> None:
        self.lives.ended(request)
        if request.outcome == GAVE_UP and request.token in self.released_tokens:
            tag = self.node.recorder.tags.get(request.number, "")
            self.breach("release", f"request {request.number} was given up, although it had not been started", tag)
        self.came.pop(request, None)
        dialog = self.dialogs.get(request.session.link.peer)
        if (
            isinstance(dialog, EmqpDialog)
            and request.outcome == OK
            and waits(request)
            and not request.session.link.state
        ):
            dialog.answers.append(request.session.client_id_of(request))
        # Small limits of bytes bound requests without clients, too. A durable request ends, and its job continues.
        ample = self.node.options.max_held_bytes >= AMPLE and not self.node.options.durable
        if request.outcome == CANCELLED and ample and not waits(request):
            self.breach(
                "unattended", f"request {request.number} was cancelled, although its client did not wait for it"
            )

    def forwarded(self, request: Request) -> None:
        """The request joins its client's queue at another service."""
        self.lives.forwarded(request)
        self.came[request] = self.dispatches

    def registered(self, worker: Worker) -> None:
        """The worker registered, for the first time or for another service: it is last in the order."""
        self._idle.pop(worker, None)
        for service in worker.services:
            self._empty.pop(service, None)  # it may leave in the same step

    def requeued(self, request: Request) -> None:
        self.lives.requeued(request)

    def dispatched(self, request: Request, worker: Worker) -> None:
        self.lives.held(request)
        self.dispatches += 1
        service = request.service
        tag = self.node.recorder.tags.get(request.number, "")
        in_turn = self.came.pop(request, None) is not None  # otherwise a worker or a bridge returned it
        if worker.session.runs_shared:
            return  # it waits for a run of its key, and the run is a request of its own
        self._empty.pop(service, None)  # another broker may offer and withdraw it in one step
        # a durable job goes on without its client
        if tag in self.cancelled and not request.session.is_bridge and not request.session.is_internal:
            self.breach("cancelled", f"request {request.number} was dispatched after its client had cancelled it", tag)
        if in_turn:
            if service.retries:
                first = service.retries[0].number
                self.breach("head", f"request {request.number} went before {first}, which had been requeued", tag)
            self._in_turn(request, tag)
        self.limits.in_turn(request, tag, again=not in_turn)
        if worker.session.is_bridge:
            return  # a bridge is chosen by its route
        self.limits.started(request, tag)
        preferred = self._nearest(request, worker, tag)
        if worker.runs and len(worker.held) > worker.runs:
            for other in service.workers:
                if other is not worker and _starts_now(other) and _fits(service, other, worker, request):
                    self.breach(
                        "prefetch", f"worker {worker.number} prefetches, and {other.number} could start it now", tag
                    )
        since = self._idle.pop(worker, None)
        if since is not None and not preferred:
            for other in service.workers:
                before = self._idle.get(other)
                if before is not None and before < since and _could(service, other, worker, request):
                    self.breach(
                        "lru", f"worker {worker.number} was chosen while {other.number} had been idle for longer", tag
                    )

    def _nearest(self, request: Request, worker: Worker, tag: str) -> bool:
        """ "prefers the worker that served that key last, if it is idle or has credit". Returns whether the request got that worker."""
        near, service = request.options.near, request.service
        if not near:
            return False
        key = (service.name, near)
        last = self._near.get(key)
        self._near[key] = worker
        if last is None or last is worker or not last.alive or last not in service.workers:
            return last is worker
        if _starts_now(last) and _fits(service, last, worker, request):
            self.breach("near", f"worker {worker.number} was chosen, and {last.number} served the key last", tag)
        return False

    def released(self, request: Request, worker: Worker) -> None:
        """A request is taken from a worker only after the worker has released it."""
        self.lives.requeued(request)
        dialog = self.dialogs.get(worker.session.link.peer)
        if dialog is not None and request.token in dialog.jobs:
            tag = self.node.recorder.tags.get(request.number, "")
            self.breach(
                "taken", f"request {request.number} was taken from worker {worker.number}, which may run it", tag
            )

    def _in_turn(self, request: Request, tag: str) -> None:
        """ "clients of one service are served in turn" """
        service = request.service
        key = (service, request.session)
        last = self._served.get(key)
        self._served[key] = self.dispatches
        if last is None:
            return
        for other, queue in service.client_queues.items():
            if other is request.session or not queue:
                continue
            came = self.came.get(queue[0])
            if came is not None and came < last and self._served.get((service, other), 0) < last:
                self.breach(
                    "turns",
                    f"client {request.session.number} was served twice while request {queue[0].number} "
                    f"of client {other.number} waited",
                    tag,
                )

    # --- every step ---------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.steps += 1
        node = self.node
        broker = node.broker
        node.world.steps += 1
        idle: dict[Worker, int] = {}
        seats: dict[Worker, Session] = {}
        for worker in broker.workers:
            if worker.credit > 0 and not worker.held:
                stayed = self._seats.get(worker) is worker.session
                idle[worker] = self._idle.get(worker, self.steps) if stayed else self.steps
                seats[worker] = worker.session
        self._idle = idle
        self._seats = seats
        self._empty = {
            service: self._empty.get(service, broker.now)
            for service in broker.services.values()
            if not service.workers and not service.remote
        }
        if self.steps % EVERY == 0:
            self._bounds()
            self.lives.look(broker.sessions)
            if self.steps % (EVERY * (1 + len(broker.publishing.subscriptions) // MANY_SUBSCRIPTIONS)) == 0:
                self._invariants()

    def turned(self, timers: bool, more: bool) -> None:
        """A turn of the loop has ended. ``timers``: due timers have run. ``more``: another turn follows at once."""
        for dialog in self.dialogs.values():
            dialog.settled()
        if not more:
            self._stalled()
            self.limits.unstarted()
        self._unmoved()
        self._in_turn_again()
        if timers:
            self._workers_heard()
            self._services_heard()
            self._requests_in_time()

    def _unmoved(self) -> None:
        """A request that its worker has not started moves to a worker that can start it."""
        broker = self.node.broker
        for service in broker.services.values():
            if broker.draining or service.paused or not service.backlogged or service.limits is not None:
                continue
            free = sum(
                min(worker.credit, worker.runs - len(worker.held)) if worker.runs else worker.credit
                for worker in service.workers
                if _starts_now(worker)
            )
            waiting = []
            for worker in service.workers:
                free -= sum(request.history.revoked == ASKED for request in worker.held.values())
                if worker.runs:
                    waiting += [
                        request
                        for request in list(worker.held.values())[worker.runs :]
                        if request.state == HELD and request.history.revoked == NOT_ASKED and request.service is service
                    ]
            if waiting and free > 0:
                self.breach("unmoved", f"request {waiting[0].number} waits at a worker, and another one could start it")

    def worked(self, before: int, received: int) -> None:
        """The input of this turn has been handled: it must not exceed the work budget. ``before``: the budget that was left."""
        turns = self.node.hub.turns
        assert turns is not None
        # Bytes that have been read cannot be refused.
        arrived = (self.node.hub.received - received) >> limits.WORK_BYTES
        done = before - self.node.hub.work_left - arrived
        if done > turns.work + turns.share + ONE_MESSAGE:
            self.breach("greedy", f"{done} units of work in a turn of {turns.work}")

    def _in_turn_again(self) -> None:
        """A connection that waits for a turn gets one, however many others wait."""
        waiting: dict[Link, int] = {}
        had = self.node.hub.turns.chosen if self.node.hub.turns is not None else []
        sessions = [session for session in self.node.broker.sessions if not session.disconnected]
        links = [session.link for session in sessions if session.link.pauses & PAUSE_SHARE_USED]
        for link in links:
            waiting[link] = 0 if link in had else self._waiting.get(link, 0) + 1
            if waiting[link] > len(links) + SPARE_TURNS:
                self.breach("turns", f"{link.peer} waited for {waiting[link]} turns beside {len(links) - 1} others")
        self._waiting = waiting

    def _invariants(self) -> None:
        try:
            self.node.broker.check_invariants()
        except AssertionError as error:
            self.breach("invariant", str(error))

    def _bounds(self) -> None:
        broker = self.node.broker
        self._memory_bound()
        policy = broker.policy
        clients = len(broker.sessions)
        held = sum(len(worker.held) for worker in broker.workers)
        for service in broker.services.values():
            # Each client may exceed the limit by one request before it is paused. Requeued requests are never refused. Forwarded requests
            # throttle their client only, so its open requests can still be forwarded. A bridge is limited by its window instead.
            passed_on = sum(
                request.history.forwards > 0 or request.session.windowed for request in queues.waiting(service)
            )
            retries = len(service.retries)
            if service.limits is not None:
                retries = sum(request.attempts > 0 for request in queues.waiting(service))
            most = policy.max_queue + clients + held + retries + passed_on
            if service.queue_length > most:
                self.breach(
                    "bound",
                    f"{service.queue_length} requests wait for {service.name!r}, the limit is {policy.max_queue}",
                )
        for session in broker.sessions:
            if len(session.requests) > policy.max_outstanding and not session.is_internal:
                self.breach("bound", f"client {session.number} has {len(session.requests)} open requests")
        if service_table.count(broker) > policy.max_services:
            self.breach("bound", f"{len(broker.services)} services")
        windowed = sum(
            len(request.body) for session in broker.sessions if session.windowed for request in session.requests
        )
        most = self._most_held_bytes()
        if broker.held_bytes > most + windowed + clients * self.node.world.largest * 8:
            self.breach("bound", f"{broker.held_bytes} bytes are held, the limit is {most}")

    def _memory_bound(self) -> None:
        """Memory stays near its limit. Sources that hold little are never disconnected, so what they hold is added."""
        memory = self.node.broker.memory
        if not memory.limit:
            return
        unfinished = sum(_unfinished(connection.link) for connection in self.node.connections)
        held = memory.measure() - self.node.hub.input_bytes + unfinished  # counts input independently
        if held <= memory.limit + MEMORY_SLACK:
            return
        sources: dict[str, int] = {}
        for connection in self.node.connections:
            link = connection.link
            if link is not None:
                sources[link.source] = sources.get(link.source, 0) + link.held()
        small = sum(size for size in sources.values() if size <= limits.SMALL_PEER)
        if held > memory.limit + MEMORY_SLACK + small:
            self.breach("bound", f"{held} bytes are held, allowed are {memory.limit}")

    def _most_held_bytes(self) -> int:
        """The limit of bytes of open requests, computed from the options and not taken from the broker."""
        options = self.node.options
        return min(options.max_held_bytes, options.max_memory // 2) if options.max_memory else options.max_held_bytes

    def resumed(self, paused: "list[Session]") -> None:
        """A turn has ended before which these clients were paused at a limit. They are read again only when there is room, and not at
        every turn."""
        broker = self.node.broker
        options = self.node.options
        low = limits.RESUME_FRACTION
        for session in paused:
            if session in broker.paused_clients or session.disconnected or session.worker_count:
                continue
            most = self._most_held_bytes()
            if broker.held_bytes > most * low:
                text = f"{broker.held_bytes} bytes are held; the limit is {most}"
            elif len(session.requests) > options.max_outstanding * low:
                text = f"it has {len(session.requests)} open requests; the limit is {options.max_outstanding}"
            else:
                continue
            self.breach("resumed", f"client {session.number} was resumed without room: {text}")

    def _stalled(self) -> None:
        """A client that was paused at a limit is read again when there is room."""
        broker = self.node.broker
        for session, service in broker.paused_clients.items():
            if not session.requests and not service.queue_length and not broker.held_bytes:
                self.breach("stalled", f"client {session.number} is not read, and nothing is in its way")

    # --- time ---------------------------------------------------------------------------------------------------------------

    def _workers_heard(self) -> None:
        """A silent worker is declared lost, and the others get heartbeats."""
        broker = self.node.broker
        now = broker.now
        for worker in broker.workers:
            dialog = self.dialogs.get(worker.session.link.peer)
            if dialog is None or dialog.garbled or worker.orphaned_until:
                continue
            beat = self.node.options.beat
            if dialog.protocol == "memo":
                self._poll_answered(worker, now)
            if dialog.protocol in ("memo", "bridge"):
                continue
            allowed = self.allowed(dialog)
            silent = now - dialog.last_heard
            if (
                silent > _late(allowed)
                and now - worker.registered_at > _late(allowed)
                and self._last_job(worker, now) > _late(allowed)
            ):
                self.breach(
                    "silence", f"worker {worker.number} has been silent for {silent:.2f} s; {allowed:g} are allowed"
                )
            if dialog.beats and now - dialog.last_said > _late(beat) + self.node.options.slow_turn:
                self.breach("beat", f"worker {worker.number} has heard nothing for {now - dialog.last_said:.2f} s")

    def overslept(self, late: float) -> None:
        """The broker was suspended. Input of that time is not read yet, so it does not count as silence."""
        for dialog in self.dialogs.values():
            dialog.last_heard = min(self.node.clock, dialog.last_heard + late)

    def services_lost(self, registered: "list[str]") -> None:
        """Timers of the catalog have run: no service may be declared lost while its input waits to be read."""
        for name in registered:
            entry = self.node.broker.catalog.entries[name]
            if entry.state == LOST and entry.session is not None and self._unread(entry.session.link.peer):
                self.breach(
                    "unread-input",
                    f"{name} was removed from the catalog for its silence, while its input was not read",
                )

    def _unread(self, connection: str) -> bool:
        """Whether input of the connection waits to be read."""
        return any(data and one.endpoint.name == connection for one, data in self.node.inbox)

    def _services_heard(self) -> None:
        """A service of the catalog that is silent is declared lost."""
        broker = self.node.broker
        for name in broker.catalog.active_entries():
            entry = broker.catalog.entries[name]
            silent = broker.now - entry.seen
            if entry.beat and silent > _late(entry.beat * broker.tuning.beats_missed):
                self.breach("silence", f"{name} has not beaten for {silent:.2f} s and is still in the catalog")

    def allowed(self, dialog: Dialog) -> float:
        """The silence allowed to a worker, by what it has sent so far."""
        silence = self.silence(dialog)
        strict = dialog.strict or dialog.beat_busy or not dialog.jobs
        return silence if strict else max(silence, self.node.options.busy_timeout)

    def silence(self, dialog: Dialog) -> float:
        """The silence allowed to an idle worker."""
        tuning = self.node.broker.tuning
        return self.node.options.beat * (tuning.emqp_beats_missed if dialog.protocol == "emqp" else tuning.beats_missed)

    def _last_job(self, worker: Worker, now: float) -> float:
        """Seconds since it got the last of the requests that it holds."""
        return now - max((request.dispatched for request in worker.held.values()), default=0.0)

    def _poll_answered(self, worker: Worker, now: float) -> None:
        tuning = self.node.broker.tuning
        if worker.polling:
            if now - worker.last_sent > _late(tuning.memo_idle):
                self.breach(
                    "beat", f"worker {worker.number} has waited for {now - worker.last_sent:.2f} s and was told nothing"
                )
        elif not worker.held and now - worker.last_heard > _late(tuning.memo_idle):
            self.breach("silence", f"worker {worker.number} has not come back for {now - worker.last_heard:.2f} s")

    def _requests_in_time(self) -> None:
        broker = self.node.broker
        now = broker.now
        for session in broker.sessions:
            for request in session.requests:
                since = self._empty.get(request.service)
                expiry = self.node.options.queue_expiry * (1 if waits(request) else 1.5)
                late = ""
                if request.deadline and now > _late(request.deadline - request.accepted) + request.accepted:
                    late = "is past its deadline"
                elif (
                    request.state == QUEUED and since is not None and now > max(since, request.accepted) + _late(expiry)
                ):
                    late = "waits for a service without workers"
                elif (
                    request.state == QUEUED
                    and session.protocol == "memo"
                    and request.queue_deadline
                    and now > request.queue_deadline + LATE * 4
                ):
                    late = "waits too long for a worker"
                elif request.state == HELD and request.max_run and now > request.dispatched + _late(request.max_run):
                    late = "runs for longer than its timeout"
                # Its timer may be due next, so it must stay overdue for a while.
                if late and now - self._late.setdefault(request, now) > LATE:
                    tag = self.node.recorder.tags.get(request.number, "")
                    self.breach("overdue", f"request {request.number} {late}", tag)

    def lost_too_soon(self, worker: Worker) -> None:
        """A worker was declared lost for its silence: it must have been silent for as long as is allowed."""
        dialog = self.dialogs.get(worker.session.link.peer)
        if dialog is None or dialog.garbled or dialog.protocol in ("memo", "bridge"):
            return
        name = worker.session.link.peer
        if self._unread(name):
            self.breach(
                "unread-input",
                f"worker {worker.number} was declared lost for its silence, while its input was not read",
            )
        silent = self.node.broker.now - dialog.last_heard
        if silent < self.allowed(dialog) - 0.001:
            self.breach(
                "lost-too-soon",
                f"worker {worker.number} was declared lost after {silent:.2f} s; {self.allowed(dialog):g} are allowed",
            )

    # --- the end --------------------------------------------------------------------------------------------------------------

    def emptied(self, connections: bool = False) -> None:
        """Nothing may be left after all requests have ended, or, with ``connections``, after all peers have left."""
        broker = self.node.broker
        left = {
            "open requests": broker.open_requests,
            "held bytes": broker.held_bytes,
            "workers": sum(not worker.session.runs_shared for worker in broker.workers),
            "services": len(broker.services),
            "crews": sum(not session.runs_shared for session in broker.session_workers),
            "memo01 ids": len(broker.memo_workers),
            "stalled clients": len(broker.paused_clients),
            "tokens": sum(len(worker.held) for worker in broker.workers),
        }
        if connections:
            left["requests without clients"] = len(broker.unattended.requests)
            left["connections"] = sum(not (session.is_internal or session.runs_shared) for session in broker.sessions)
            left["waiting clients"] = len(broker.durable.parked) if broker.durable is not None else 0
            left["timers"] = len(broker.timers)
            left["schedulers"] = len(broker.schedulers)
            left["catalog entries"] = len(broker.catalog.active_entries())
        for what, count in left.items():
            if count:
                self.breach("rest", f"{count} {what} are left")
        self._bounds()
        self._invariants()


def waits(request: Request) -> bool:
    """Whether the client asked for a reply."""
    ref = request.ref
    return not isinstance(ref, EmqpRef) or ref.document_form or ref.route.wants_reply


def _unfinished(link: Link | None) -> int:
    """Bytes of unfinished input that the link holds."""
    if not isinstance(link, ZmtpLink | SpLink):
        return 0
    return len(link._rest) + (link._gather.tell() if link._gather is not None else 0)


def _starts_now(worker: Worker) -> bool:
    return worker.credit > 0 and (not worker.runs or len(worker.held) < worker.runs)


def _fits(service: Service, other: Worker, chosen: Worker, request: Request) -> bool:
    """Whether ``other`` is not avoided and has at least the same weight."""
    return other.session is not request.history.lost_by and service.workers[other] >= service.workers.get(chosen, 0)


def _could(service: Service, other: Worker, chosen: Worker, request: Request) -> bool:
    """Whether ``other`` could have been chosen instead: it is idle, not avoided, and has at least the same weight."""
    if other.credit <= 0 or other.held or other.session is request.history.lost_by:
        return False
    return service.workers[other] >= service.workers.get(chosen, 0)


def _late(seconds: float) -> float:
    """The longest time that a wait of ``seconds`` may take, with the tolerance of timers."""
    return seconds * 1.02 + limits.TIMER_TICK / 1000 * 2 + LATE
