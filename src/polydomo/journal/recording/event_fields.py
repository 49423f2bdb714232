"""The columns of infrequent events, from the objects that the broker passes to its recorder."""

from polydomo.broker.flows.events import FlowEvent
from polydomo.broker.flows.flow import NodeEnd
from polydomo.broker.jobs.events import JobEvent
from polydomo.broker.jobs.job import Job
from polydomo.broker.topics.logs import LogRecord
from polydomo.journal.recording.chunk import services_of
from polydomo.model.records import Request, Session, Worker

Fields = dict[str, int | str | bytes]


def of_request(request: Request) -> Fields:
    """A request that no worker holds."""
    return {
        "connection": request.session.number,
        "client": request.session.number,
        "service": request.service.name,
        "number": request.number,
    }


def of_lookup(request: Request, how: str) -> Fields:
    """A request for which the memo store was asked. If it is an attempt of a node, the row is about the node, too."""
    fields = of_request(request)
    fields["outcome"] = how
    job = request.ref
    if request.session.is_internal and isinstance(job, Job):
        fields["job"] = job.id
        if job.flow:
            fields.update(flow=job.flow, node=job.node, name=job.node_name)
    return fields


def of_denial(session: Session, principal: str, name: str, reason: str) -> Fields:
    return {
        "principal": principal,
        "connection": session.number,
        "client": session.number,
        "service": name.encode(errors="surrogateescape"),
        "outcome": "denied",
        "reason": reason,
    }


def of_registration(worker: Worker, is_known: bool) -> Fields:
    """``is_known``: the worker is registered already and adds a service."""
    return {
        "connection": worker.session.number,
        "worker": worker.number,
        "service": services_of(worker),
        "credit": 0 if is_known else worker.credit,
        "auto": 1 if worker.auto_credit else 0,
        "reason": "one more service" if is_known else "",
    }


def of_silence(worker: Worker, held: int, silence: float, allowed: float) -> Fields:
    """A worker that is late, left or was lost: how long it was silent, and how long it may be."""
    return {
        "connection": worker.session.number,
        "worker": worker.number,
        "service": services_of(worker),
        "size": held,
        "silence_us": max(0, round(silence * 1e6)),
        "allowed_us": round(allowed * 1e6),
    }


def of_job(event: JobEvent) -> Fields:
    fields: Fields = {
        "service": event.service,
        "attempt": event.attempts,
        "size": event.size,
        "outcome": event.what,
        "reason": event.reason,
        "principal": event.principal,
        "job": event.id,
        "key": event.key,
        "origin": event.origin,
        "schedule": event.schedule,
        "code": event.code,
        "wait_us": round(event.wait * 1e6),
        "created": round(event.created * 1e6),
        "once": event.once,
        "allowed": event.allowed,
    }
    if event.flow:
        fields.update(
            flow=event.flow,
            node=event.node,
            name=event.node_name,
            needs=event.needs,
            position=event.position,
            since=event.since,
            nodes=event.added,
        )
    return fields


def of_flow(event: FlowEvent) -> Fields:
    return {
        "outcome": event.what,
        "reason": event.reason,
        "principal": event.principal,
        "key": event.key,
        "created": round(event.created * 1e6),
        "flow": event.flow,
        "name": event.name,
        "position": event.position,
        "nodes": event.nodes,
    }


def of_node(end: NodeEnd) -> Fields:
    return {
        "outcome": end.state,
        "reason": end.reason,
        "flow": end.flow,
        "node": end.number,
        "name": end.name,
        "needs": end.needs,
        "position": end.position,
        "since": end.since,
    }


def of_log(session: Session, record: LogRecord) -> Fields:
    return {
        "connection": session.number,
        "number": record.request,
        "service": record.service.encode("utf-8", "backslashreplace"),
        "size": record.size,
        "outcome": record.level,
        "reason": record.message,
    }
