"""What the rules of requests and workers ask of the parts of the broker above them. Each part implements one of these classes and is put
into ``State``; the classes themselves do nothing, as in a broker without that part. So the rules do not import the parts."""

from typing import Protocol

from polydomo.broker.jobs.durable_order import DurableOrder
from polydomo.model.records import LimitedRequests, Request, Service, Session, Worker
from polydomo.native import mypyc_attr
from polydomo.wire.close_reason import CloseReason


@mypyc_attr(allow_interpreted_subclasses=True)
class Rights:
    """Access control (``guard.access``)."""

    in_force = False  # whether there are rules

    def allows(self, principal: str, right: str, name: str) -> bool:
        """Whether the principal has the right. Not recorded."""
        return True

    def denial(self, session: Session, right: str, name: bytes | str) -> str:
        """Why the peer does not have the right now; "" if it has it."""
        return ""

    def denial_of(self, request: Request, right: str, name: bytes | str) -> str:
        """The same for the origin of a request."""
        return ""

    def denial_as(self, principal: str, session: Session, right: str, name: bytes | str) -> str:
        """The same for a principal whose request another process passed on over ``session``."""
        return ""

    def recorded_job(self, principal: str, service: bytes) -> int:
        return 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Nodes:
    """``dbp.registered_only`` (``catalog.registered_nodes``)."""

    def denial(self, session: Session, right: str) -> str:
        """Why the peer's node may not publish or offer services now; "" if it may, or for other rights."""
        return ""


@mypyc_attr(allow_interpreted_subclasses=True)
class Routes:
    """Workers elsewhere: in other processes of this broker and at other brokers (``cluster.bridging``)."""

    def queued(self, service: Service) -> None:
        """Requests are queued, and no local worker is free; ``service.remote`` is not empty."""

    def has_room(self) -> None:
        """A bridge takes requests again."""

    def offer_changed(self, service: Service) -> None:
        """The service has its first local worker, or lost its last one."""

    def bridge_lost(self, worker: Worker, held: "list[Request]") -> None:
        """A bridge is gone; the requests that it held were requeued or have ended."""

    def forget(self, service: Service) -> None:
        """The service is not in the table any more."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Limits:
    """Limits of services (``limiting.limiter``)."""

    def queue(self, name: bytes) -> LimitedRequests | None:
        """Where the requests of a service with limits wait; None without limits."""
        return None

    def forget(self, name: bytes) -> None:
        """The service left the table, or the last of its requests was forgotten."""

    def become(self) -> None:
        """The broker knows how many processes it has."""

    def opened(self, worker: Worker, index: int) -> None:
        """The process at the other end of a bridge has said its number."""

    def lost(self, worker: Worker) -> None:
        """A bridge to another process is gone."""

    def message(self, worker: Worker, rest: "list[bytes]") -> bool:
        """A LIMIT of another process; False if it is malformed."""
        return False

    def started_elsewhere(self, worker: Worker, token: bytes) -> None:
        """Another process has started a request that was sent there."""

    def why(self, request: Request) -> str:
        """Why a request waits although workers may be free; "" if its limit is not the reason."""
        return ""


@mypyc_attr(allow_interpreted_subclasses=True)
class SessionListener:
    """Learns of connections."""

    def opened(self, session: Session) -> None: ...
    def closed(self, session: Session, reason: CloseReason) -> None: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Observer(SessionListener):
    """Learns of changes of workers and services (``observe.monitor``)."""

    def registered(self, worker: Worker) -> None: ...
    def offered(self, worker: Worker, service: Service) -> None: ...
    def late(self, worker: Worker) -> None: ...
    def back(self, worker: Worker) -> None: ...
    def left(self, worker: Worker) -> None:
        """Called after the worker's state has changed and it has been removed from its services."""


class DurableRequests(Protocol):
    """Makes requests durable: ``jobs.durable`` in the process with the job store, ``jobs.relay`` in the others."""

    def covers(self, name: bytes) -> bool:
        """Whether ordinary requests to this service are durable."""
        raise NotImplementedError

    def accept(self, request: Request, order: DurableOrder, deadline: float) -> Request | None:
        """Turns an ordinary request into a job and waits for its result. None: it was rejected."""
        raise NotImplementedError

    def abandoned(self, request: Request) -> bool:
        """A parked request is about to end. True if that has ended it."""
        raise NotImplementedError

    def goes_on(self, request: Request) -> bool:
        """Whether the job of a parked request goes on when the request ends."""
        raise NotImplementedError

    def parks(self, request: Request) -> bool:
        """Whether the request waits for its job."""
        raise NotImplementedError

    def check_invariants(self) -> None:
        raise NotImplementedError
