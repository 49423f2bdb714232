"""Durable jobs over HTTP: ``/v1/jobs``, ``/v1/dead``, ``/v1/schedules``, and calls with ``Prefer: respond-async``.

Each is a request to one of the built-in job services (``broker/jobs/services.py``), with the same permissions.
"""

from typing import Final

from polydomo.errors import SettingError
from polydomo.limits import HTTP_STREAM_CHECK, MAX_RESULT_WAIT, MAX_SERVICE_NAME, RESULT_POLL, SUBMIT_PART
from polydomo.model.jobs.messages import Row, body_of, read_header, read_message, write_message
from polydomo.model.outcomes import KEY_REUSED
from polydomo.model.progress import progress_row
from polydomo.model.records import Request
from polydomo.web.call import NO_STORE, CallPlan, duration, fail
from polydomo.web.content import (
    EVENTS,
    FRAMES_JSON,
    JSON,
    LINES,
    MULTIPART,
    OCTETS,
    TEXT,
    body_from_json,
    choose,
    dump,
    event,
    frames_json,
    response_body,
)
from polydomo.web.content import line as json_line
from polydomo.web.session import Endpoint, Exchange, HttpSession, Poll, problem_headers
from polydomo.wire.frames import Body, frame, join, split
from polydomo.wire.http.head import HttpError, RequestHead
from polydomo.wire.link import PAUSE_NOT_READING

OFFERED: Final = (OCTETS, TEXT, MULTIPART, JSON, FRAMES_JSON)
STREAMS: Final = (EVENTS, LINES)
DONE: Final = "done"
PENDING: Final = "pending"

STATUS: Final = {"not-found": 404, "denied": 403, "no-store": 404, "invalid": 400, "bad-request": 400, KEY_REUSED: 422}


class JobExchange(Exchange):
    """An answer of a job service: its header as JSON, or the part of it that ``part`` names."""

    def __init__(self, session: HttpSession, part: str = "", status: int = 200) -> None:
        self.session = session
        self.part = part
        self.status = status

    def final(self, request: Request, body: Body) -> None:
        header, content = read_message(body)
        if "error" in header and header["error"] != PENDING:
            self.refused(header)
        else:
            self.answered(request, header, content)

    def answered(self, request: Request, header: Row, content: bytes) -> None:
        self.session.reply_json(self.status, header.get(self.part, []) if self.part else header)

    def refused(self, header: Row) -> None:
        code = str(header["error"])
        status = STATUS.get(code, 503)
        self.session.problem(status, code, str(header.get("text", "")), problem_headers(status))

    def failure(self, request: Request, code: str, text: str) -> None:
        fail(self.session, request, code, text)


class SubmitExchange(JobExchange):
    """The answer to a call with ``Prefer: respond-async``: 202 and the job's location."""

    def answered(self, request: Request, header: Row, content: bytes) -> None:
        location = f"Location: /v1/jobs/{header.get('job', '')}\r\nPreference-Applied: respond-async\r\n"
        self.session.reply_json(202, header, location.encode())


class ResultExchange(JobExchange):
    """The result of a job: the worker's reply, or how else the job ended."""

    def __init__(self, session: HttpSession, media: str) -> None:
        super().__init__(session)
        self.media = media

    def answered(self, request: Request, header: Row, content: bytes) -> None:
        session = self.session
        if header.get("error") == PENDING:
            session.reply_json(202, {name: value for name, value in header.items() if name not in ("error", "text")})
        elif header.get("state") == DONE:
            content_type, found = response_body(self.media, content, session.broker.random_bytes)
            session.reply(200, content_type, found, NO_STORE)
        else:
            outcome = str(header.get("outcome") or header.get("state"))
            status = 410 if header.get("state") == "cancelled" else 502
            reason = str(header.get("reason", ""))
            session.problem(status, outcome, reason, service=header.get("service"), job=header.get("job"))


