"""The inputs of the state machine of jobs: its settings, the interface to the broker, its counters, and a listener for events."""

from typing import Protocol

from polydomo.broker.flows.events import FlowEvent
from polydomo.broker.flows.flow import NodeEnd
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.job import Job
from polydomo.limits import MAX_JOB_BYTES, MAX_JOBS, MAX_MESSAGE
from polydomo.model.name_patterns import PatternMap
from polydomo.model.retry_policy import Backoff
from polydomo.native import mypyc_attr


class JobPolicy:
    """The settings of durable jobs."""

    def __init__(self) -> None:
        self.backoff = Backoff()  # default number of attempts
        self.backoffs: PatternMap[Backoff] = PatternMap({})  # attempts by service
        self.keep = 0.0  # how long a result is kept, in seconds
        self.keep_dead = 0.0
        self.repeat = 0.0  # how long a repeated ordinary request finds the first one's result, in seconds
        self.max_jobs = MAX_JOBS
        self.max_bytes = MAX_JOB_BYTES
        self.max_memory = 0  # of open jobs, in bytes; 0: no limit
        self.max_message = MAX_MESSAGE  # of the results that a node of a flow gets


class Runner(Protocol):
    """The interface to the broker."""

    def now(self) -> float:
        """Seconds since the epoch."""
        raise NotImplementedError

    def chance(self) -> float:
        """A random number from 0 to 1."""
        raise NotImplementedError

    def capacity(self, service: bytes) -> int:
        """How many jobs of the service the broker can have at a time; 0: no worker offers it."""
        raise NotImplementedError

    def start(self, job: Job) -> None:
        """Starts the next attempt. ``Jobs.attempt_ended`` is called afterwards, perhaps at once."""
        raise NotImplementedError

    def stop(self, job: Job) -> None:
        """Cancels a started attempt; ``attempt_ended`` is not called for it."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class JobLanes:
    """Limits of services (``broker.limiting``): jobs of one lane share a limit. Only as many jobs of a lane as may run at once are passed
    to the broker, so that those of other lanes pass."""

    def lane(self, job: Job) -> "tuple[bytes, int] | None":
        """The lane of a job, and how many of it may start at once; None if its service has no limits."""
        return None

    def parked(self, service: bytes) -> int:
        """Jobs that were passed to the broker and wait there for their limit: they use up no capacity."""
        return 0


class JobCounters:
    """Counters since startup."""

    def __init__(self) -> None:
        self.accepted = 0
        self.repeated = 0  # submissions of a job that already existed
        self.refused = 0
        self.done = 0
        self.dead = 0
        self.damaged = 0  # jobs whose stored data has changed on disk
        self.cancelled = 0
        self.retried = 0
        self.backoff = 0.0  # seconds between attempts
        self.started = 0  # attempts that were handed to the broker
        self.reopened = 0
        self.skipped = 0  # runs of schedules that were missed and left out
        self.fired = 0  # runs of schedules


@mypyc_attr(allow_interpreted_subclasses=True)
class JobListener:
    """Gets every event about jobs, for the journal. The base class ignores them."""

    def job_event(self, event: JobEvent) -> None: ...
    def flow_event(self, event: FlowEvent) -> None: ...
    def node_ended(self, end: NodeEnd) -> None: ...
