"""Flows over HTTP: ``/v1/flows``. Each request is passed to the built-in services of flows, with the same permissions.

``POST /v1/flows`` takes a flow in JSON, as ``model.flows.flow_file`` describes it. It has the size of a control message; larger flows are
sent by the libraries, in parts.
"""

import json
from typing import Final

from polydomo.errors import SettingError
from polydomo.limits import MAX_JOB_KEY, MAX_RESULT_WAIT, RESULT_POLL
from polydomo.model.flows.flow import Flow, FlowPart
from polydomo.model.flows.flow_file import read_flow
from polydomo.model.jobs.messages import Row, body_of, read_message
from polydomo.model.records import Request
from polydomo.web.call import duration
from polydomo.web.content import EVENTS, JSON, OCTETS, PROBLEM, choose, event
from polydomo.web.jobs import OFFERED, JobExchange, ResultExchange, ask, selection
from polydomo.web.session import Endpoint, HttpSession
from polydomo.wire.frames import Body
from polydomo.wire.http.head import HttpError, RequestHead

STORING: Final = "storing"
ENDED: Final = ("done", "failed", "cancelled")


class StartExchange(JobExchange):
    """Sends a flow part by part, then answers 201 with its location; 200 if the key is that of a flow that exists."""

    def __init__(self, session: HttpSession, flow: Flow, key: str) -> None:
        super().__init__(session)
        self.flow = flow
        self.key = key
        self.parts: list[FlowPart] = list(flow.parts())
        self.sent = -1  # parts; -1: the flow has not begun
        self.opening = False

    def begin(self) -> None:
        flow = self.flow
        header: Row = {
            "name": flow.name, "total": len(flow), "edges": flow.edges, "services": flow.services(), "on_failure": flow.on_failure,
            "fingerprint": flow.fingerprint(),
        }  # fmt: skip
        if self.key:
            header["key"] = self.key
        content = b""
        if len(self.parts) == 1:
            header["nodes"], header["open"] = self.parts[0].nodes, True
            content = body_of(self.parts[0].frames)
        ask(self.session, "flow.start", header, self, content)

    def answered(self, request: Request, header: Row, content: bytes) -> None:
        if header.get("state") != STORING or self.opening:
            status = 200 if header.get("repeated") else 201
            self.session.reply_json(status, header, f"Location: /v1/flows/{header['flow']}\r\n".encode())
            return
        self.sent += 1
        if self.sent < len(self.parts):
            part = self.parts[self.sent]
            row: Row = {"flow": header["flow"], "first": part.first, "nodes": part.nodes}
            ask(self.session, "flow.start", row, self, body_of(part.frames))
        else:
            self.opening = True
            ask(self.session, "flow.start", {"flow": header["flow"], "open": True}, self)


class FollowExchange(JobExchange):
    """Server-sent events: a ``step`` for each node that has ended, then ``end`` with the flow."""

    def __init__(self, session: HttpSession, id: str, after: int) -> None:
        super().__init__(session)
        self.id = id
        self.after = after
        self.started = False

    def look(self) -> None:
        header: Row = {"flow": self.id, "after": self.after, "wait_us": round(RESULT_POLL * 1e6)}
        ask(self.session, "flow.steps", header, self)

    def final(self, request: Request, body: Body) -> None:
        header, _ = read_message(body)
        http = self.session.http
        if "error" in header:
            if self.started:
                http.write(event("error", header))
                http.finish()
            else:
                self.refused(header)
            return
        if not self.started:
            self.started = True
            self.session.start(200, EVENTS)
        steps, after, position = header.pop("steps"), header.pop("next"), header["position"]
        assert isinstance(steps, list) and isinstance(after, int) and isinstance(position, int)
        for step in steps:
            http.write(event("step", step))
        self.after = after
        if header["state"] in ENDED and after >= position:
            http.write(event("end", header))
            http.finish()
            return
        if not steps:
            http.write(b": waiting\n\n")
        self.look()