class JobStream(Poll):
    """``/v1/jobs/{id}/stream``: the partial replies of a job as they are stored, and the rest of its result, as events. Each answer of
    ``polydomo.stream`` is one step. The next one is asked for when the client reads."""

    def __init__(self, session: HttpSession, id: str, after: str, media: str) -> None:
        self.session = session
        self.id = id
        self.after = after
        self.media = media
        self.started = False
        session.carried = self

    def follow(self) -> None:
        ask(self.session, "stream", {"job": self.id, "after": self.after, "wait_us": round(RESULT_POLL * 1e6)}, self)

    def on_poll_over(self) -> None:
        if self.session.http.pauses & PAUSE_NOT_READING:
            self.session.broker.set_timer(HTTP_STREAM_CHECK, self.session, self)
        else:
            self.follow()

    def progress(self, request: Request, share: float, text: str) -> None:
        self._start()
        self._write("progress", progress_row(share, text))

    def final(self, request: Request, body: Body) -> None:
        session = self.session
        header, content = read_message(body)
        if "error" in header:
            if self.started:
                self._end("failure", {"error": header["error"], "text": header.get("text")})
            else:
                session.carried = None
                JobExchange(session).refused(header)
            return
        self.after = str(header.get("next", ""))
        last = header.get("final")
        parts = header.get("parts")
        if not isinstance(last, dict) and "outcome" in header and header.get("state") == DONE and not self.started:
            session.carried = None
            session.respond(204, b"")  # an EventSource with all events does not connect again
            return
        self._start()
        frames = split(content) if content else []
        for part in parts if isinstance(parts, list) else []:
            size = int(part["frames"])
            self._part(b"partial", part, frames[:size])
            del frames[:size]
        if isinstance(last, dict):
            self._part(b"final", last, frames)
            self._finish()
        elif "outcome" in header:
            if header.get("state") == DONE:
                self._finish()
            else:
                known = {name: header.get(name) for name in ("job", "state", "outcome", "reason")}
                self._end("failure", known)
        else:
            if not parts and self.media == EVENTS:
                session.http.write(b":\n\n")  # a comment: the connection is alive
            session.broker.set_timer(0.0, session, self)

    def failure(self, request: Request, code: str, text: str) -> None:
        if self.started:
            self._end("failure", {"error": code, "text": text})
        else:
            self.session.carried = None
            fail(self.session, request, code, text)

    def _start(self) -> None:
        if not self.started:
            self.started = True
            self.session.start(200, self.media)

    def _part(self, name: bytes, row: Row, frames: "list[bytes]") -> None:
        id = f"{row['attempt']}.{row['number']}".encode()
        known = f'"attempt":{row["attempt"]},"number":{row["number"]},"frames":'.encode()
        body = join(frames) if frames else b""
        if self.media == EVENTS:
            pieces = frames_json(body, b"id: %b\nevent: %b\ndata: {%b" % (id, name, known), b"}\n\n")
        else:
            pieces = frames_json(body, b'{"event":"%b","id":"%b",%b' % (name, id, known), b"}\n")
        while pieces:
            self.session.http.write(pieces.pop())

    def _write(self, name: str, value: Row) -> None:
        self.session.http.write(event(name, value) if self.media == EVENTS else json_line(name, value))

    def _end(self, name: str, value: Row) -> None:
        self._start()
        self._write(name, value)
        self._finish()

    def _finish(self) -> None:
        self.session.carried = None
        self.session.http.finish()


def ask(session: HttpSession, service: str, header: Row, exchange: Exchange, content: bytes = b"") -> None:
    (line,) = write_message(header)
    session.ask(b"polydomo." + service.encode(), frame(line, bool(content)) + content, exchange)


def submit(session: HttpSession, service: bytes, body: bytes, plan: CallPlan) -> None:
    """``Prefer: respond-async``: the call becomes a durable job."""
    header: Row = {"service": service.decode("utf-8", "surrogateescape")}
    if plan.key:
        header["key"] = plan.key
    if plan.timeout:
        header["timeout_us"] = round(plan.timeout * 1e6)
    for name, value in (("group", plan.group), ("near", plan.near)):
        if value:
            header[name] = value.decode()
    exchange = SubmitExchange(session)
    exchange.trace = plan.trace
    ask(session, "submit", header, exchange, body or body_of([]))


def submit_lines(session: HttpSession, body: bytes) -> None:
    """``POST /v1/jobs``: a job on each line. Raises HttpError."""
    rows: list[Row] = []
    bodies: list[bytes] = []
    for number, line in enumerate(body.splitlines(), 1):
        if line.strip():
            try:
                row, frames = read_line(line)
            except (ValueError, SettingError, RecursionError) as error:
                raise HttpError(400, f"line {number}: {error}", close=False) from None
            rows.append(row)
            bodies += frames
    if not rows:
        raise HttpError(400, "the body has no jobs; send a JSON object on each line", close=False)
    if len(rows) > SUBMIT_PART:
        raise HttpError(
            413, f"{len(rows):,} jobs; the limit of one request is {SUBMIT_PART:,} (SUBMIT_PART)", close=False
        )
    ask(session, "submit.many", {"jobs": rows}, ManyExchange(session), frame(b"".join(bodies), False))


