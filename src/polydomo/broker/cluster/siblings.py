"""Siblings: the other processes of one broker (``polydomo up --processes N``).

Every process is a whole broker with its own connections. Each is joined to each other by a bridge (``bridging``), so services of one are
offered to the others, and all topics cross. Three things are different between siblings, and use messages of their own:

    PROCESS  index                      sent after HELLO: which process the sender is
    SHORT    service                    requests wait here and all local workers are busy: answer when you have room
    ROOM     service count              that many workers of the service are free here
    ASK      id name principal body     answer a reserved service for your own process
    ANSWER   id content
    LOG      topic body                 a log record that belongs to a request of the receiver
    EVENT    topic content              a worker or a service changed (``monitor``), or a message for a tap
    TAP      0 or 1                     a peer of the sender watches messages: send yours as EVENTs
    LIVE     0 or 1                     the same for requests as they end
    SCHEDULE principal message          eMQP's SCHEDULE or UNSCHEDULE, for process 0
    LIMIT    word service key count     permits of services with limits (``broker/limiting/permits.py``)
    STARTED  token                      a worker has got the request that the receiver sent with this token, and counts
    ENDED    token                      its worker has ended a request that the receiver has cancelled, and counts
    NODES    address*                   of process 0: the nodes that have registered in the catalog (``dbp.registered_only``)
    NODE     address 0 or 1             one of them registered, or has left

**Load.** A request goes to a worker of its own process if one is free. If it has waited for ``SPILL_DELAY``, the process sends SHORT to the
siblings that offer the service. A sibling with a free worker and an empty queue answers with ROOM, once, and as many requests cross.
ROOM reserves nothing: a request that finds the worker busy waits in the sibling's queue like any other. Where jobs are short
(``SPILL_QUICK``), as many requests as there are workers are sent ahead, so that the workers do not wait for the next ROOM.
Where most workers answer within one turn of the loop (``SPILL_LOOP``), the loop is the bottleneck and not the workers: a request that
crosses costs this loop as much as a local one, and the other process besides, so none crosses.

**One answer.** ``polydomo.workers`` and its relatives are answered for the whole broker: the process that is asked asks the others and
merges their parts (``merging``). What only process 0 has (jobs, the catalog) it offers to the others as services.

**Shutdown.** A process that drains still accepts requests of its siblings, so that what waits in one can finish in another.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final, Protocol

from polydomo.broker.builtin.service import FIRST, Asked, BuiltinService
from polydomo.broker.catalog.registered_nodes import RegisteredNodes
from polydomo.broker.cluster import merging, processes
from polydomo.broker.identity import identity
from polydomo.broker.observe.listings import Listings
from polydomo.broker.requests import dispatch, queues
from polydomo.broker.state import State
from polydomo.limits import (
    MAX_SIBLING_QUESTIONS,
    PROCESS_NUMBERS,
    PROCESS_WORKERS,
    SIBLING_ANSWER,
    SPILL_DELAY,
    SPILL_LOOP,
    SPILL_QUICK,
    SPILL_SAMPLE,
    SPILL_TURN,
    SPILL_WEIGHT,
)
from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import DONE, Request, Service, Session, Worker
from polydomo.protocols.emqp import schedules
from polydomo.wire.frames import Body, flat, frame, split
from polydomo.wire.link import PAUSE_LISTING

METRICS: Final = b"metrics"  # not a service: the page that the owner of the sockets renders
FIGURES: Final = b"polydomo.figures"
SCHEMA: Final = b"polydomo.schema"

Done = Callable[["list[bytes]"], None]  # is given the answers, those of this process first


class Question:
    """One question to other processes."""

    def __init__(self, done: Done, waiting: "set[Worker]") -> None:
        self.done = done
        self.waiting = waiting  # bridges that have not answered yet
        self.answers: list[bytes] = []
        self.own = True  # this process' own part is still being built
        self.expiry: Expiry | None = None
        self.timer = 0


class Short:
    """Requests of a service wait, and all local workers are busy."""

    def __init__(self) -> None:
        self.asked: dict[Worker, None] = {}  # siblings that were asked for room
        self.done = -1  # requests that the first few workers have answered, at the last turn
        self.answers = 0.0  # requests that each of them answers in a turn: a moving average

    def end_turn(self, service: Service) -> None:
        """Once per turn."""
        sample = [worker.done for worker in islice(service.workers, SPILL_SAMPLE)]
        done = sum(sample)
        if sample and self.done >= 0:
            self.answers += SPILL_WEIGHT * (max(0, done - self.done) / len(sample) - self.answers)
        self.done = done

    def loop_is_slower(self) -> bool:
        return self.answers > SPILL_LOOP


class Local(Protocol):
    """What this process does for the others."""

    def orders(self) -> "list[tuple[bytes, bytes]]":
        """Requests that a new process is sent: which services are paused or drained, and the schemas of services that are offered here."""
        raise NotImplementedError

    def event(self, topic: bytes, content: bytes) -> None:
        """A worker or a service of another process changed, or a tap shows a message there."""
        raise NotImplementedError

    def log_record(self, session: Session, topic: bytes, body: Body) -> None:
        """A log record that belongs to a request of this process."""
        raise NotImplementedError


class Siblings:
    def __init__(self, state: State, api: BrokerApi, listings: Listings) -> None:
        self._state = state
        self._api = api
        self._listings = listings
        self.local: Local | None = None  # set by ``Broker``
        self.nodes: RegisteredNodes | None = None  # likewise, with ``dbp.registered_only``
        self.bridges = state.process.bridges
        self.limits = state.limits
        self.short: dict[Service, Short] = {}  # services whose requests wait
        self.wanted: dict[Service, dict[Worker, None]] = {}  # siblings that asked for room here
        self.questions: dict[int, Question] = {}
        self.render_metrics: Callable[[], bytes] | None = None  # set by the owner of the sockets
        # Siblings with a peer that watches messages (``journal/recording/tap.py``).
        self.tapping: dict[Worker, None] = {}
        self.has_tap = False  # this process has one
        # Siblings with a peer that watches requests as they end (``journal/recording/live.py``).
        self.watching: dict[Worker, None] = {}
        self.has_live = False
        self._timer = 0
        self._newest = 0  # number of the last question

    def become(self, index: int, count: int, pid: int = 0) -> None:
        """Before the broker listens: it is process ``index`` of ``count``. The numbers of requests and workers show the process."""
        process = self._state.process
        process.index = index
        process.count = count
        process.pid = pid
        self._state.newest_request = index * PROCESS_NUMBERS
        self.limits.become()
        self._state.newest_worker = self._state.newest_session = index * PROCESS_WORKERS

    # --- bridges come and go

    def opened(self, worker: Worker) -> None:
        self.bridges[worker] = -1
        session = worker.session
        session.send_to_sibling(b"PROCESS", [b"%d" % self._state.process.index])
        if self.has_tap:
            session.send_to_sibling(b"TAP", [b"1"])
        if self.nodes is not None:
            self.nodes.greet(session)
        if self.has_live:
            session.send_to_sibling(b"LIVE", [b"1"])
        if self._state.process.index == 0:
            builtin = self._state.builtin
            for name in sorted(builtin.offered):
                if self._state.offered is not None or not builtin.by_name[name].needs_store():
                    session.offer_service(name, (identity(self._state),))

    def lost(self, worker: Worker) -> None:
        if self.bridges.pop(worker, None) is not None:
            self.limits.lost(worker)
        self.tapping.pop(worker, None)
        self.watching.pop(worker, None)
        for short in self.short.values():
            short.asked.pop(worker, None)
        for waiting in self.wanted.values():
            waiting.pop(worker, None)
        for number, question in list(self.questions.items()):
            question.waiting.discard(worker)
            self._check(number, question)

    def message(self, worker: Worker, word: bytes, rest: "list[bytes]") -> bool:
        """False if there is no such message."""
        if worker not in self.bridges:
            return False
        if word == b"SHORT" and len(rest) == 1:
            self._on_short(worker, rest[0])
        elif word == b"ROOM" and len(rest) == 2 and rest[1].isdigit():
            self._on_room(worker, rest[0], int(rest[1][:9]))
        elif word == b"ASK" and len(rest) == 4 and rest[0].isdigit():
            self._on_ask(worker, rest)
        elif word == b"ANSWER" and len(rest) == 2 and rest[0].isdigit():
            self._on_answer(worker, int(rest[0][:18]), rest[1])
        elif word == b"EVENT" and len(rest) == 2:
            self._here().event(rest[0], rest[1])
        elif word in (b"TAP", b"LIVE") and rest in ([b"0"], [b"1"]):
            table = self.tapping if word == b"TAP" else self.watching
            if rest == [b"1"]:
                table[worker] = None
            else:
                table.pop(worker, None)
        elif word == b"LOG" and len(rest) == 2:
            self._here().log_record(worker.session, rest[0], frame(rest[1], False))
        elif word == b"SCHEDULE" and len(rest) == 2:
            self._on_schedule(worker, rest[0].decode(errors="replace"), rest[1])
        elif word == b"LIMIT":
            return self.limits.message(worker, rest)
        elif word == b"STARTED" and len(rest) == 1:
            self.limits.started_elsewhere(worker, rest[0])
        elif word == b"ENDED" and len(rest) == 1:
            self._on_ended(worker, rest[0])
        elif word == b"NODES" and self.nodes is not None:
            self.nodes.all_elsewhere(rest)
        elif word == b"NODE" and len(rest) == 2 and self.nodes is not None:
            self.nodes.elsewhere(rest[0].decode(), rest[1] == b"1")
        elif word == b"PROCESS" and len(rest) == 1 and rest[0].isdigit():
            self.bridges[worker] = int(rest[0][:4])
            self._tell_orders(worker)
            self.limits.opened(worker, self.bridges[worker])
        else:
            return False
        return True

    def _tell_orders(self, worker: Worker) -> None:
        """A sibling is new: it learns which services are paused or drained, and the schemas of services that are offered here."""
        for name, body in self._here().orders():
            worker.session.send_to_sibling(b"ASK", [b"0", name, b"", body])

    def repeat_orders(self) -> None:
        """Services were paused as the job store says: the other processes learn it."""
        for worker in self.bridges:
            self._tell_orders(worker)

    def pass_schedule(self, principal: str, raw: bytes) -> bool:
        first = processes.first(self._state) if self._state.durable_requests is not None else None
        if first is None:
            return False
        first.session.send_to_sibling(b"SCHEDULE", [principal.encode(), raw])
        return True

    def _on_schedule(self, worker: Worker, principal: str, raw: bytes) -> None:
        message = split(raw)
        api, session = self._api, worker.session
        known = len(message) == schedules.FRAMES
        if known and not schedules.allowed(api, session, principal, message):
            return
        if not known or not schedules.apply(api, session, principal, message, raw):
            api.report_violation(worker.session, "a schedule that cannot be kept")

    # --- load: requests that wait here while workers of a sibling are free

    def queued(self, service: Service) -> None:
        """Requests wait, and all local workers are busy."""
        if self.bridges and service not in self.short:
            self.short[service] = Short()
            self._ask_later()

    def _ask_later(self) -> None:
        if not self._timer:
            self._timer = self._state.timers.add(self._state.now, self._state.now + SPILL_DELAY, self)

    def on_timer(self) -> None:
        self._timer = 0
        for service, short in list(self.short.items()):
            if not self._is_short(service):
                del self.short[service]
            else:
                self._ask_for_room(service, short)

    def _is_short(self, service: Service) -> bool:
        known = self._state.services.get(service.name) is service
        return known and bool(queues.startable(service) and service.workers and service.remote)

    def _ask_for_room(self, service: Service, short: Short) -> None:
        if short.loop_is_slower():
            self._ask_later()
            return
        asked = short.asked
        for worker in service.remote:
            if worker not in self.bridges or worker in asked:
                continue
            if worker.credit <= 0 or not worker.session.has_room():  # the window is full: no request can cross now
                self._ask_later()
                continue
            asked[worker] = None
            worker.session.send_to_sibling(b"SHORT", [service.name])

    def _on_short(self, worker: Worker, name: bytes) -> None:
        service = self._state.services.get(name)
        if service is not None and service.workers:  # else a RETRACT is on its way there
            self.wanted.setdefault(service, {})[worker] = None

    def end_turn(self) -> None:
        """Once per turn, if requests wait here or siblings wait for room: offers them what room there is."""
        for needy, short in self.short.items():
            short.end_turn(needy)
        for service in list(self.wanted)[:SPILL_TURN]:
            waiting = self.wanted.pop(service)
            if not service.workers:
                continue
            free = len(service.idle) + len(service.partly_busy)
            ahead = len(service.workers) if _is_quick(service) else 0
            queued = service.queue_length if service.limits is None else service.limits.ready
            room = free + ahead - queued
            if service.paused or queued > ahead // 2 or not (free or ahead) or room <= 0:
                self.wanted[service] = waiting  # at the end: others are looked at first in the next turn
                continue
            share = max(1, room // max(1, len(waiting)))
            for worker in waiting:
                if room <= 0:
                    self.wanted.setdefault(service, {})[worker] = None
                    continue
                room -= share
                worker.session.send_to_sibling(b"ROOM", [service.name, b"%d" % share])

    def _on_room(self, worker: Worker, name: bytes, count: int) -> None:
        state = self._state
        service = state.services.get(name)
        short = self.short.get(service) if service is not None else None
        if service is None or short is None:
            return
        short.asked.pop(worker, None)
        session = worker.session
        crossed = False
        while count > 0 and self._is_short(service) and worker in service.remote:
            request = queues.first(service)
            if (
                worker.credit <= 0
                or not session.has_room()
                or session.peer_identity in request.session.path_of(request)
            ):
                break
            count -= 1
            crossed = True
            queues.pop_across(service)
            worker.credit -= 1
            dispatch.dispatch(state, request, worker)
        if not self._is_short(service):
            self.short.pop(service, None)
        elif crossed:
            self._ask_for_room(service, short)
        else:
            self._ask_later()  # nothing could cross. At once, SHORT and ROOM would go back and forth without a pause

    def _on_ended(self, worker: Worker, token: bytes) -> None:
        request = worker.held.get(token)
        if request is not None and request.state == DONE:  # otherwise its answer has come
            del worker.held[token]
            dispatch.put_down(self._state, request)
            if self._state.records_messages:
                self._state.recorder.reply_ignored(request, worker)
            dispatch.add_credit(self._state, worker)

    def forget(self, service: Service) -> None:
        """The service is not in the table any more."""
        self.short.pop(service, None)
        self.wanted.pop(service, None)

    # --- answers for the whole broker

    def serve(self, request: Request, service: BuiltinService | None) -> bool:
        """A client asks for a built-in service. True if the answer needs other processes and comes later."""
        session = request.session
        if service is None or not self.bridges or session.is_bridge or session.is_internal:
            return False
        merge = service.merge
        first = processes.first(self._state) if service.process == FIRST else None
        if first is not None:
            bridges = {first}
        elif merge is not None:
            bridges = set(self.bridges)
        else:
            return False
        if len(self.questions) >= MAX_SIBLING_QUESTIONS:
            return False

        def done(answers: "list[bytes]") -> None:
            session.link.resume(PAUSE_LISTING)
            if not session.disconnected:
                session.send_final(request, frame(merging.merge(merge, answers), False))

        session.link.pause(PAUSE_LISTING)
        body = flat(request.body)
        self._ask(service.name, body, session.principal, bridges, done, own=first is None, session=session)
        return True

    def gather_metrics(self, done: Done) -> None:
        """The pages of all processes."""
        self._ask(METRICS, b"", "", set(self.bridges), done)

    def gather_figures(self, done: "Callable[[bytes], None]") -> None:
        own = next(iter(self.bridges)).session

        def merged(answers: "list[bytes]") -> None:
            done(merging.merge(merging.figures, answers))

        self._ask(FIGURES, b"", "", set(self.bridges), merged, session=own)

    def set_tap(self, has_tap: bool) -> None:
        """Whether a peer of this process watches messages. The other processes learn of a change."""
        if has_tap != self.has_tap:
            self.has_tap = has_tap
            for worker in self.bridges:
                worker.session.send_to_sibling(b"TAP", [b"1" if has_tap else b"0"])

    def set_live(self, has_live: bool) -> None:
        """The same for requests as they end."""
        if has_live != self.has_live:
            self.has_live = has_live
            for worker in self.bridges:
                worker.session.send_to_sibling(b"LIVE", [b"1" if has_live else b"0"])

    def _ask(
        self,
        name: bytes,
        body: bytes,
        principal: str,
        bridges: "set[Worker]",
        done: Done,
        own: bool = True,
        session: Session | None = None,
    ) -> None:
        self._newest += 1
        number = self._newest
        state = self._state
        question = self.questions[number] = Question(done, set(bridges))
        question.expiry = Expiry(self, number)
        question.timer = state.timers.add(state.now, state.now + SIBLING_ANSWER, question.expiry)
        for worker in bridges:
            worker.session.send_to_sibling(b"ASK", [b"%d" % number, name, principal.encode(), body])
        if own:

            def take(content: bytes) -> None:
                question.answers.insert(0, content)
                question.own = False
                self._check(number, question)

            self._answer_here(name, body, session, principal, take)
        else:
            question.own = False
            self._check(number, question)

    def extend_deadlines(self) -> None:
        """This process was suspended: answers that arrived meanwhile are not read yet, so every open question gets its time again."""
        state = self._state
        for question in self.questions.values():
            if question.timer:
                state.timers.remove(question.timer, question.expiry)
                question.timer = state.timers.add(state.now, state.now + SIBLING_ANSWER, question.expiry)

    def expired(self, number: int) -> None:
        """Leaves out processes that have not answered yet."""
        question = self.questions.get(number)
        if question is not None:
            question.timer = 0
            question.waiting.clear()
            self._check(number, question)

    def _check(self, number: int, question: Question) -> None:
        if not question.waiting and not question.own and number in self.questions:
            del self.questions[number]
            if question.timer:
                self._state.timers.remove(question.timer, question.expiry)
            question.done(question.answers)

    def _on_ask(self, worker: Worker, rest: "list[bytes]") -> None:
        number, name, principal, body = rest
        session = worker.session

        def answer(content: bytes) -> None:
            if number != b"0" and worker in self.bridges:
                session.send_to_sibling(b"ANSWER", [number, content])

        self._answer_here(name, body, session, principal.decode(errors="replace"), answer)

    def _on_answer(self, worker: Worker, number: int, content: bytes) -> None:
        question = self.questions.get(number)
        if question is not None and worker in question.waiting:
            question.waiting.discard(worker)
            question.answers.append(content)
            self._check(number, question)

    def _answer_here(
        self, name: bytes, body: bytes, session: Session | None, principal: str, take: "Callable[[bytes], None]"
    ) -> None:
        """This process' own part of an answer, now or some turns later."""
        if name == METRICS:
            take(self.render_metrics() if self.render_metrics is not None else b"")
            return
        builtin = self._state.builtin
        service = builtin.find(name, frame(body, False))
        if session is not None and not self._listings.collect(service, take):
            take(builtin.answer(service, Asked(name, session, body, principal)))

    def _here(self) -> Local:
        assert self.local is not None
        return self.local

    def check_invariants(self) -> None:
        for waiting in (*[short.asked for short in self.short.values()], *self.wanted.values()):
            for worker in waiting:
                assert worker in self.bridges, f"bridge w{worker.number} waits for room and is gone"
        assert self.tapping.keys() <= self.bridges.keys(), "a bridge that is gone watches messages"
        assert self.watching.keys() <= self.bridges.keys(), "a bridge that is gone watches requests"
        for question in self.questions.values():
            for worker in question.waiting:
                assert worker in self.bridges, f"bridge w{worker.number} is asked and is gone"


def _is_quick(service: Service) -> bool:
    """Whether jobs of the service are so short that the way between two processes matters: then some requests are sent ahead."""
    return any(worker.done and worker.busy_time < SPILL_QUICK * worker.done for worker in islice(service.workers, 4))


class Expiry:
    """The timer of a question."""

    def __init__(self, siblings: Siblings, number: int) -> None:
        self.siblings = siblings
        self.number = number

    def on_timer(self) -> None:
        self.siblings.expired(self.number)
