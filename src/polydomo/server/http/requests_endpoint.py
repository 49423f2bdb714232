"""``GET /v1/requests`` and ``GET /v1/requests/{id}``: the open requests, and the story of one request.

An open request is described from the broker's state. A finished one is looked up in the journal, in a thread, after rows in memory have
been written.
"""

import asyncio

from polydomo.broker.guard.rules import INSPECT
from polydomo.broker.observe import inspection
from polydomo.broker.requests import open_requests
from polydomo.errors import SettingError
from polydomo.server import logs
from polydomo.server.host import Find, Host, Row
from polydomo.server.logs import trouble
from polydomo.web.inspect import InspectEndpoint
from polydomo.web.session import HttpSession, Poll
from polydomo.wire.http.head import HttpError, RequestHead

LOG = logs.get("server")


class JournalPoll(Poll):
    """A response that waits for the journal."""

    def __init__(self, session: HttpSession) -> None:
        self.session: HttpSession | None = session

    def abandoned(self) -> None:
        self.session = None

    def end(self, server: Host, answer: object, status: int, code: str, text: str) -> None:
        """Sends the answer, or the problem if there is none; nothing if the client has left."""
        session = self.session
        if session is None:
            return
        server.wake()
        session.carried = None
        if answer is not None:
            session.reply_json(200, answer)
        else:
            session.problem(status, code, text)


class RequestsEndpoint(InspectEndpoint):
    def __init__(self, server: Host) -> None:
        super().__init__(b"polydomo.requests")
        self.right = (INSPECT, "polydomo.requests")
        self.server = server
        self._tasks: set[asyncio.Task[None]] = set()

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if len(path) > 1:
            raise HttpError(404, "a request has no sub-resources", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        if path in ([], [""]):
            super().serve(session, head, path, body)
            return
        live = self._open(path[0])
        if live is not None:
            session.reply_json(200, live)
            return
        find = self.server.find_story
        if find is None:
            raise HttpError(
                404, "no open request has this id, and the broker keeps no journal of finished requests", close=False
            )
        poll = JournalPoll(session)
        session.carried = poll
        task = self.server.loop.create_task(self._look_up(poll, find, path[0]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _open(self, name: str) -> Row | None:
        broker = self.server.broker
        request = open_requests.find(broker, name)
        return inspection.request_row(broker, request) if request is not None else None

    async def _look_up(self, poll: JournalPoll, find: Find, name: str) -> None:
        status, code, text, answer = 404, "not-found", "the journal has no request with this id", None
        try:
            answer = await find(name)
        except SettingError as error:
            status, code, text = 400, "bad-request", str(error)
        except Exception:
            trouble(LOG, "internal error", during="reading the journal for a story")
            status, code, text = 500, "error", "the journal could not be read; see the broker's log"
        poll.end(self.server, answer, status, code, text)
