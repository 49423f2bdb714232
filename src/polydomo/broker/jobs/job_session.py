"""The internal client that sends the attempts of durable jobs, and the listener that passes their events to the recorder."""

from collections.abc import Callable

from polydomo.broker.flows.events import FlowEvent
from polydomo.broker.flows.flow import NodeEnd
from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.policy import JobListener
from polydomo.broker.observe.tallies import DURABLE
from polydomo.broker.state import State
from polydomo.model import principals
from polydomo.model.broker_api import BrokerApi
from polydomo.model.detached_link import InternalLink
from polydomo.model.jobs.facts import JobFacts
from polydomo.model.outcomes import OK
from polydomo.model.records import Request
from polydomo.model.session import ProtocolSession
from polydomo.wire.frames import Body
from polydomo.wire.link import Hub, LinkHandler


class JobSession(ProtocolSession):
    """The client on whose behalf jobs run. ``Request.ref`` is the job."""

    protocol = "job"
    windowed = True
    is_internal = True
    keeps_parts = True
    principal = principals.JOBS
    origin_is_principal = False

    def __init__(self, api: BrokerApi) -> None:
        super().__init__(api, InternalLink(Hub(), LinkHandler(), "the job store"))
        self.on_due: Callable[[Request], None] | None = None
        self.on_partial: Callable[[Request, Body], None] | None = None
        self.on_progress: Callable[[Request, float, str], None] | None = None
        self.counted_as = ""  # each attempt as ``counts_as`` says
        self.may_request = False  # every request passes ``admission.resolve``, which sets the number of the attempt
        self.ended: list[tuple[Request, str, str, Body]] = []  # attempts, and how they ended, in this turn

    def origin_of(self, request: Request) -> str:
        return request.ref.principal if isinstance(request.ref, Job) else ""

    def counts_as(self, request: Request) -> str:
        """An attempt of the job of a client's durable request stands for that request."""
        job = request.ref
        return DURABLE if isinstance(job, Job) and job.origin == states.REQUEST else self.protocol

    def send_partial(self, request: Request, body: Body) -> None:
        if self.on_partial is not None:
            self.on_partial(request, body)

    def send_progress(self, request: Request, share: float, text: str) -> None:
        if self.on_progress is not None:
            self.on_progress(request, share, text)

    def send_final(self, request: Request, body: Body) -> None:
        self.ended.append((request, OK, "", body))

    def send_failure(self, request: Request, code: str, text: str) -> None:
        self.ended.append((request, code, text, b""))

    def job_of(self, request: Request) -> JobFacts | None:
        job = request.ref
        if not isinstance(job, Job):
            return None
        return JobFacts(job.id, job.key if job.origin != states.REQUEST else "", job.headers, job.trace)

    def on_timer(self, key: object) -> None:
        if isinstance(key, Request) and self.on_due is not None:
            self.on_due(key)


class Recording(JobListener):
    """Passes job events to the broker's current recorder."""

    def __init__(self, state: State) -> None:
        self._state = state

    def job_event(self, event: JobEvent) -> None:
        self._state.recorder.job(event)

    def flow_event(self, event: FlowEvent) -> None:
        self._state.recorder.flow(event)

    def node_ended(self, end: NodeEnd) -> None:
        self._state.recorder.node_ended(end)
