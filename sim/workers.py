"""Simulated workers. They register, send heartbeats, serve requests, and register again whenever they are lost, by the rules of the worker
library."""

from typing import TYPE_CHECKING
from zlib import crc32

from polydomo.protocols.dcp.ends import DcpWorkerEnd
from polydomo.protocols.ends import Cancelled, Delivery, Dismissed, Event, Revoked, WorkerEnd
from polydomo.protocols.mdp.ends import Mdp1WorkerEnd
from polydomo.worker.batches import BatchSize, Outcome
from sim.batches import Batches, SimulatedFailure, batch_size
from sim.http_ends import HttpWorkerEnd, worker_end
from sim.options import FORWARD_TO, ONWARD
from sim.peers import Line, NngSocket, Peer
from sim.record import OUTSIDE, TAG

if TYPE_CHECKING:
    from sim.brokers import BrokerNode
    from sim.world import World

SEVERAL = ("dcp", "emqp", "memo")  # protocols whose workers may offer several services, and hold several jobs
WINDOWED = ("dcp", "emqp")  # those that can prefetch, too, by an extension


class GuidePhpWorkerEnd(Mdp1WorkerEnd):
    """The dialect of the ZeroMQ Guide's PHP worker: no empty frame between the client address and the body of a REPLY."""

    def say(self, command: bytes, rest: list[bytes]) -> None:
        super().say(command, [rest[0], *rest[2:]] if command == b"\x03" else rest)


class Execution:
    """A job that is running."""

    def __init__(self, number: int, delivery: Delivery, tag: str, partials: int) -> None:
        self.number = number
        self.delivery = delivery
        self.tag = tag
        self.partials = partials
        self.sent = 0
        self.over = False

    def part(self, name: str) -> bytes:
        return b"{%s|%d|%s}" % ((self.tag or "none").encode(), self.number, name.encode())

    def result(self) -> list[bytes]:
        return [self.part("end"), b"..."]


