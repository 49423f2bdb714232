"""The HTTP endpoints of the broker and their paths. docs/http.md describes them."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from polydomo.broker.broker import Broker
from polydomo.broker.builtin.service import NAME, NOTHING, QUERY
from polydomo.broker.guard.access import ADMIN, CALL, INSPECT, SUBSCRIBE, TAP
from polydomo.errors import AccessDenied
from polydomo.limits import LOGIN_SESSION_TIME
from polydomo.model.service_schema import ServiceSchema
from polydomo.server.access.access import digest_of
from polydomo.server.connections.connection import Connection
from polydomo.server.host import Host
from polydomo.server.http.finished_endpoint import FinishedEndpoint
from polydomo.server.http.metrics_endpoint import MetricsEndpoint
from polydomo.server.http.requests_endpoint import RequestsEndpoint
from polydomo.web.api import HttpApi
from polydomo.web.inspect import InspectEndpoint, NamedEndpoint, QueryEndpoint
from polydomo.web.login import LoginEndpoint, cookie_of
from polydomo.web.pages import FileEndpoint, RedirectEndpoint, RenderedEndpoint
from polydomo.web.session import HttpSession, Site
from polydomo.wire.http.head import HttpError, RequestHead

WEB = Path(__file__).parents[1] / "web"


PLAIN = "text/plain; charset=utf-8"


def build_site(server: Host, render_metrics: Callable[[], bytes]) -> Site:
    """The HTTP endpoints of a broker."""
    broker = server.broker
    site = Site(broker)
    site.hosts = frozenset(name.lower() for name in [*server.settings.http.hosts, *own_names(server)])
    site.origins = frozenset(server.settings.http.origins)
    broker.schemas.declare(server.settings.http.tools)
    api = HttpApi(broker, server.memo_store)
    broker.memory.book("memo", server.memo_store.memory)
    broker.memory.book("idempotency", api.idempotency.memory)
    api.mount(
        site,
        broker.schemas.encoding_of,
        lambda session: callable_by(server, session),
        broker.schemas.media_of,
        lambda session, name: schema_for(server, session, name),
    )
    mount_pages(site, broker)
    site.mount("/v1/requests", RequestsEndpoint(server))
    site.mount("/v1/finished", FinishedEndpoint(server))
    site.mount(
        "/v1/session",
        LoginEndpoint(
            broker.logins.redeem, broker.logins.end, LOGIN_SESSION_TIME, lambda name: dashboard_rights(server, name)
        ),
    )
    for name in ("polydomo.js", "polydomo.d.ts"):
        module = FileEndpoint(name, (WEB / name).read_bytes(), shared=True)
        module.public = True  # a page cannot send credentials when it imports a module; its calls are checked
        site.mount(f"/v1/{name}", module)
    for path in sorted((WEB / "ui").rglob("*")):
        if path.is_file():
            name = path.relative_to(WEB).as_posix()
            file = FileEndpoint(name, path.read_bytes())
            file.public = True  # the page itself contains no data; its API requests are checked
            site.mount("/" if path.name == "index.html" else f"/{name}", file)
    for shortcut in ("/try", "/docs"):
        site.mount(shortcut, RedirectEndpoint("/#/try"))
    metrics = MetricsEndpoint(server.broker, render_metrics)
    metrics.right = (INSPECT, "metrics")
    site.mount("/metrics", metrics)
    healthz = RenderedEndpoint(lambda query: health(server, query))
    healthz.public = True  # load balancers have no credentials; the answer shows only that the broker runs
    site.mount("/healthz", healthz)
    if server.access is not None:
        site.identify = lambda session, head: identify(server, session, head)
    return site


def mount_pages(site: Site, broker: Broker) -> None:
    """The pages of built-in services."""
    lists = {one.path: one.name for one in broker.builtin.by_name.values() if one.path and one.takes == NOTHING}
    for service in broker.builtin.by_name.values():
        if service.takes == NAME:
            site.mount(service.path, NamedEndpoint(service.name, lists.pop(service.path, b"")))
        elif service.takes == QUERY:
            site.mount(service.path, QueryEndpoint(service.name))
    for path, name in lists.items():
        site.mount(path, InspectEndpoint(name))


def identify(server: Host, session: HttpSession, head: RequestHead) -> str:
    """The principal of the bearer token, of the session cookie, or, if the request has neither, of the connection. "" if there is none, or
    the credential is invalid."""
    connection: Connection = session.link.owner
    identity = connection.identity
    if identity is None:
        return ""
    proof = identity.proof
    scheme, _, token = head.headers.get("authorization", "").partition(" ")
    if scheme:
        if scheme.lower() != "bearer" or identity.by_token(token.strip()) is None:
            server.denied("token")
            return ""
        proof = ("token", digest_of(token.strip()))
    else:
        logged_in = server.broker.logins.principal(cookie_of(head))
        if logged_in in identity.access.file.rules.principals:
            proof = ("login", logged_in)
    name = identity.access.lookup(proof, identity.origin)
    if name is None:
        return ""
    if not connection.principal:
        try:
            identity.access.admit(name)
        except AccessDenied as error:
            raise HttpError(503, str(error), close=False) from None
        connection.known_as(name)
    identity.counted = proof  # a reload checks it; the next request must send its own
    return name


def dashboard_rights(server: Host, principal: str) -> "dict[str, object]":
    """The principal of a browser, and which of the rights that the dashboard uses it has. Its own session needs no right."""
    allows = server.broker.access.allows
    return {
        "principal": principal,
        "inspect": allows(principal, INSPECT, "polydomo.figures"),
        "tap": allows(principal, TAP, "monitor.figures"),
        "subscribe": allows(principal, SUBSCRIBE, "log."),
        "admin": allows(principal, ADMIN, "polydomo.pause"),
    }


def callable_by(server: Host, session: HttpSession) -> "dict[str, ServiceSchema]":
    """The schemas of the services that a client may call."""
    found = server.broker.schemas.all()
    rules = server.broker.access.rules
    if not session.principal or rules is None:
        return found
    return {name: schema for name, schema in found.items() if rules.allows(session.principal, CALL, name)}


def schema_for(server: Host, session: HttpSession, name: str) -> "ServiceSchema | None":
    """The schema of one service, if the client may call it."""
    rules = server.broker.access.rules
    if session.principal and rules is not None and not rules.allows(session.principal, CALL, name):
        return None
    return server.broker.schemas.find(name.encode("utf-8", "replace"))


def own_names(server: Host) -> list[str]:
    """Host names of the listeners."""
    hosts = (urlsplit(url).hostname for url in server.settings.listen)
    return [host for host in hosts if host]


def health(server: Host, query: str) -> tuple[int, str, bytes]:
    """``?leader`` is for a load balancer in front of brokers that share a job store: only the leader is healthy."""
    server.health.asked()
    if query == "leader" and (server.job_store is None or not server.job_store.leads):
        return 503, PLAIN, b"not leading\n"
    return (503, PLAIN, b"stopping\n") if server.broker.draining else (200, PLAIN, b"ok\n")
