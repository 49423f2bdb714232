"""The base of MDP/0.1, MDP/0.2 and MDX sessions: one worker per connection, and nothing after DISCONNECT."""

from polydomo.limits import ZOMBIE_TIME
from polydomo.model.broker_api import BrokerApi
from polydomo.model.records import Worker
from polydomo.model.registration import Refusal, WorkerTerms
from polydomo.model.session import ProtocolSession
from polydomo.model.tuning import STRICT
from polydomo.wire.close_reason import CloseCause
from polydomo.wire.frames import Body
from polydomo.wire.link import Link

ZOMBIE = "zombie"


class SingleWorkerSession(ProtocolSession):
    """A session with at most one worker, which READY registers and DISCONNECT ends."""

    def __init__(self, broker: BrokerApi, link: Link) -> None:
        super().__init__(broker, link)
        self.worker: Worker | None = None
        self.finished = False  # DISCONNECT was sent or received: the peer gets nothing more as a worker, and its commands are ignored

    def send_disconnect(self) -> None:
        raise NotImplementedError

    def on_ready(self, service: bytes, beat: float, we_beat: bool = True, busy: str = "") -> None:
        """READY. "The worker MUST NOT send a further READY."""
        if self.worker is not None:
            self.reject_worker("READY twice")
            return
        if not service:
            self.reject_worker("READY for a service with an empty name")
            return
        broker = self.broker
        tuning = broker.tuning
        strict = (busy or tuning.mdp_busy) == STRICT
        terms = WorkerTerms(1, 1, beat if we_beat else 0.0, beat * tuning.beats_missed, strict)
        worker = broker.register_worker(self, [service], None, terms)
        if isinstance(worker, Refusal):
            broker.report_refusal(self, "READY", worker)
            self.disconnect_worker(worker.text)
        else:
            self.worker = worker

    def reject_worker(self, what: str) -> None:
        """ "The broker MUST respond to any valid but unexpected command by sending DISCONNECT and then no further commands" """
        self.broker.report_violation(self, what)
        self.disconnect_worker(what)

    def disconnect_worker(self, why: str) -> None:
        if not self.finished:
            self.send_disconnect()
            self.end_worker(why)

    def end_worker(self, why: str) -> None:
        """Called after DISCONNECT: the worker is gone, and its connection is closed unless the peer closes it soon."""
        self.finished = True
        if self.worker is not None:
            self.broker.worker_left(self.worker, why)
        self.broker.set_timer(ZOMBIE_TIME, self, ZOMBIE)

    def live_worker(self, what: str) -> Worker | None:
        """The registered worker, for a command that is valid only after READY; otherwise sends DISCONNECT and returns None."""
        worker = self.worker
        if worker is not None and worker.alive:
            worker.last_heard = self.broker.now
            return worker
        if not self.finished:
            # A worker that was declared lost sends again, or a peer never sent READY.
            self.reject_worker(f"{what} from a worker that is not registered")
        return None

    def slow_reply(self, token: bytes, body: Body, final: bool) -> None:
        """A reply outside the fast path: the broker records it as stale unless the worker holds that attempt. It may arrive long after
        the worker was declared lost, even after DISCONNECT."""
        worker = self.worker
        if worker is not None:
            if final:
                self.broker.final(worker, token, body)
            else:
                self.broker.partial(worker, token, body)
        self.live_worker("a reply")

    def dismiss(self, worker: Worker) -> None:
        self.send_disconnect()
        self.finished = True

    def on_timer(self, key: object) -> None:
        if key == ZOMBIE:
            if self.requests:  # it is also a client and waits for an answer
                self.broker.set_timer(ZOMBIE_TIME, self, ZOMBIE)
            else:
                self.link.close(CloseCause.AFTER_DISCONNECT)