class Worker(Peer):
    def __init__(self, world: "World", name: str, node: "BrokerNode", protocol: str, services: list[bytes]) -> None:
        super().__init__(world, name, node)
        self.protocol = protocol
        self.services = services
        self.nng = protocol == "memo" and world.options.nng
        self.quiet = self.rng.random() < world.options.quiet  # sends no heartbeats while busy
        # Chosen by name: another random number would change the runs of all existing seeds.
        self.guide_php = protocol == "mdp1" and crc32(name.encode()) % 3 == 0
        self.dagbox = protocol == "dcp" and crc32(name.encode()) % 4 == 0
        self.slots = world.options.slots if protocol in SEVERAL else 1
        self.prefetch = 0
        if protocol == "mdx" and self.extended:
            self.slots, self.prefetch = world.options.credit, world.options.prefetch
        elif protocol in WINDOWED and self.extended:
            self.prefetch = world.options.prefetch
        size = batch_size(self)
        self.batches = Batches(self, size) if size is not None else None
        if size is not None:
            self._ask_for_batches(size)
        self.unstarted: list[Delivery] = []  # prefetched
        self.line: Line | NngSocket | None = None
        self.running: dict[Execution, None] = {}
        self.failures = 0
        self.closed = False
        self._dial()

    # --- registration

    def _ask_for_batches(self, size: BatchSize) -> None:
        """One batch runs, and the calls of the next one gather, where the protocol can prefetch."""
        windowed = self.extended and self.protocol in ("mdx", *WINDOWED)
        if windowed or self.protocol in SEVERAL:
            self.slots = size.most
        self.prefetch = size.most + self.options.prefetch if windowed else 0

    def _make_end(self) -> WorkerEnd:
        end = worker_end(self.protocol)
        if self.guide_php:
            end = GuidePhpWorkerEnd()
        elif self.dagbox:
            end = DcpWorkerEnd(type_size=4)
        beat = self.options.beat
        end.interval = beat if self.protocol != "memo" else 4 * beat
        end.patience = 4 * beat if end.patience else 0.0
        return end

    def _dial(self) -> None:
        if self.closed:
            return
        self.up = True
        end = self._make_end()
        if self.nng:
            end.open(self.services, self.slots)
            socket = NngSocket(self, end, lambda event: self._on_event(socket, event))
            self.line = socket
            socket.flush()
            return
        line = Line(
            self,
            end,
            lambda: self._opened(line),
            lambda event: self._on_event(line, event),
            lambda why: self._lost(line, why),
        )
        self.line = line

    def _opened(self, line: Line) -> None:
        self.failures = 0
        end = line.end
        assert isinstance(end, WorkerEnd)
        end.open(self.services, self.slots, self.prefetch)
        line.flush()
        self.later(end.interval, lambda: self._beat(line))

    def _beat(self, line: Line) -> None:
        if self.line is not line or not line.alive:
            return
        end = line.end
        assert isinstance(end, WorkerEnd)
        if end.patience and self.now - line.heard > end.patience:
            line.close(abort=True)
            self._lost(line, "the broker is silent")
            return
        if not (self.quiet and self.running):
            end.beat()
            line.flush()
        self.later(end.interval, lambda: self._beat(line))

    def _lost(self, line: Line | NngSocket, why: str) -> None:
        if self.line is line:
            self.line = None
            self.failures += 1
            self.note("lost", "", why)
            self._drop()
            self.later(self.backoff(self.failures), self._dial)

    def _drop(self) -> None:
        for execution in self.running:
            execution.over = True
        self.running = {}
        self.unstarted = []
        if self.batches is not None:
            self.batches.drop()

    # --- jobs

    def _on_event(self, line: Line | NngSocket, event: Event) -> None:
        if line is not self.line:
            return
        if isinstance(event, Delivery):
            if self.batches is not None:
                self.batches.came(line, event)
            elif self.prefetch and len(self.running) >= self.slots:
                self.unstarted.append(event)
            else:
                self._start(line, event)
        elif isinstance(event, Cancelled | Revoked):
            self._unwanted(line, event)
        elif isinstance(event, Dismissed):
            self.note("dismissed", "", event.why)
            line.close()
            self._lost(line, "dismissed")

    def _unwanted(self, line: Line | NngSocket, event: Cancelled | Revoked) -> None:
        """The broker asks for a request that has not started, or the request was cancelled."""
        end = line.end
        assert isinstance(end, WorkerEnd)
        delivery = event.delivery
        waiting = [one for one in self.unstarted if one is delivery]
        if self.batches is not None and self.batches.leave(line, delivery, type(event).__name__.lower()):
            self.world.count("call left its batch")
            end.release(delivery)
        elif waiting:
            self.unstarted = [one for one in self.unstarted if one is not delivery]
            self.world.count("job released")
            end.release(delivery)
        elif isinstance(event, Revoked):
            self.world.count("job kept")
            end.keep(delivery)
        else:
            for execution in list(self.running):
                if execution.delivery is delivery and self.rng.random() < 0.5:
                    self.world.count("job stopped")
                    execution.over = True
                    del self.running[execution]
                    end.release(delivery)
                    self._next(line)
        line.flush()

    def _next(self, line: Line | NngSocket) -> None:
        if self.unstarted and self.line is line and len(self.running) < self.slots:
            self._start(line, self.unstarted.pop(0))

    def _start(self, line: Line | NngSocket, delivery: Delivery) -> None:
        rng, options = self.rng, self.options
        partials = rng.randint(1, 4) if rng.random() < options.partials else 0
        execution = self.begin(line, delivery, partials)
        seconds = self.job_time()
        for i in range(partials):
            self.later(seconds * (i + 1) / (partials + 1), lambda i=i: self._partial(line, execution, i))  # type: ignore[misc]
        self.later(seconds, lambda: self._finish(line, execution))

    def job_time(self) -> float:
        seconds = self.rng.expovariate(20.0)
        if self.world.troubled and self.rng.random() < self.options.slow:
            seconds = self.rng.uniform(1.0, 15.0)
        return seconds

    def begin(self, line: Line | NngSocket, delivery: Delivery, partials: int) -> Execution:
        options = self.options
        world = self.world
        found = TAG.search(b"".join(delivery.body)[:256])
        tag = found[1].decode() if found else ""
        # the broker at the other end of a bridge judges by the principal of the bridge
        judged = not options.bridged or options.siblings
        if judged and OUTSIDE in b"".join(delivery.body) and (delivery.service or self.services[0]) == FORWARD_TO:
            world.breach("trespass", f"{self.name} got a request whose origin may not call {FORWARD_TO!r}")
        if delivery.body[-1:] == [ONWARD] and delivery.metadata is not None and not options.bridged:
            world.count("metadata of a chain")
            if delivery.metadata != [ONWARD, tag.encode()]:
                world.breach("chain", f"{self.name} got the metadata {delivery.metadata!r} with a forwarded request")
        world.executions += 1
        execution = Execution(world.executions, delivery, tag, partials)
        self.running[execution] = None
        name = line.name if isinstance(line, Line) else self.name
        self.note("job", tag, execution.number, name, partials)
        return execution

    def _working(self, line: Line | NngSocket, execution: Execution) -> WorkerEnd | None:
        if execution.over or self.line is not line:
            return None
        assert isinstance(line.end, WorkerEnd)
        return line.end

    def _partial(self, line: Line | NngSocket, execution: Execution, number: int) -> None:
        end = self._working(line, execution)
        if end is not None and execution.sent == number:
            execution.sent += 1
            end.partial(execution.delivery, [execution.part(f"p{number}")])
            line.flush()

    def _finish(self, line: Line | NngSocket, execution: Execution) -> None:
        if self._working(line, execution) is None:
            return
        if self.unstarted:
            self.later(0.0, lambda: self._next(line))
        fails = self.world.troubled and self.rng.random() < self.options.failing
        answered = self.finish(line, execution, SimulatedFailure() if fails else execution.result())
        if self.line is line:
            line.flush()
        if answered:
            self.leave_at_times()

    def finish(self, line: Line | NngSocket, execution: Execution, outcome: Outcome) -> bool:
        """Passes on the outcome of a call; the caller flushes. Returns whether it was answered."""
        end = line.end
        assert isinstance(end, WorkerEnd)
        rng = self.rng
        options = self.options
        trouble = self.world.troubled
        execution.over = True
        del self.running[execution]
        delivery = execution.delivery
        if isinstance(outcome, Exception):
            self.note("fail", execution.tag, execution.number)
            self.world.count("job failed")
            if end.fail(delivery, "broken", "simulated failure"):
                line.flush()  # the answers before it
                line.close()
                self._lost(line, "a job failed")
            return False
        if (
            isinstance(end, DcpWorkerEnd)
            and delivery.service != FORWARD_TO
            and trouble
            and rng.random() < options.forwarding
            and not execution.sent  # a call that has sent partial replies cannot be forwarded
        ):
            self.note("forward", execution.tag, execution.number)
            self.world.count("forward")
            if delivery.metadata and not delivery.job:
                end.forward(delivery, FORWARD_TO, [*delivery.body, ONWARD], [ONWARD, execution.tag.encode()])
            else:  # the client speaks another protocol: "metadata" is the client's
                end.forward(delivery, FORWARD_TO, delivery.body)
            return False
        for number in range(execution.sent, execution.partials):
            end.partial(delivery, [execution.part(f"p{number}")])
        self.note("answer", execution.tag, execution.number)
        assert isinstance(outcome, list)
        end.final(delivery, outcome)
        # memo01 has ids for that, and DBP takes a second reply for the reply to the next request.
        if self.protocol not in ("memo", "dbp") and trouble and rng.random() < options.repeating:
            self.world.count("repeated reply")
            replies = [message for message in end.out if any(execution.part("end") in frame for frame in message)]
            end.out += replies
            if isinstance(end, HttpWorkerEnd):
                end.asked.extend(False for _ in replies)  # each has a response of its own
        return True

    def leave_at_times(self) -> None:
        if self.world.troubled and self.rng.random() < self.options.leaving:
            self.world.count("worker left")
            self.step_out()

    # --- faults

    def step_out(self) -> None:
        """Disconnects as its protocol requires, and registers again later."""
        line = self.line
        if line is not None:
            end = line.end
            assert isinstance(end, WorkerEnd)
            if self.batches is not None:
                for delivery in self.batches.withdraw():
                    end.release(delivery)
            end.close()
            line.flush()
            line.close()
            self._lost(line, "left")

    def crash(self, restart_after: float) -> None:
        if not self.up:
            return
        self.note("crashed")
        if self.line is not None:
            self.line.close(abort=True)
            self.line = None
        self._drop()
        self.die()
        self.world.scheduler.at(self.now + restart_after, self.restart)

    def restart(self) -> None:
        if not self.up:
            self._dial()

    def hurry(self) -> None:
        """Finishes all running jobs now."""
        line = self.line
        if line is not None and self.batches is not None:
            self.batches.hurry(line)
        elif line is not None:
            for execution in list(self.running):
                self._finish(line, execution)

    def leave(self) -> None:
        self.closed = True
        self.step_out()
