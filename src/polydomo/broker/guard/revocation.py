"""Revoked rights: ends what the broker itself does for principals that no longer have the right to it, and workers that have
no connection of their own.

Connections that have lost a right are closed by their owner, which asks ``lost_right``.
"""

from polydomo.broker import sessions
from polydomo.broker.catalog.catalog import Catalog
from polydomo.broker.cluster.bridging import Bridging
from polydomo.broker.guard.access import Access
from polydomo.broker.guard.rules import BRIDGE, OFFER, REGISTER
from polydomo.broker.requests import outcomes
from polydomo.broker.state import State
from polydomo.broker.topics.subscriptions import Subscriptions
from polydomo.broker.workers import registration
from polydomo.model.detached_link import DetachedLink
from polydomo.model.outcomes import DENIED
from polydomo.model.records import DONE, Departure, Session, Worker
from polydomo.protocols.emqp.commands import SCHEDULER_RIGHT
from polydomo.wire.close_reason import CloseCause, CloseReason


class Revocation:
    def __init__(
        self, state: State, access: Access, bridging: Bridging, subscriptions: Subscriptions, catalog: Catalog
    ) -> None:
        self._state = state
        self._access = access
        self._bridging = bridging
        self._subscriptions = subscriptions
        self._catalog = catalog

    def lost_right(self, session: Session) -> str:
        """An operation of the session that is no longer allowed; empty if there is none."""
        state, access = self._state, self._access
        if access.rules is None or session.is_sibling:
            return ""
        why = access.denial(session, BRIDGE, "") if session.is_bridge else ""
        if not why and session in state.schedulers:
            why = access.denial(session, OFFER, SCHEDULER_RIGHT)
        if why:
            return why
        for worker in state.session_workers.get(session, ()):
            why = self._offer_denial(worker)
            if why:
                return why
        for request in session.requests:
            why = access.request_denial(request)
            if why:
                return why
        for prefix in self._subscriptions.prefixes(session):
            why = access.subscription_denial(session, prefix)
            if why:
                return why
        for entry in self._catalog.registered_by(session):
            why = access.denial(session, REGISTER, entry)
            if why:
                return why
        return ""

    def _offer_denial(self, worker: Worker) -> str:
        """Why a worker may not offer its services any more, or a bridge those of the other broker; "" if it may."""
        names = [service.name for service in worker.services]
        names += self._bridging.learned.get(worker, ())
        for name in names:
            why = self._access.denial(worker.session, OFFER, name)
            if why:
                return why
        return ""

    def end_revoked(self) -> None:
        """Called after the rules have changed."""
        if self._access.rules is None:
            return
        self._end_requests()
        self._end_workers()
        self._bridging.offers_changed()
        self._bridging.entries_changed()

    def _end_requests(self) -> None:
        """An attempt of a durable job ends as DENIED, and so does the job. So do requests that would be run after their client has left."""
        state = self._state
        for session in [session for session in state.sessions if not session.is_bridge]:
            own = not session.origin_is_principal
            for request in list(session.requests):
                if request.state == DONE or not (own or session.disconnected or not session.awaits_reply(request)):
                    continue
                why = self._access.request_denial(request)
                if why:
                    outcomes.cancel(state, request, why, DENIED)
                    if own:
                        session.send_failure(request, DENIED, why)

    def _end_workers(self) -> None:
        """Workers over HTTP, which have a connection only while they ask, and those whose connection broke and may come back (memo01)."""
        state = self._state
        for worker in list(state.workers):
            session = worker.session
            detached = isinstance(session.link, DetachedLink) and not session.runs_shared
            if not worker.alive or not (detached or worker.orphaned_until):
                continue
            why = self._offer_denial(worker)
            if not why:
                continue
            if detached:
                sessions.closed(state, session, CloseReason(CloseCause.DENIED, why))
            else:
                registration.lose(state, worker, Departure.LEFT, why)