def read_line(line: bytes) -> "tuple[Row, list[bytes]]":
    """A job as ``polydomo.submit.many`` takes it, and its frames. Raises ValueError and SettingError."""
    row = read_header(line)
    given = [name for name in ("frames", "args") if name in row]
    if len(given) != 1:
        raise ValueError("give the body as `frames`, a list, or the named arguments as `args`, an object")
    if given == ["args"]:
        arguments = row.pop("args")
        if not isinstance(arguments, dict):
            raise ValueError("args must be an object")
        frames = [dump(arguments)]
    else:
        frames = split(body_from_json(row.pop("frames"))) or [b""]
    row["sizes"] = [len(one) for one in frames]
    return row, frames


class ManyExchange(JobExchange):
    """The answer to ``POST /v1/jobs``: 202, and a line for each job in the same order."""

    def answered(self, request: Request, header: Row, content: bytes) -> None:
        jobs, repeated, failed = header["jobs"], header["repeated"], header["failed"]
        assert isinstance(jobs, list) and isinstance(repeated, list) and isinstance(failed, list)
        known = set(repeated)
        rows: list[Row] = [{"job": id, "repeated": number in known} for number, id in enumerate(jobs)]
        for number, code, text in failed:
            rows[number] = {"error": code, "text": text}
        self.session.reply(202, LINES, b"".join([dump(row) + b"\n" for row in rows]))


class JobsEndpoint(Endpoint):
    """``/v1/jobs`` (with POST: new jobs), ``/v1/jobs/{id}`` and ``/result`` and ``/stream`` below it."""

    methods: "tuple[str, ...]" = ("GET", "HEAD", "POST", "DELETE")

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        parameters = head.parameters()
        if head.method == "POST":
            if path not in ([], [""]):
                raise HttpError(405, "POST /v1/jobs submits jobs", close=False)
            submit_lines(session, body)
        elif path in ([], [""]):
            if head.method == "DELETE":
                raise HttpError(405, "DELETE /v1/jobs/ID cancels a job", close=False)
            whole = parameters.get("page", "") == "1"  # with the counts of all states
            ask(session, "jobs", selection(parameters), JobExchange(session, "" if whole else "jobs"))
        elif len(path) == 1:
            what = "cancel" if head.method == "DELETE" else "job"
            ask(session, what, {"job": path[0]}, JobExchange(session))
        elif path[1:] == ["stream"] or (path[1:] == ["result"] and media_of(head, (OCTETS, *STREAMS)) in STREAMS):
            if head.method != "GET":
                raise HttpError(405, f"{head.method} is not allowed for a stream; use GET", close=False)
            after = head.headers.get("last-event-id", parameters.get("after", ""))
            media = media_of(head, STREAMS) or EVENTS
            JobStream(session, path[0], after[:MAX_SERVICE_NAME], media).follow()
        elif path[1:] == ["result"] and head.method != "DELETE":
            wait = min(duration(parameters.get("wait", "0"), "wait"), MAX_RESULT_WAIT)
            media = choose(head.headers.get("accept", ""), OFFERED) or OCTETS
            ask(session, "result", {"job": path[0], "wait_us": round(wait * 1e6)}, ResultExchange(session, media))
        else:
            raise HttpError(404, "below a job there are only /result and /stream", close=False)


def media_of(head: RequestHead, offered: "tuple[str, ...]") -> str:
    return choose(head.headers.get("accept", ""), offered)


class DeadEndpoint(Endpoint):
    """``/v1/dead``: dead letters."""

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        ask(session, "jobs", {**selection(head.parameters()), "state": "dead"}, JobExchange(session, "jobs"))


class SchedulesEndpoint(Endpoint):
    """``/v1/schedules`` and ``/v1/schedules/{name}``."""

    def serve(self, session: HttpSession, head: RequestHead, path: "list[str]", body: bytes) -> None:
        name = "/".join(path)
        if name:
            ask(session, "schedules", {"name": name}, JobExchange(session, "schedule"))
            return
        ask(session, "schedules", {}, JobExchange(session, "schedules"))


def selection(parameters: "dict[str, str]") -> Row:
    header: Row = {name: parameters[name] for name in ("state", "service") if name in parameters}
    limit = parameters.get("limit", "")
    if limit:
        if not (limit.isascii() and limit.isdigit()) or len(limit) > 6:
            raise HttpError(400, "limit must be a number", close=False)
        header["limit"] = int(limit)
    return header
