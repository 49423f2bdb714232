"""Logs the broker's infrequent events. Every line names the peer; none contains a payload."""

import logging
import time

from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.job import DEAD
from polydomo.broker.observe.inspection import text
from polydomo.broker.observe.recorder import Recorder
from polydomo.limits import LOG_DENIED, LOG_KEYS
from polydomo.model.records import Departure, Request, Session, Worker
from polydomo.protocols.emqp.commands import SCHEDULER
from polydomo.server import logs
from polydomo.server.logs import say

LOG = logs.get("broker")


class EventLog(Recorder):
    def __init__(self) -> None:
        super().__init__()
        # Text -> when it was logged, and how often it was repeated since.
        self._denials: dict[str, tuple[float, int]] = {}

    def opened(self, session: Session) -> None:
        say(LOG, logging.DEBUG, "connected", peer=session.link.peer, protocol=session.protocol)

    def closed(self, session: Session, why: str) -> None:
        say(LOG, logging.DEBUG, "disconnected", peer=session.link.peer, protocol=session.protocol, why=why)

    def registered(self, worker: Worker) -> None:
        session = worker.session
        if session.is_bridge:
            level = logging.DEBUG if session.is_sibling else logging.INFO
            say(LOG, level, "bridge opened", **_bridge(worker, session))
        else:
            # The broker's own, for keyed and memoised requests.
            level = logging.DEBUG if session.runs_shared else logging.INFO
            say(LOG, level, f"{_kind(worker)} registered", **_worker(worker))

    def left(
        self, worker: Worker, departure: Departure, why: str, held: "list[Request]", silence: float, allowed: float
    ) -> None:
        state = departure.state
        session = worker.session
        level = logging.INFO if departure is Departure.LEFT else logging.WARNING
        if session.runs_shared:
            level = logging.DEBUG
        if session.is_sibling:
            say(LOG, logging.DEBUG, f"process {state}", why=why, held=len(held), **_bridge(worker, session))
        elif session.is_bridge:
            say(LOG, level, f"bridge {state}", why=why, held=len(held), **_bridge(worker, session))
        else:
            say(LOG, level, f"{_kind(worker)} {state}", why=why, held=len(held), **_worker(worker))

    def requeued(self, request: Request, worker: Worker, why: str, queue_length: int, workers: int) -> None:
        say(
            LOG,
            logging.WARNING,
            "request requeued",
            request=_id(request),
            service=text(request.service.name),
            attempt=request.attempts,
            worker=f"w{worker.number}",
            why=why,
        )

    def stale(self, worker: Worker, token: bytes, what: str, size: int) -> None:
        say(
            LOG,
            logging.WARNING,
            "stale reply dropped",
            what=what,
            attempt=text(token[:24]),
            bytes=size,
            **_worker(worker),
        )

    def refused(self, session: Session, what: str) -> None:
        say(LOG, logging.WARNING, "refused", peer=session.link.peer, protocol=session.protocol, why=what)

    def denied(self, session: Session, principal: str, right: str, name: str, what: str) -> None:
        """Logs a denial once in ``LOG_DENIED`` seconds, with the number of those before: peers that are denied try again and again."""
        now = time.monotonic()
        logged, repeated = self._denials.pop(what, (-LOG_DENIED, 0))
        if now - logged < LOG_DENIED:
            self._denials[what] = (logged, repeated + 1)
            return
        if len(self._denials) >= LOG_KEYS:
            del self._denials[next(iter(self._denials))]
        self._denials[what] = (now, 0)
        more = {"repeated": repeated} if repeated else {}
        say(LOG, logging.WARNING, "denied", peer=session.link.peer, protocol=session.protocol, why=what, **more)

    def job(self, event: JobEvent) -> None:
        if event.what == DEAD:
            say(
                LOG,
                logging.WARNING,
                "job is dead",
                job=event.id,
                service=text(event.service),
                attempts=event.attempts,
                outcome=event.code,
                why=event.reason,
            )

    def routed(self, request: Request, route: "list[str]") -> None:
        name = text(request.service.name)
        say(
            LOG,
            logging.DEBUG,
            "answered by other brokers",
            request=_id(request),
            service=name,
            route=",".join(route),
        )

    def slow_subscriber(self, session: Session, what: str) -> None:
        say(LOG, logging.WARNING, "slow subscriber", peer=session.link.peer, what=what)

    def violated(self, session: Session, what: str) -> None:
        say(LOG, logging.WARNING, "protocol violated", peer=session.link.peer, protocol=_spoken(session), what=what)


def _kind(worker: Worker) -> str:
    return "scheduler" if worker.ref == SCHEDULER else "worker"


def _bridge(worker: Worker, session: Session) -> dict[str, object]:
    """The fields for a bridge: its peer and the other broker's identity. The services are left out, because they change and are not the
    bridge's own."""
    return {"peer": session.link.peer, "broker": text(session.peer_identity), "worker": f"w{worker.number}"}


def _worker(worker: Worker) -> dict[str, object]:
    return {
        "peer": worker.session.link.peer,
        "protocol": _spoken(worker.session),
        "worker": f"w{worker.number}",
        "services": ",".join(text(service.name) for service in worker.services),
    }


def _spoken(session: Session) -> str:
    return f"{session.protocol} ({session.dialect})" if session.dialect else session.protocol


def _id(request: Request) -> str:
    return request.session.request_name(request)
