"""``GET /v1/finished``: finished requests, from the journal. It is searched in a thread, so that the broker serves on meanwhile."""

import asyncio

from polydomo.broker.guard.rules import INSPECT
from polydomo.errors import SettingError
from polydomo.limits import FINISHED_SEARCHES
from polydomo.server import logs
from polydomo.server.host import Host, Search
from polydomo.server.http.requests_endpoint import JournalPoll
from polydomo.server.logs import trouble
from polydomo.web.session import Endpoint, HttpSession, problem_headers
from polydomo.wire.http.head import HttpError, RequestHead

LOG = logs.get("server")


class FinishedEndpoint(Endpoint):
    def __init__(self, server: Host) -> None:
        self.right = (INSPECT, "polydomo.requests")
        self.server = server
        self._tasks: set[asyncio.Task[None]] = set()  # searches that run

    def check(self, session: HttpSession, head: RequestHead, path: "list[str]") -> None:
        if path not in ([], [""]):
            raise HttpError(404, "there is nothing below this path; GET /v1/requests/ID shows one request", close=False)

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        search = self.server.search_journal
        if search is None:
            raise HttpError(404, "the broker keeps no journal of finished requests", close=False)
        if len(self._tasks) >= FINISHED_SEARCHES:
            text = f"{FINISHED_SEARCHES} searches of the journal are running; try again"
            session.problem(503, "busy", text, problem_headers(503))
            return
        poll = JournalPoll(session)
        session.carried = poll
        task = self.server.loop.create_task(self._search(poll, search, head.parameters()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _search(self, poll: JournalPoll, search: Search, parameters: "dict[str, str]") -> None:
        status, code, text, answer = 200, "", "", None
        try:
            answer = await search(parameters)
        except SettingError as error:
            status, code, text = 400, "bad-request", str(error)
        except Exception:
            trouble(LOG, "internal error", during="searching the journal")
            status, code, text = 500, "error", "the journal could not be read; see the broker's log"
        poll.end(self.server, answer, status, code, text)
