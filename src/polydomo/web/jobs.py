"""Durable jobs over HTTP: ``/v1/jobs``, ``/v1/dead``, ``/v1/schedules``, and calls with ``Prefer: respond-async``.

Each is a request to one of the built-in job services (``broker/jobs/services.py``), with the same permissions.
"""

from typing import Final

from polydomo.errors import SettingError
from polydomo.limits import MAX_RESULT_WAIT, SUBMIT_PART
from polydomo.model.job_messages import Row, body_of, read_header, read_message, write_message
from polydomo.model.outcomes import KEY_REUSED
from polydomo.model.records import Request
from polydomo.web.call import NO_STORE, CallPlan, duration, fail
from polydomo.web.content import (
    FRAMES_JSON,
    JSON,
    LINES,
    MULTIPART,
    OCTETS,
    TEXT,
    body_from_json,
    choose,
    dump,
    response_body,
)
from polydomo.web.session import Endpoint, Exchange, HttpSession, problem_headers
from polydomo.wire.frames import Body, frame, split
from polydomo.wire.http.head import HttpError, RequestHead

OFFERED: Final = (OCTETS, TEXT, MULTIPART, JSON, FRAMES_JSON)
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
    """``/v1/jobs`` (with POST: new jobs), ``/v1/jobs/{id}`` and ``/v1/jobs/{id}/result``."""

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
        elif path[1:] == ["result"] and head.method != "DELETE":
            wait = min(duration(parameters.get("wait", "0"), "wait"), MAX_RESULT_WAIT)
            media = choose(head.headers.get("accept", ""), OFFERED) or OCTETS
            ask(session, "result", {"job": path[0], "wait_us": round(wait * 1e6)}, ResultExchange(session, media))
        else:
            raise HttpError(404, "below a job there is only /result", close=False)


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
