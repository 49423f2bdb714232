"""``polydomo tap``: prints the messages of a broker live."""

import asyncio
import json as json_text
from collections.abc import Callable
from typing import Annotated, Any

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import To
from polydomo.cli.common.render import clean, local
from polydomo.cli.inspect.logs import request_of
from polydomo.journal.quantities import size

Row = dict[str, Any]

OTHERS = ("dbp", "pub", "sub", "bridge")  # protocols without requests


def add_to(app: typer.Typer) -> None:
    app.command()(tap)


def tap(
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Only events of this service.")] = None,
    request: Annotated[
        str | None, typer.Option(metavar="REQUEST", help="Only events of this request, by its id or its number.")
    ] = None,
    peer: Annotated[str | None, typer.Option(metavar="TEXT", help="Only peers whose address contains this.")] = None,
    protocol: Annotated[
        str | None, typer.Option("--protocol", "-p", metavar="NAME", help="Only peers of this protocol.")
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(metavar="WORD", help="Only these events, such as final, failed or lost; repeatable."),
    ] = None,
    count: Annotated[int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Exit after N events.")] = None,
    to: To = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Follow the messages of a broker live, with the command names of their protocols.

    The broker sends at most a thousand events per second and reports how many it skipped. Payloads are shown only for services
    with the option `bodies`. The command reconnects when the broker restarts; press Ctrl-C to stop.

    **Examples**

    - `polydomo tap`
    - `polydomo tap --service resize --event failed --event requeued`
    - `polydomo tap --json | jq -c 'select(.size_bytes > 100000)'`
    """
    from polydomo.cli.common.exit_status import needs_broker, through_restarts
    from polydomo.errors import SettingError
    from polydomo.journal import schema
    from polydomo.protocols import registry

    unknown = sorted(set(event or ()) - set(schema.EVENTS))
    if unknown:
        raise SettingError(f"--event: must be one of {', '.join(schema.EVENTS)}, not {unknown[0]!r}")
    if protocol is not None:
        protocol = registry.ALIASES.get(protocol.lower(), protocol.lower())
        if protocol not in (*registry.names(), *OTHERS):
            raise SettingError(f"--protocol: {protocol!r} is not one of {', '.join((*registry.names(), *OTHERS))}")

    asked = request_of(request)

    def wanted(row: Row) -> bool:
        return (
            (service is None or row["service"] == service)
            and (not asked or asked in (row.get("request"), str(row.get("number"))))
            and (peer is None or peer in row.get("peer", ""))
            and (protocol is None or row.get("protocol") == protocol)
            and (not event or row["event"] in event)
        )

    url = options.address(to)
    with needs_broker(url):
        asyncio.run(through_restarts(TapFollower(url, service or "", wanted, count, json)))


class TapFollower:
    """Prints events, reconnecting as needed, until the count is reached."""

    def __init__(self, url: str, service: str, wanted: Callable[[Row], bool], count: int | None, json: bool) -> None:
        self.url = url
        self.service = service
        self.wanted = wanted
        self.count = count
        self.json = json
        self.shown = 0

    async def __call__(self) -> None:
        from polydomo.broker.reserved_names import TAP
        from polydomo.cli.common.exit_status import following
        from polydomo.client.subscriber import AsyncSubscriber
        from polydomo.journal.recording.tap import SKIPPED

        prefix = TAP + self.service.encode()
        async with AsyncSubscriber(self.url, prefix) as subscriber:
            following(self.url)
            async for _, message in subscriber:
                row = message.json()
                if row["event"] != SKIPPED and not self.wanted(row):
                    continue
                typer.echo(json_text.dumps(row) if self.json else line(row))
                self.shown += row["event"] != SKIPPED
                if self.count is not None and self.shown >= self.count:
                    return


def line(row: Row) -> str:
    """
    >>> line({"time": "1970-01-01T00:00:00.000000Z", "event": "skipped", "service": "", "skipped": 12})[-21:]
    '... 12 events skipped'

    A missed heartbeat is not a message:

    >>> late = {"event": "late", "protocol": "mdx", "worker": "w3", "service": "echo", "reason": "a beat was missed"}
    >>> line({**late, "time": "1970-01-01T00:00:00.000000Z"})[14:]
    '  w3 mdx      -          late         echo a beat was missed'
    """
    from polydomo.journal.reading import message_names
    from polydomo.journal.recording.tap import SKIPPED

    when = local(row["time"])
    stamp = f"{when:%H:%M:%S}.{when.microsecond // 1000:03d}"
    event = row["event"]
    if event == SKIPPED:
        return f"{stamp}  ... {row['skipped']} events skipped"
    protocol = row.get("protocol", "")
    word = message_names.name_of(protocol, event) if event in message_names.MESSAGES else ""
    arrow = "  " if not word else "->" if event in message_names.FROM_BROKER else "<-"
    who = row.get("worker") or row.get("connection") or "broker"
    parts = [stamp, f"{who:>5}", f"{protocol:5}", arrow, f"{word or '-':10}", f"{event:12}"]
    details = [row["service"], row.get("request") or (f"#{row['number']}" if row.get("number") else "")]
    if row.get("attempt", 0) > 1:
        details.append(f"attempt {row['attempt']}")
    if word and event not in ("registered", "left", "late", "granted"):
        details.append(size(row.get("size_bytes", 0)))
    details += [row.get("topic", ""), row.get("outcome", ""), row.get("reason", "")]
    if row.get("body"):
        details.append(repr(row["body"].encode("latin-1"))[:120])
    if event in ("connected", "disconnected", "registered", "violated"):
        details.append(row.get("peer", ""))
    return clean(" ".join([*parts, " ".join(part for part in details if part)]))
