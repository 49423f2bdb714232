"""The HTTP API of every broker: which endpoint serves which path. Endpoints that need a server are added by ``server/http/site.py``."""

from collections.abc import Callable

from polydomo.model.broker_api import BrokerApi
from polydomo.model.service_schema import ServiceSchema
from polydomo.protocols.memo.store_api import MemoValues
from polydomo.web.call import CallEndpoint
from polydomo.web.flows import FlowsEndpoint
from polydomo.web.idempotency import Idempotency
from polydomo.web.jobs import DeadEndpoint, JobsEndpoint, SchedulesEndpoint, submit
from polydomo.web.mcp import McpEndpoint
from polydomo.web.memodb.api import CidEndpoint, HeadEndpoint, MemoCallEndpoint, MemoWorkerEndpoint, MemoWorkers
from polydomo.web.memodb.calls import MemoService
from polydomo.web.openapi import OpenApiEndpoint
from polydomo.web.session import HttpSession, Site
from polydomo.web.sp_socket import SUFFIX, SpSocketEndpoint
from polydomo.web.websocket import WebSocketEndpoint
from polydomo.web.work import HttpWorkers, ReplyEndpoint, WorkEndpoint

Schemas = Callable[[HttpSession], "dict[str, ServiceSchema]"]  # of the services that a client may call


class HttpApi:
    """The endpoints of one broker."""

    def __init__(self, broker: BrokerApi, store: MemoValues) -> None:
        self.idempotency = Idempotency()
        self.workers = HttpWorkers(broker)
        self.memo = MemoService(broker, store)
        self.memo_workers = MemoWorkers(broker, self.memo)

    def mount(
        self,
        site: Site,
        encoding_of: "Callable[[bytes], str]",
        schemas: Schemas,
        media_of: "Callable[[bytes], tuple[str, ...]]" = lambda service: (),
        schema_of: "Callable[[HttpSession, str], ServiceSchema | None] | None" = None,
    ) -> None:
        """``schema_of``: one of ``schemas``, by name."""
        site.mount("/v1/call", CallEndpoint(encoding_of, submit, self.idempotency, media_of))
        site.mount("/v1/jobs", JobsEndpoint())
        site.mount("/v1/dead", DeadEndpoint())
        site.mount("/v1/schedules", SchedulesEndpoint())
        site.mount("/v1/flows", FlowsEndpoint())
        site.mount("/v1/work", WorkEndpoint(self.workers))
        site.mount("/v1/reply", ReplyEndpoint(self.workers))
        site.mount("/v1/ws", WebSocketEndpoint())
        site.upgrades[SUFFIX] = SpSocketEndpoint()
        site.mount("/mcp", McpEndpoint(schemas, schema_of or (lambda session, name: schemas(session).get(name))))
        site.mount("/openapi.json", OpenApiEndpoint(schemas))
        site.mount("/cid", CidEndpoint(self.memo))
        site.mount("/head", HeadEndpoint(self.memo))
        site.mount("/call", MemoCallEndpoint(self.memo, self.memo_workers))
        site.mount("/worker", MemoWorkerEndpoint(self.memo, self.memo_workers))
