"""A job: a request that is stored until it has an outcome. Its result is stored for some time after that."""

import hashlib
from typing import Final

from polydomo.limits import JOB_STORY
from polydomo.model.json_form import compact, iso_time, microseconds, parse
from polydomo.model.retry_policy import Backoff, backoff_of

Row = dict[str, object]

# States as stored. An open job is delayed, queued or running; only the leader knows which.
OPEN: Final = "open"
DONE: Final = "done"
DEAD: Final = "dead"
CANCELLED: Final = "cancelled"
STATES = (OPEN, DONE, DEAD, CANCELLED)
ENDED = (DONE, DEAD, CANCELLED)

# phases of an open job
DELAYED: Final = "delayed"
QUEUED: Final = "queued"
RUNNING: Final = "running"
RECORDING: Final = "recording"

# Where a job came from.
SUBMITTED: Final = "job"  # ``polydomo.submit``
REQUEST: Final = "request"  # an ordinary request to a durable service, or eMQP's ``guarantee``
TITANIC: Final = "titanic"  # ``titanic.request``
SCHEDULED: Final = "schedule"
FLOW: Final = "flow"  # a node of a flow

DAMAGED: Final = "damaged"  # the outcome of a job whose stored data has changed on disk

REOPENED: Final = "reopened"  # in the history of a dead job: it was retried by an operator


