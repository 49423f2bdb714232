"""``polydomo spans``: exports finished requests as OpenTelemetry spans."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.common.options import To
from polydomo.cli.journal import search
from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.journal.files.segments import Ranges
    from polydomo.journal.reading.reader import Reader

POLL = 2.0  # seconds between checks for new segments


def add_to(app: typer.Typer) -> None:
    app.command()(spans)


def spans(
    journal: search.Directory = None,
    to: To = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Start this long ago, such as 10m.  [default: the whole journal]")
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Send the spans to a collector with OTLP over HTTP instead of printing them."),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Keep exporting new requests until Ctrl-C.")] = False,
) -> None:
    """Export the requests of the journal as spans, with the OpenTelemetry SDK.

    A request that carries a W3C trace context continues that trace: in eMQP the header `traceparent`; in MDX and DCP the trace part,
    if the broker's setting `journal.trace_parts` is on.

    **Examples**

    - `polydomo spans --since 10m`
    - `polydomo spans --follow --otlp http://127.0.0.1:4318/v1/traces`
    """
    try:
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        from polydomo.journal.reading import otel
    except ImportError:
        raise SettingError("spans need OpenTelemetry's SDK (pip install 'polydomo[otel]')") from None
    exporter: Any = (
        _otlp(otlp) if otlp else ConsoleSpanExporter(formatter=lambda span: str(span.to_json(indent=None)) + "\n")
    )
    provider = otel.provider(exporter, patient=follow)
    tracer = provider.get_tracer("polydomo")
    back = search.seconds("--since", since)
    found = search.find(journal, to)
    taken: dict[tuple[str, int], Ranges] = {}
    count = 0
    try:
        while True:
            count += otel.export(fresh(found.reader, taken, back), tracer)
            provider.force_flush()
            search.print_problems(found.reader)
            found.reader.problems.clear()
            if not follow:
                break
            time.sleep(POLL)
    except otel.ExportFailed as error:
        raise otel.ExportFailed(f"{otlp}: {error}") from None
    finally:
        provider.shutdown()
    if otlp:
        typer.echo(f"polydomo: {count} requests sent to {otlp}", err=True)


def fresh(reader: "Reader", taken: "dict[tuple[str, int], Ranges]", back: float | None) -> list[dict[str, Any]]:
    """Reads the rows that have not been read yet. ``taken`` holds the sequence numbers already read, by hour and run."""
    from polydomo.journal import schema
    from polydomo.journal.files.segments import Ranges
    from polydomo.journal.reading.reader import moment

    begin = moment(time.time() - back) if back is not None else None
    rows: list[dict[str, Any]] = []
    for segment in reader.find(schema.REQUESTS, begin):
        known = taken.setdefault((segment.hour, segment.run), Ranges())
        if known.covers(*segment.range):
            continue
        table = reader.read(segment, schema.REQUESTS)
        if table is not None:
            rows += [
                row
                for row in table.to_pylist()
                if (begin is None or row["time"] >= begin) and not known.covers(row["seq"], row["seq"])
            ]
        known.add(*segment.range)
    return rows


def _otlp(url: str) -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise SettingError("--otlp needs an exporter (pip install opentelemetry-exporter-otlp-proto-http)") from None
    return OTLPSpanExporter(endpoint=url)