class FlowsEndpoint(Endpoint):
    """``/v1/flows``, ``/v1/flows/{id}``, and below it ``cancel``, ``retry`` and ``result/{node}``."""

    methods: "tuple[str, ...]" = ("GET", "HEAD", "POST", "DELETE")

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        path = [] if path == [""] else path
        if head.method == "POST":
            self._post(session, head, path, body)
        elif head.method == "DELETE":
            if len(path) != 1:
                raise HttpError(405, "DELETE /v1/flows/ID removes a flow that has ended", close=False)
            ask(session, "flow.remove", {"flow": path[0]}, JobExchange(session))
        elif not path:
            ask(session, "flow.list", selection(head.parameters()), JobExchange(session, "flows"))
        elif len(path) == 1:
            self._show(session, head, path[0])
        elif path[1] == "result" and len(path) > 2:
            wait = min(duration(head.parameters().get("wait", "0"), "wait"), MAX_RESULT_WAIT)
            media = choose(head.headers.get("accept", ""), OFFERED) or OCTETS
            header: Row = {"flow": path[0], "node": "/".join(path[2:]), "wait_us": round(wait * 1e6)}
            ask(session, "flow.result", header, ResultExchange(session, media))
        else:
            raise HttpError(404, "below a flow there are /cancel, /retry and /result/NODE", close=False)

    def _post(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        if len(path) == 2 and path[1] in ("cancel", "retry"):
            ask(session, f"flow.{path[1]}", {"flow": path[0]}, JobExchange(session))
            return
        if path:
            raise HttpError(
                404, "POST /v1/flows starts a flow; /v1/flows/ID/cancel and /v1/flows/ID/retry change one", close=False
            )
        key = head.headers.get("idempotency-key", "")
        if len(key) > MAX_JOB_KEY:
            raise HttpError(400, f"Idempotency-Key has {len(key)} characters; the limit is {MAX_JOB_KEY}", close=False)
        try:
            given = json.loads(body)
            if isinstance(given, dict) and isinstance(given.get("key"), str):
                key = key or given["key"]
            flow = read_flow(given)
        except SettingError as error:
            raise HttpError(400, str(error), close=False) from None
        except (ValueError, RecursionError):
            raise HttpError(400, "the body must be a flow in JSON", close=False) from None
        StartExchange(session, flow, key).begin()

    def _show(self, session: HttpSession, head: RequestHead, id: str) -> None:
        parameters = head.parameters()
        if choose(head.headers.get("accept", ""), (JSON, EVENTS)) == EVENTS:
            FollowExchange(session, id, _number(head.headers.get("last-event-id", ""), "Last-Event-ID")).look()
            return
        header: Row = {"flow": id, "first": _number(parameters.get("first", ""), "first")}
        if parameters.get("edges") == "true":
            header["edges"] = True
        ask(session, "flow.show", header, JobExchange(session))


def _number(text: str, name: str) -> int:
    if text and (not (text.isascii() and text.isdigit()) or len(text) > 9):
        raise HttpError(400, f"{name} must be a number", close=False)
    return int(text or "0")


def _operation(summary: str, answers: "dict[str, str]") -> Row:
    problem: Row = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    described: Row = {
        status: {"description": text, "content": problem if status >= "400" else {JSON: {"schema": {"type": "object"}}}}
        for status, text in answers.items()
    }
    return {"summary": summary, "responses": described}


_ID: Final[list[Row]] = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
_GONE: Final = {"404": "There is no such flow."}

PATHS: Final[dict[str, Row]] = {
    "/v1/flows": {
        "get": _operation("Lists flows, the newest first.", {"200": "Flows."}),
        "post": {
            **_operation(
                "Starts a flow.",
                {
                    "201": "It is stored.",
                    "200": "A flow with this key exists.",
                    "400": "The flow is not valid.",
                    "422": "Another flow has this key.",
                },
            ),
            "requestBody": {"required": True, "content": {JSON: {"schema": {"type": "object"}}}},
        },
    },
    "/v1/flows/{id}": {
        "parameters": _ID,
        "get": _operation(
            "Shows a flow and its nodes; as text/event-stream, follows it.", {"200": "The flow.", **_GONE}
        ),
        "delete": _operation("Removes a flow that has ended.", {"200": "It is removed.", **_GONE}),
    },
    "/v1/flows/{id}/cancel": {"parameters": _ID, "post": _operation("Cancels a flow.", {"200": "The flow.", **_GONE})},
    "/v1/flows/{id}/retry": {
        "parameters": _ID,
        "post": _operation("Runs what failed in a flow again.", {"200": "The flow.", **_GONE}),
    },
}
