"""What the broker serves over HTTP: which endpoint at which path. docs/http.md describes them."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from polydomo.protocols.http_call import CallEndpoint
from polydomo.protocols.http_inspect import PAGES, InspectEndpoint, QueryEndpoint, SchemaEndpoint
from polydomo.protocols.http_mcp import McpEndpoint
from polydomo.protocols.http_memo import CidEndpoint, HeadEndpoint, MemoCallEndpoint, MemoWorkerEndpoint, MemoWorkers
from polydomo.protocols.http_openapi import OpenApiEndpoint
from polydomo.protocols.http_pages import FileEndpoint, RenderedEndpoint
from polydomo.protocols.http_session import Site
from polydomo.protocols.http_work import HttpWorkers, ReplyEndpoint, WorkEndpoint
from polydomo.protocols.memo_service import MemoService
from polydomo.protocols.websocket_session import WebSocketEndpoint
from polydomo.server.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from polydomo.server.server import BrokerServer

WEB = Path(__file__).parent / "web"

PLAIN = "text/plain; charset=utf-8"


def build_site(server: "BrokerServer") -> Site:
    """The site of a broker."""
    broker = server.broker
    site = Site(broker)
    site.hosts = frozenset(name.lower() for name in [*server.settings.http.hosts, *own_names(server)])
    site.origins = frozenset(server.settings.http.origins)
    workers = HttpWorkers(broker)
    broker.schemas.declare(server.settings.http.tools)
    site.mount("/v1/call", CallEndpoint())
    site.mount("/v1/work", WorkEndpoint(workers))
    site.mount("/v1/reply", ReplyEndpoint(workers))
    site.mount("/v1/ws", WebSocketEndpoint())
    site.mount("/mcp", McpEndpoint(lambda session: broker.schemas.all()))
    site.mount("/openapi.json", OpenApiEndpoint(lambda session: broker.schemas.all()))
    site.mount("/v1/schema", SchemaEndpoint(b"polydomo.schema"))
    memo = MemoService(broker, server.memo_store)
    memo_workers = MemoWorkers(broker, memo)
    site.mount("/cid", CidEndpoint(memo))
    site.mount("/head", HeadEndpoint(memo))
    site.mount("/call", MemoCallEndpoint(memo, memo_workers))
    site.mount("/worker", MemoWorkerEndpoint(memo, memo_workers))
    for page in PAGES:
        site.mount(f"/v1/{page}", InspectEndpoint(b"polydomo." + page.encode()))
    site.mount("/v1/logs", QueryEndpoint(b"polydomo.logs"))
    for name in ("polydomo.js", "polydomo.d.ts"):
        site.mount(f"/v1/{name}", FileEndpoint(name, (WEB / name).read_bytes(), shared=True))
    site.mount("/metrics", RenderedEndpoint(lambda: (200, CONTENT_TYPE, server.metrics.get())))
    site.mount("/healthz", RenderedEndpoint(lambda: health(server)))
    return site


def own_names(server: "BrokerServer") -> list[str]:
    """Names that the listeners were given."""
    hosts = (urlsplit(url).hostname for url in server.settings.listen)
    return [host for host in hosts if host]


def health(server: "BrokerServer") -> tuple[int, str, bytes]:
    server.health.asked()
    return (503, PLAIN, b"stopping\n") if server.broker.draining else (200, PLAIN, b"ok\n")
