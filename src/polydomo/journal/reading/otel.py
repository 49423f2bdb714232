"""Exports finished requests as OpenTelemetry spans, from the journal's rows, with the standard SDK.

Each request is a span from acceptance to its end, a child of its trace context if it has one, with one child span for the wait and one for
the run of its last worker. The broker is not involved: rows are read from closed segments.
"""

import time
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags, Tracer

from polydomo.errors import PolydomoError
from polydomo.journal.context import parse
from polydomo.model.outcomes import OK

Row = dict[str, Any]

BATCH = 512  # spans that an exporter is given at a time, as the SDK's own processor does
AGAIN = 2.0  # seconds until rejected spans are sent again


class ExportFailed(PolydomoError):
    """The exporter rejected spans."""


class Batches(SpanProcessor):
    """Sends spans to ``exporter`` and waits for it. The SDK's processor drops spans that arrive faster than they are exported, which is not
    necessary for rows on disk. ``patient``: rejected spans are retried; otherwise it raises ExportFailed."""

    def __init__(self, exporter: SpanExporter, patient: bool = False) -> None:
        self.exporter = exporter
        self.patient = patient
        self._waiting: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        self._waiting.append(span)
        if len(self._waiting) >= BATCH:
            self.force_flush()

    def force_flush(self, timeout_millis: int = 0) -> bool:
        batch, self._waiting = self._waiting, []
        while batch and self.exporter.export(batch) is not SpanExportResult.SUCCESS:
            if not self.patient:
                raise ExportFailed(f"{len(batch)} spans were rejected")
            time.sleep(AGAIN)
        return True

    def shutdown(self) -> None:
        self.force_flush()
        self.exporter.shutdown()


def provider(exporter: SpanExporter, patient: bool = False) -> TracerProvider:
    """A provider that sends every span to ``exporter``, in batches; call ``shutdown`` at the end."""
    made = TracerProvider(resource=Resource.create({"service.name": "polydomo"}), shutdown_on_exit=False)
    made.add_span_processor(Batches(exporter, patient))
    return made


def export(rows: Iterable[Row], tracer: Tracer) -> int:
    """A span for each row of ``requests``; returns how many."""
    count = 0
    for row in rows:
        _span(row, tracer)
        count += 1
    return count


def _span(row: Row, tracer: Tracer) -> None:
    attributes = {
        "messaging.system": "polydomo",
        "messaging.destination.name": row["service"],
        "messaging.message.id": row["request"],
        "messaging.message.body.size": row["request_bytes"],
        "polydomo.broker": row["broker"],
        "polydomo.outcome": row["outcome"],
        "polydomo.attempts": row["dispatches"],
        "polydomo.hops": row["hops"],
        "polydomo.client.protocol": row["client_protocol"],
        "polydomo.worker.protocol": row["worker_protocol"],
        "polydomo.reply.size": row["reply_bytes"],
        "network.peer.address": row["client_peer"],
    }
    span = tracer.start_span(
        f"request {row['service']}", _parent(row), SpanKind.SERVER, attributes, start_time=_nanoseconds(row["accepted"])
    )
    inside = trace.set_span_in_context(span)
    first = row["first_dispatched"] or row["time"]
    if row["wait_us"]:
        waiting = tracer.start_span("wait", inside, start_time=_nanoseconds(row["accepted"]))
        waiting.end(_nanoseconds(first))
    if row["dispatched"] is not None:
        work = tracer.start_span(
            f"work {row['last_service']}", inside, SpanKind.CLIENT, start_time=_nanoseconds(row["dispatched"])
        )
        work.set_attribute("network.peer.address", row["worker_peer"])
        if row["first_partial"] is not None:
            work.add_event("first partial", timestamp=_nanoseconds(row["first_partial"]))
        work.end(_nanoseconds(row["time"]))
    if row["outcome"] != OK:
        span.set_status(Status(StatusCode.ERROR, f"{row['outcome']}: {row['reason']}"))
    span.end(_nanoseconds(row["time"]))


def _parent(row: Row) -> Any:
    context = parse(row["trace"]) if row["trace"] else None
    if context is None:
        return trace.set_span_in_context(trace.INVALID_SPAN)
    remote = SpanContext(context.trace_id, context.span_id, is_remote=True, trace_flags=TraceFlags(context.flags))
    return trace.set_span_in_context(NonRecordingSpan(remote))


def _nanoseconds(time: datetime) -> int:
    return round(time.timestamp() * 1e6) * 1000
