"""Trace context from where a request carries it, and requests as spans."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from polydomo.journal import context, schema
from polydomo.journal.reading import otel
from polydomo.journal.schema import REQUESTS
from polydomo.protocols.emqp.headers import route
from polydomo.protocols.emqp.session import EmqpRef
from polydomo.wire.frames import join, more
from tests.broker.rig import Peer
from tests.journal.stage import journalled

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def row(**values: Any) -> dict[str, Any]:
    usual = {
        "time": START + timedelta(seconds=3),
        "accepted": START,
        "first_dispatched": START + timedelta(seconds=1),
        "dispatched": START + timedelta(seconds=2),
        "wait_us": 1_000_000,
        "service": "resize",
        "last_service": "resize",
        "request": "01M7FASHP2YYXW4X5800000002",
        "outcome": "ok",
        "dispatches": 2,
    }
    return schema.row(REQUESTS, **{**usual, **values})


def spans(*rows: dict[str, Any]) -> list[Any]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    assert otel.export(rows, provider.get_tracer("test")) == len(rows)
    return list(exporter.get_finished_spans())


def test_every_span_is_exported_for_any_number_of_spans() -> None:
    exporter = InMemorySpanExporter()
    provider = otel.provider(exporter)
    many = 3000  # the SDK's own processor begins to drop them with 2048
    assert otel.export([row()] * many, provider.get_tracer("test")) == many
    provider.shutdown()
    assert sum(span.name == "request resize" for span in exporter.get_finished_spans()) == many


class Moody(InMemorySpanExporter):
    """Refuses this many times."""

    def __init__(self, refusals: int) -> None:
        super().__init__()
        self.refusals = refusals

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self.refusals:
            self.refusals -= 1
            return SpanExportResult.FAILURE
        return super().export(spans)


def test_rejected_spans_are_reported_or_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel, "AGAIN", 0.0)
    provider = otel.provider(Moody(1))
    otel.export([row()], provider.get_tracer("test"))
    with pytest.raises(otel.ExportFailed, match="3 spans were rejected"):
        provider.force_flush()
    moody = Moody(3)
    provider = otel.provider(moody, patient=True)
    otel.export([row()], provider.get_tracer("test"))
    provider.force_flush()
    assert len(moody.get_finished_spans()) == 3


def test_a_request_is_a_span_with_its_wait_and_its_work() -> None:
    wait, work, request = spans(row(first_partial=START + timedelta(seconds=2.5)))
    assert [span.name for span in (wait, work, request)] == ["wait", "work resize", "request resize"]
    assert request.kind == SpanKind.SERVER and request.parent is None
    assert wait.parent.span_id == work.parent.span_id == request.context.span_id
    begin = int(START.timestamp()) * 1_000_000_000
    second = 1_000_000_000
    assert (request.start_time, request.end_time) == (begin, begin + 3 * second)
    assert (wait.end_time, work.start_time) == (begin + second, begin + 2 * second)
    assert [event.name for event in work.events] == ["first partial"]
    assert request.attributes["messaging.message.id"] == "01M7FASHP2YYXW4X5800000002"
    assert request.status.status_code == StatusCode.UNSET


def test_a_context_is_continued() -> None:
    request = spans(row(trace=TRACE))[-1]
    assert f"{request.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{request.parent.span_id:016x}" == "b7ad6b7169203331" and request.parent.is_remote


def test_an_invalid_trace_context_is_ignored() -> None:
    assert spans(row(trace="00-nonsense"))[-1].parent is None


def test_a_failure_is_an_error() -> None:
    (request,) = spans(
        row(outcome="no-worker", reason="nobody came", first_dispatched=None, dispatched=None, wait_us=0)
    )
    assert request.status.status_code == StatusCode.ERROR and request.status.description == "no-worker: nobody came"


NO_PARENT = TRACE.replace("b7ad6b7169203331", "0" * 16)


@pytest.mark.parametrize("text", ["", "00", TRACE + "0", TRACE.replace("-", ":"), "ff" + TRACE[2:], NO_PARENT])
def test_not_a_context(text: str) -> None:
    assert context.parse(text) is None


# --- on the way through the broker -------------------------------------------------------------------------------------------


def recorded(protocol: str, body: bytes, ref: object, trace_parts: bool = False) -> str:
    world, recorder = journalled(trace_parts=trace_parts)
    client, worker = Peer(world, protocol), world.worker()
    world.broker.request(client, b"echo", body, ref)
    worker.answer()
    (found,) = [row for row in recorder.rows() if "event" not in row]
    return str(found["trace"])


def test_emqp_has_it_in_its_headers() -> None:
    header = f"reply-requested,traceparent:{TRACE}".encode()
    assert recorded("emqp", join([b"x"]), EmqpRef(b"id", route(more([b"echo", header])), False)) == TRACE
    assert recorded("emqp", join([b"x"]), EmqpRef(b"id", route(more([b"echo", b"reply-requested"])), False)) == ""
    assert TRACE.encode() in route(more([b"echo", header])).framed  # and an eMQP worker gets it


@pytest.mark.parametrize("on", [True, False])
def test_dcp_and_mdx_have_it_in_a_part_if_that_is_agreed(on: bool) -> None:
    part = f"traceparent:{TRACE}".encode()
    wanted = TRACE if on else ""
    assert recorded("dcp", join([b"x"]), more([b"other", part]), on) == wanted
    assert recorded("mdx", join([part, b"x"]), b"ref", on) == wanted
    assert recorded("mdx", join([b"x", part]), b"ref", on) == ""  # only the first frame is it
    assert recorded("dcp", join([b"x"]), more([b"other"]), on) == ""
