"""A plain request that is to become a durable job, and its message between the processes of one broker (``relay``)."""

from polydomo.errors import SettingError
from polydomo.limits import MAX_SERVICE_NAME
from polydomo.model.jobs.messages import (
    ID_LENGTH,
    Row,
    answer_body,
    is_id,
    read_count,
    read_duration,
    read_mark,
    read_octets,
    read_text,
)
from polydomo.model.records import Request
from polydomo.model.request_options import RequestOptions
from polydomo.wire.frames import Body

KEYED = b"idempotency-key:"  # the beginning of an identity that is a client's idempotency key


def identity_of(key: bytes) -> bytes:
    """The identity of a request with an idempotency key. It is never short. The job's key adds its principal and service."""
    return KEYED + key


class DurableOrder:
    """A plain request that is to become a job, wherever it arrived."""

    __slots__ = (
        "attempts",
        "body",
        "group",
        "headers",
        "identity",
        "job",
        "near",
        "principal",
        "run",
        "service",
        "trace",
        "ttl",
    )

    def __init__(self, service: bytes, body: bytes) -> None:
        self.service = service
        self.body = body  # in wire form
        self.identity = b""  # the client's id of the request
        self.job = ""  # the id of the job, chosen by the process that relays the request; empty: a new one
        self.attempts = 0  # 0: as the service's policy says
        self.run = 0.0  # seconds that an attempt may take; 0: no limit
        self.ttl = 0.0  # seconds until the job expires; 0: never
        self.headers = ""
        self.trace = ""
        self.principal = ""
        self.group = ""
        self.near = ""

    def to_message(self) -> Body:
        header: Row = {"service": self.service.decode("utf-8", "surrogateescape")}
        if self.identity:
            header["identity"] = self.identity.hex()
        if self.job:
            header["job"] = self.job
        if self.attempts:
            header["attempts"] = self.attempts
        for name, seconds in (("run_us", self.run), ("ttl_us", self.ttl)):
            if seconds:
                header[name] = max(1, round(seconds * 1e6))
        texts = (("headers", self.headers), ("trace", self.trace), ("group", self.group), ("near", self.near))
        for name, text in texts:
            if text:
                header[name] = text
        return answer_body(header, self.body)


def order_of(header: Row, body: bytes) -> DurableOrder:
    """The order in a message to ``polydomo.accept``. Raises SettingError."""
    name = read_octets(header, "service", MAX_SERVICE_NAME)
    order = DurableOrder(name, body)
    try:
        order.identity = bytes.fromhex(read_text(header, "identity", 1024))
    except ValueError:
        raise SettingError("identity: must be hexadecimal") from None
    order.job = read_text(header, "job", ID_LENGTH)
    if order.job and not is_id(order.job):
        raise SettingError("job: not the id of a job")
    order.attempts = read_count(header, "attempts", 1_000_000)
    order.run = read_duration(header, "run_us")
    order.ttl = read_duration(header, "ttl_us")
    order.headers = read_text(header, "headers", 1 << 20)
    order.trace = read_text(header, "trace", 1024)
    order.group, order.near = read_mark(header, "group"), read_mark(header, "near")
    return order


def order_for(request: Request, deadline: float, options: RequestOptions) -> DurableOrder:
    """The order of a request that a client has just sent. ``deadline`` is 0 for none."""
    session = request.session
    order = DurableOrder(request.service.name, bytes(request.body))
    order.identity = identity_of(options.key) if options.key else session.identity_of(request.ref)
    order.attempts = options.attempts
    order.run = options.max_run
    if deadline and not session.deadline_is_patience:
        order.ttl = max(0.001, deadline - request.accepted)
    order.headers, order.trace = session.facts_of(request.ref)
    order.principal = request.origin
    order.group = options.group.decode("utf-8", "surrogateescape")
    order.near = options.near.decode("utf-8", "surrogateescape")
    return order