class Job:
    """One job. Times are seconds since the epoch, because they outlive the process."""

    __slots__ = (
        "allowed", "attempts", "backoff", "body", "body_sum", "created", "damage", "digest", "due", "ended", "expires", "fingerprint",
        "fired", "flow", "group", "headers", "id", "input", "keep", "key", "lane", "level", "near", "needs", "node", "node_name", "origin",
        "outcome", "phase", "position", "principal", "priority", "progress", "reason", "result", "reuse", "reused", "run", "schedule",
        "sequence", "service", "since", "started", "state",
        "stored_settings", "story", "streamed", "template", "trace", "waited", "worker",
    )  # fmt: skip

    def __init__(self, id: str, service: bytes, body: bytes, created: float) -> None:
        self.id = id  # 26 characters, globally unique
        self.service = service
        self.body = body  # encoded with framing
        self.key = ""  # idempotency key; "" is none. It belongs to a principal and a service: see ``scoped_key``
        self.fingerprint = ""  # of the body of a job with a key: the body itself is removed when the job is done
        self.origin = SUBMITTED
        self.digest = b""  # digest of an ordinary request without a key, to find it when it is repeated
        self.priority = 0  # higher first
        self.created = created
        self.due = created  # earliest start
        self.expires = 0.0  # 0 is never
        self.run = 0.0  # timeout of one attempt in seconds; 0: none
        self.backoff: Backoff | None = None  # None: the service's
        self.principal = ""  # its origin: the principal whose right each attempt needs; empty without access control
        self.headers = ""  # headers of the request (eMQP), for the worker
        self.trace = ""  # W3C trace context of the request, for the worker
        self.group = ""  # the marks of its requests (``RequestOptions``)
        self.near = ""
        self.attempts = 0  # attempts started so far
        self.state = OPEN
        self.outcome = ""  # after the end: ``ok`` or the outcome of the last attempt
        self.reason = ""
        self.result = b""
        self.ended = 0.0
        self.keep = 0.0  # removed after this time; 0: never
        self.story: list[Row] = []  # failed attempts, the newest last
        self.schedule = ""  # the schedule that submitted it, and the planned time
        self.fired = 0.0
        self.flow = ""  # the flow of which it is a node, and the number of the node
        self.node = 0
        self.node_name = ""
        self.needs = ""  # the numbers of the nodes that it needs (``model.flows.needs``), for the journal
        self.level = 0  # how many answers with more work led to the node
        self.template = False  # the body names nodes whose results the worker gets: ``flows.inputs`` puts them in
        self.reuse = False  # the stored reply to an equal request is its result, if there is one
        # set by the store
        self.stored_settings: str | None = None  # the text of ``settings`` as stored
        self.body_sum = -1  # checksum of the body; -1: not computed yet
        self.damage = ""  # why the stored job cannot be used: then it is dead, without body and result
        self.streamed = 0  # the last attempt with stored partial replies, if the job is open (``part``)
        self.position = 0  # of its release, then of its end, in its flow, and ``since``: see ``flows.events``; 0 if they are not known
        self.since = 0
        # in memory only, while this broker is the leader
        self.allowed = 0  # whether its principal may call the service, by the access file when it was submitted: 1 yes, 2 no, 0 unknown
        self.phase = DELAYED
        self.sequence = 0  # order of acceptance
        self.started = 0.0
        self.worker = ""  # the worker that runs it
        self.reused = False  # the last attempt was answered from the memo store
        self.progress: Row | None = None  # of the running attempt, as its worker reported it
        self.lane: bytes | None = None  # in which it was passed to the broker, if its service has limits
        self.waited = 0.0  # seconds between attempts, since it was submitted or reopened
        self.input: bytes | None = (
            None  # of a template: the body with the results in place, from its release or start to the end of the attempt; then the flow
            # that its worker answered with, until that is stored
        )

    def tell(self, attempt: Row) -> None:
        """Adds an attempt to the history. The oldest ones are dropped if there are too many; the last reopening is kept."""
        self.story.append(attempt)
        if len(self.story) > JOB_STORY:
            last = max((i for i, row in enumerate(self.story) if row.get("outcome") == REOPENED), default=-1)
            del self.story[1 if last == 0 else 0]

    def failed_attempt(self, now: float, code: str, reason: str) -> Row:
        """The entry in the history for the attempt that has just failed."""
        return {
            "attempt": self.attempts,
            "started": iso_time(self.started),
            "ended": iso_time(now),
            "worker": self.worker,
            "outcome": code,
            "reason": reason,
            "waited_us": microseconds(self.waited),
        }

    def reopened(self) -> str:
        """When the job was last reopened; "" if it never was."""
        for row in reversed(self.story):
            if row.get("outcome") == REOPENED:
                return str(row["started"])
        return ""

    def restore_waits(self) -> None:
        """Sets ``waited`` from the history, where each attempt has the sum so far."""
        waited = self.story[-1].get("waited_us", 0) if self.story else 0
        self.waited = waited / 1e6 if isinstance(waited, int) else 0.0

    def condemn(self, damage: str) -> None:
        """Marks the job as dead because its stored data is damaged. None of that data is used."""
        self.damage = self.reason = damage
        self.state, self.outcome = DEAD, DAMAGED
        self.body = self.result = b""
        self.body_sum = 0

    def settings(self) -> str:
        """The fields that are stored as one JSON text, because they are never searched."""
        kept: Row = {}
        if self.run:
            kept["run_us"] = round(self.run * 1e6)
        if self.backoff is not None:
            kept["retries"] = self.backoff.to_json()
        for name, value in (
            ("principal", self.principal),
            ("headers", self.headers),
            ("trace", self.trace),
            ("fingerprint", self.fingerprint),
            ("group", self.group),
            ("near", self.near),
        ):
            if value:
                kept[name] = value
        if self.flow:
            kept["flow"], kept["node"] = self.flow, self.node
            if self.template:
                kept["template"] = True
            if self.reuse:
                kept["reuse"] = True
            if self.level:
                kept["level"] = self.level
            if self.node_name:
                kept["name"] = self.node_name
            if self.needs:
                kept["needs"] = self.needs
        return compact(kept) if kept else ""

    def configure(self, text: str) -> None:
        """Parses the text that ``settings`` produced."""
        if text:
            kept = parse(text)
            self.run = kept.get("run_us", 0) / 1e6
            self.backoff = backoff_of(kept["retries"]) if "retries" in kept else None
            self.principal = kept.get("principal", "")
            self.headers = kept.get("headers", "")
            self.trace = kept.get("trace", "")
            self.fingerprint = kept.get("fingerprint", "")
            self.group = kept.get("group", "")
            self.near = kept.get("near", "")
            self.flow = kept.get("flow", "")
            self.node = kept.get("node", 0)
            self.template = kept.get("template", False)
            self.reuse = kept.get("reuse", False)
            self.level = kept.get("level", 0)
            self.node_name = kept.get("name", "")
            self.needs = kept.get("needs", "")

    def scoped_key(self) -> str:
        """The key with its owner and its service, as it is stored; "" without a key."""
        return scoped_key(self.principal, self.service, self.key) if self.key else ""

    def set_key(self, key: str) -> None:
        """Gives a new job its key. The principal is set before."""
        self.key = key
        self.fingerprint = hashlib.sha256(self.body).hexdigest()[:32] if key else ""

    def adopt(self, principal: str) -> bool:
        """Gives a job without a principal that of the operator who retries it. The job loses its key, which had no owner."""
        if self.principal or not principal:
            return False
        self.principal, self.key, self.fingerprint, self.stored_settings = principal, "", "", None
        return True

    def repeats(self, first: "Job") -> bool:
        """Whether this job is the same submission as a stored one with the same id or key."""
        if first.damage:  # it was found by its id or key; what else is left of it cannot be compared
            return first.principal in ("", self.principal)
        if self.principal != first.principal or self.service != first.service:
            return False
        if self.fingerprint and first.fingerprint:
            return self.fingerprint == first.fingerprint
        return not first.body or self.body == first.body


def scoped_key(principal: str, service: bytes, key: str) -> str:
    """
    >>> scoped_key("alice", b"echo", "7"), key_within(scoped_key("alice", b"echo", "7"))
    ('5,4:aliceecho7', '7')
    """
    name = service.decode(errors="backslashreplace")
    return f"{len(principal)},{len(name)}:{principal}{name}{key}"


def key_within(scoped: str) -> str:
    """The key without its owner and its service; unchanged if it has none, as in stores that are not upgraded yet."""
    sizes, colon, rest = scoped.partition(":")
    principal, _, service = sizes.partition(",")
    if not colon or not principal.isdigit() or not service.isdigit():
        return scoped
    return rest[int(principal) + int(service) :]


def reopening(when: str) -> Row:
    """The entry in the history of a reopened job."""
    return {"attempt": 0, "started": when, "ended": when, "worker": "", "outcome": REOPENED, "reason": ""}


def story_text(story: "list[Row]") -> str:
    return compact(story) if story else ""


def story_of(text: str) -> "list[Row]":
    return parse(text) if text else []
