"""Pages: static files of the broker's web directory, redirects, and pages that a function renders."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final

from polydomo.web.content import TEXT
from polydomo.web.session import Endpoint, HttpSession
from polydomo.wire.http.head import HttpError, RequestHead

# Pages load nothing from other sites, run no inline script, and cannot be framed.
PAGE_HEADERS: Final = (
    b"Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    b"connect-src 'self' ws: wss:; font-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'\r\n"
    b"X-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\nCross-Origin-Opener-Policy: same-origin\r\n"
)

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "ts": "text/plain; charset=utf-8",
    "json": "application/json",
}


class FileEndpoint(Endpoint):
    """One file, in memory."""

    def __init__(self, name: str, content: bytes, shared: bool = False) -> None:
        self.type = TYPES.get(name.rpartition(".")[2], TEXT)
        self.content = content
        self.tag = f'"{blake2b(content, digest_size=16).hexdigest()}"'
        # pages of the origins in http.origins may import a module; Access-Control-Allow-Origin is added to every response
        more = b"Cross-Origin-Resource-Policy: cross-origin\r\n" if shared else b""
        self.headers = PAGE_HEADERS + b"Cache-Control: no-cache\r\n" + f"ETag: {self.tag}\r\n".encode() + more

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if path not in ([], [""]):
            raise HttpError(404, f"nothing is served at {head.path[:200]}; see docs/http.md", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        if self.tag in head.headers.get("if-none-match", ""):
            session.respond(304, self.headers)
        else:
            session.reply(200, self.type, self.content, self.headers)


class RedirectEndpoint(Endpoint):
    """Redirects the browser to another path of this broker."""

    public = True

    def __init__(self, target: str) -> None:
        self.headers = b"Location: %b\r\nCache-Control: no-cache\r\n" % target.encode("ascii")

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if path not in ([], [""]):
            raise HttpError(404, f"nothing is served at {head.path[:200]}; see docs/http.md", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        session.respond(302, self.headers)


class RenderedEndpoint(Endpoint):
    """A page that a function renders for each request, from the query: (status, content type, content)."""

    def __init__(self, render: "Callable[[str], tuple[int, str, bytes]]") -> None:
        self.render = render

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if path not in ([], [""]):
            raise HttpError(404, f"nothing is served at {head.path[:200]}; see docs/http.md", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        status, content_type, content = self.render(head.query)
        session.reply(status, content_type, content, b"Cache-Control: no-store\r\n")
