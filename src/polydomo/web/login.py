"""``/v1/session``: a browser exchanges the one-time code of ``polydomo open`` for a session cookie, asks who it is, or ends its session."""

from collections.abc import Callable
from typing import Final

from polydomo.web.session import Endpoint, HttpSession
from polydomo.wire.http.head import HttpError, RequestHead

COOKIE: Final = "polydomo"


class LoginEndpoint(Endpoint):
    methods: "tuple[str, ...]" = ("GET", "POST", "DELETE")
    public = True

    def __init__(
        self,
        redeem: "Callable[[str], str]",
        end: "Callable[[str], None]",
        seconds: float,
        describe: "Callable[[str], dict[str, object]]",
    ) -> None:
        self.redeem = redeem
        self.end = end
        self.seconds = seconds
        self.describe = describe  # what a principal may do with the dashboard

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        if head.method == "GET":
            identify = session.site.identify
            principal = identify(session, head) if identify is not None else ""
            if identify is not None and not principal:
                raise HttpError(401, "credentials are required; run `polydomo open`", close=False)
            session.reply_json(200, self.describe(principal))
            return
        if head.method == "DELETE":
            self.end(cookie_of(head))
            session.respond(204, _set_cookie("", 0))
            return
        cookie = self.redeem(body.decode("ascii", "replace").strip()) if len(body) <= 256 else ""
        if not cookie:
            raise HttpError(401, "the code was used or has expired; run `polydomo open` again", close=False)
        session.respond(204, _set_cookie(cookie, int(self.seconds)))


def cookie_of(head: RequestHead) -> str:
    """The session cookie of a request; "" if it has none."""
    for part in head.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _set_cookie(value: str, seconds: int) -> bytes:
    """Scripts cannot read it, and no other site can make the browser send it."""
    return f"Set-Cookie: {COOKIE}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict\r\n".encode()
