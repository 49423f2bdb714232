"""``services``, ``workers``, ``requests``, ``clients`` and ``status``: inspect a running broker.

The broker answers reserved services, as MMI does. These commands call them over MDP/0.1, which works whatever the settings of the
other protocols are.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import ANSWER_TIME, Json, Timeout, To
from polydomo.cli.common.reading import read, reader
from polydomo.cli.common.render import PrintedColumn, clock, latency, local, progress_text, show, show_json
from polydomo.cli.journal import search
from polydomo.journal.quantities import counted, size, span

Row = dict[str, Any]

Gone = Annotated[bool, typer.Option("--gone", help="List recently disconnected ones instead, with the reason.")]


def add_to(app: typer.Typer) -> None:
    app.command()(services)
    app.command()(workers)
    app.command()(requests)
    app.command()(clients)
    app.command()(status)


def services(to: To = None, gone: Gone = False, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """List the services with their workers, queues and counts.

    **Examples**

    - `polydomo services`
    - `polydomo services --gone`
    - `polydomo services --json | jq -r '.[] | select(.queued > 0) | .name'`
    """
    if gone:
        departed(to, "service", json, timeout)
        return
    listing(to, "services", json, timeout, SERVICES, service_cells)


def workers(to: To = None, gone: Gone = False, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """List the workers with protocol, services, state, failures and latency.

    **Examples**

    - `polydomo workers`
    - `polydomo workers --gone`
    - `polydomo workers --to tcp://127.0.0.1:6000 --json`
    """
    if gone:
        departed(to, "worker", json, timeout)
        return
    listing(to, "workers", json, timeout, WORKERS, worker_cells)


def requests(
    to: To = None,
    json: Json = False,
    timeout: Timeout = ANSWER_TIME,
    since: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show requests that finished within this time span, such as 10m."),
    ] = None,
    service: Annotated[str | None, typer.Option(metavar="NAME", help="Show finished requests of this service.")] = None,
    outcome: Annotated[
        str | None,
        typer.Option(
            metavar="WORD", help="Show finished requests with this outcome: ok, failed (any failure), timeout, ..."
        ),
    ] = None,
    slower: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Show finished requests that took at least this long, such as 500ms."),
    ] = None,
    client_id: Annotated[
        str | None,
        typer.Option(
            "--client-id",
            metavar="ID",
            help="Show finished requests to which their client gave this id: MDX's request id, eMQP's MSGID, DCP's metadata, HTTP's "
            "traceparent or its trace id.",
        ),
    ] = None,
    most: Annotated[int, typer.Option(metavar="N", min=1, help="Show at most the last N finished requests.")] = 100,
    journal: search.Directory = None,
) -> None:
    """List queued and running requests, and why they wait. With a filter, list finished requests instead.

    The list includes requests that a worker still runs although the client has disconnected (`abandoned`). Finished requests are
    read from the broker's journal; `polydomo trace` shows every step of one request.

    **Examples**

    - `polydomo requests`
    - `polydomo requests --since 10m --service resize --outcome failed`
    - `polydomo requests --since 1h --slower 500ms`
    - `polydomo requests --client-id 4bf92f3577b34da6a3ce929d0e0e4736`
    - `polydomo requests --json | jq 'map(select(.state == "queued")) | length'`
    """
    wanted = search.RequestSearch(
        search.seconds("--since", since), service, outcome, search.seconds("--slower", slower), most, client_id
    )
    if wanted.any() or journal is not None:
        search.show_found(journal, to, wanted, json)
        return
    rows = listing(to, "requests", json, timeout, REQUESTS, request_cells)
    from polydomo.limits import MAX_LISTED

    if rows == MAX_LISTED:
        typer.echo(f"polydomo: only the first {MAX_LISTED} requests are listed", err=True)


def clients(to: To = None, gone: Gone = False, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """List the connections that are not workers, including the connection of this command.

    **Examples**

    - `polydomo clients`
    """
    if gone:
        departed(to, "client", json, timeout)
        return
    listing(to, "clients", json, timeout, CLIENTS, client_cells)


def status(to: To = None, json: Json = False, timeout: Timeout = ANSWER_TIME) -> None:
    """Show the status of the broker.

    Exits with status 5 if no broker answers, so that scripts can wait for one.

    **Examples**

    - `polydomo status`
    - `until polydomo status >/dev/null 2>&1; do sleep 0.1; done`
    """
    answer: Row = ask(to, "status", timeout)
    if json:
        show_json(answer)
        return
    denied = answer.get("denied", {})  # an older broker does not count them here
    shown = {
        "address": answer["address"],
        "up since": f"{clock(answer['started'])} ({span(answer['uptime_us'])})",
        "state": "stopping" if answer["draining"] else "serving",
        **({"processes": processes_text(answer["processes"])} if answer.get("processes") else {}),
        "connections": str(answer["connections"]),
        "services": str(answer["services"]),
        "workers": with_parts(answer["workers"], answer["workers_by_state"]),
        "open requests": str(answer["open_requests"]),
        "bytes held": size(answer["held_bytes"]),
        "memory": memory_text(answer.get("memory", {})),
        "largest peers": peers_text(answer.get("largest_peers", [])),
        "answered": str(answer["answered"]),
        "failed": with_parts(sum(answer["failed"].values()), answer["failed"]),
        "refused": str(answer["refused"]),
        **({"denied": with_parts(sum(denied.values()), denied)} if denied else {}),
        "stale replies": str(answer["stale"]),
        "violations": str(answer["violations"]),
        "connections refused": str(answer["connections_refused"]),
        "received, sent": f"{size(answer['received_bytes'])}, {size(answer['sent_bytes'])}",
        "datagrams": with_parts(sum(answer["datagrams"].values()), answer["datagrams"]),
        "journal": journal_text(ask(to, "journal", timeout)),
        **({"jobs": jobs_text(answer["jobs"])} if answer.get("jobs") else {}),
    }
    show([PrintedColumn("broker"), PrintedColumn("", folds=True)], [[name, value] for name, value in shown.items()])


def memory_text(memory: Row) -> str:
    """Memory held for peers, its limit, and the largest categories."""
    if not memory:
        return "-"
    kinds = {name.removesuffix("_bytes"): count for name, count in memory.items()}  # an older broker has no suffix
    total, limit = kinds.pop("total"), kinds.pop("limit")
    largest = sorted((kind for kind in kinds if kinds[kind]), key=lambda kind: -kinds[kind])[:3]
    parts = f" ({', '.join(f'{size(kinds[kind])} {kind}' for kind in largest)})" if largest else ""
    return f"{size(total)} of {size(limit) if limit else 'no limit'}{parts}"


def processes_text(processes: list[Row]) -> str:
    """
    >>> processes_text([{"process": 0, "pid": 4711}, {"process": 1, "pid": 4712}])
    '2 (pids 4711, 4712)'
    """
    return f"{len(processes)} (pids {', '.join(str(row['pid']) for row in processes)})"


def peers_text(peers: list[Row]) -> str:
    """The peers that hold most memory."""
    shown = [
        f"{row['peer']}{' (' + row['principal'] + ')' if row['principal'] else ''} {size(row['held_bytes'])}"
        for row in peers[:3]
    ]
    return ", ".join(shown) or "-"


def listing(
    to: str | None,
    what: str,
    json: bool,
    timeout: float,
    columns: list[PrintedColumn],
    cells: Callable[[Row], list[str]],
) -> int:
    """Prints a list as a table or as JSON; returns its length."""
    rows: list[Row] = ask(to, what, timeout)
    if json:
        show_json(rows)
    else:
        show(columns, [cells(row) for row in rows])
    return len(rows)


def departed(to: str | None, kind: str, json: bool, timeout: float) -> None:
    """Prints recently disconnected peers, the latest first."""
    rows: list[Row] = list(reversed(ask(to, "gone", timeout)[kind]))
    if json:
        show_json(rows)
    else:
        show(GONE, [gone_cells(row) for row in rows])


def journal_text(journal: Row) -> str:
    """
    >>> journal_text({"level": "off"})
    'off'
    >>> journal_text({"level": "requests", "directory": "/data/journal", "rows": 7, "dropped": 0, "trouble": ""})
    'requests, in /data/journal'
    >>> journal_text({"level": "requests", "directory": "/data/journal", "rows": 7, "dropped": 5, "trouble": "No space left on device"})
    'requests, in /data/journal; 5 rows lost; cannot be written: No space left on device'
    """
    text: str = journal["level"]
    if "directory" in journal:
        text += f", in {journal['directory']}"
        text += f"; {journal['dropped']} rows lost" if journal["dropped"] else ""
        text += f"; cannot be written: {journal['trouble']}" if journal["trouble"] else ""
    return text


def with_parts(count: int, parts: dict[str, int]) -> str:
    """
    >>> with_parts(3, {"ready": 1, "busy": 2, "late": 0})
    '3 (1 ready, 2 busy)'
    """
    shown = ", ".join(f"{number} {name}" for name, number in parts.items() if number)
    return f"{count} ({shown})" if shown else str(count)


def ask(to: str | None, what: str, timeout: float, question: str = "") -> Any:
    """Calls the reserved service ``polydomo.<what>`` and returns the answer."""
    from polydomo.cli.common.exit_status import needs_broker

    url = options.address(to)
    with needs_broker(url):
        return asyncio.run(fetch(url, what, timeout, question))


async def fetch(url: str, what: str, timeout: float, question: str = "") -> Any:
    """Calls a reserved service of the broker and returns the decoded JSON answer."""
    from polydomo.errors import CallFailed, CallTimeout

    async with reader(url, timeout) as client:
        try:
            result = await read(client, f"polydomo.{what}", question)
        except CallTimeout:
            raise CallTimeout(f"{url} did not answer within {timeout:g} s; is it a polydomo broker?") from None
    try:
        answer = result.json()
    except ValueError:
        answer = None
    if not isinstance(answer, list | dict):  # another broker's "501"
        raise CallFailed("not-implemented", f"{url} does not support polydomo.{what}; is it a polydomo broker?")
    return answer


# --- columns and cells ---------------------------------------------------------------------------------------------

GONE = [
    PrintedColumn("name"),
    PrintedColumn("protocol"),
    PrintedColumn("state"),
    PrintedColumn("time"),
    PrintedColumn("cause", folds=True),
    PrintedColumn("services", spare=1, folds=True),
    PrintedColumn("peer", spare=2),
]


def gone_cells(row: Row) -> list[str]:
    when = local(row["time"]).strftime("%Y-%m-%d %H:%M:%S")
    services = ",".join(row.get("services", []))
    return [
        row["name"],
        row["protocol"],
        row["state"],
        when,
        row["cause"],
        services,
        row.get("peer", row.get("address", "")),
    ]


SERVICES = [
    PrintedColumn("service"),
    PrintedColumn("state"),
    PrintedColumn("protocols", spare=3),
    PrintedColumn("workers", right=True),
    PrintedColumn("idle", right=True),
    PrintedColumn("queued", right=True),
    PrintedColumn("oldest", right=True, spare=1),
    PrintedColumn("answered", right=True),
    PrintedColumn("failed", right=True),
    PrintedColumn("requeued", right=True, spare=2),
    PrintedColumn("limits", spare=4),
]


def service_cells(row: Row) -> list[str]:
    return [
        row["name"],
        row["state"],
        ",".join(row["protocols"]),
        str(row["workers"]),
        str(row["idle"]),
        str(row["queued"]),
        span(row["oldest_wait_us"]) if row["queued"] else "",
        str(row["answered"]),
        str(row["failed"]),
        str(row["requeued"]),
        limits_text(row.get("limits")),
    ]


def limits_text(limits: Row | None) -> str:
    """
    >>> limits_text({"running": 5, "rate": "90/10s", "per": "group"}), limits_text(None)
    ('5 running, 90/10s per group', '')
    """
    if not limits:
        return ""
    running = f"{limits['running']} running" if limits.get("running") else ""
    said = ", ".join(filter(None, [running, limits.get("rate", "")]))
    return said if limits["per"] == "service" else f"{said} per {limits['per']}"


def jobs_text(jobs: Row) -> str:
    """
    >>> phases = {"delayed": 1, "queued": 2, "running": 0, "recording": 0}
    >>> jobs_text({"leads": True, "leader": "", "open": phases, "done": 7, "dead": 1, "schedules": 2})
    '3 open (1 delayed, 2 queued), 7 done, 1 dead, 2 schedules'
    >>> jobs_text({"leads": False, "leader": "tcp://10.0.0.2:5246", "open": phases, "done": 0, "dead": 0, "schedules": 0})
    'another broker is the leader, at tcp://10.0.0.2:5246'
    """
    if not jobs["leads"]:
        return (
            f"another broker is the leader, at {jobs['leader']}" if jobs["leader"] else "the job store is not available"
        )
    open_jobs = with_parts(sum(jobs["open"].values()), jobs["open"]).replace(" (", " open (", 1)
    if "(" not in open_jobs:
        open_jobs += " open"
    return f"{open_jobs}, {jobs['done']} done, {jobs['dead']} dead, {counted(jobs['schedules'], 'schedule')}"


WORKERS = [
    PrintedColumn("worker"),
    PrintedColumn("protocol"),
    PrintedColumn("dialect", spare=3),
    PrintedColumn("services", folds=True),
    PrintedColumn("state"),
    PrintedColumn("for", right=True),
    PrintedColumn("held", right=True),
    PrintedColumn("done", right=True, spare=2),
    PrintedColumn("failed", right=True),
    PrintedColumn("mean", right=True, spare=1),
    PrintedColumn("max", right=True, spare=4),
    PrintedColumn("since", spare=6),
    PrintedColumn("silent", right=True, spare=5),
    PrintedColumn("principal", spare=8),
    PrintedColumn("peer", spare=7),
    PrintedColumn("cause", folds=True),
]


def worker_cells(row: Row) -> list[str]:
    return [
        f"{row['worker']} ({row['name']})" if row["name"] else row["worker"],
        row["protocol"],
        row["dialect"],
        ",".join(row["services"]),
        "draining" if row["draining"] else row["state"],
        span(row["state_us"]),
        str(row["held"]),
        str(row["done"]),
        str(row["failed"]),
        latency(row["mean_us"]),
        latency(row["max_us"]),
        clock(row["registered"]),
        span(row["silent_us"]),
        row["principal"],
        row["peer"],
        row["cause"].removesuffix(f" from {row['peer']}"),  # shown in the column before it
    ]


REQUESTS = [
    PrintedColumn("request"),
    PrintedColumn("service"),
    PrintedColumn("client", spare=1),
    PrintedColumn("protocol", spare=4),
    PrintedColumn("state"),
    PrintedColumn("since", spare=5),
    PrintedColumn("for", right=True),
    PrintedColumn("age", right=True, spare=2),
    PrintedColumn("attempts", right=True),
    PrintedColumn("framed size", right=True, spare=3),
    PrintedColumn("progress", spare=4),
    PrintedColumn("why", folds=True),
]


def request_cells(row: Row) -> list[str]:
    return [
        row["request"],
        row["service"],
        row["client"],
        row["protocol"],
        row["state"],
        clock(row["state_since"]),
        span(row["state_us"]),
        span(row["age_us"]),
        str(row["attempts"]),
        "-" if row["request_bytes"] is None else size(row["request_bytes"]),
        progress_text(row.get("progress")),
        row["why"],
    ]


CLIENTS = [
    PrintedColumn("client"),
    PrintedColumn("protocol"),
    PrintedColumn("dialect", spare=2),
    PrintedColumn("state"),
    PrintedColumn("for", right=True, spare=1),
    PrintedColumn("open requests", right=True),
    PrintedColumn("held", right=True, spare=3),
    PrintedColumn("paused"),
    PrintedColumn("principal", spare=4),
    PrintedColumn("peer"),
]


def client_cells(row: Row) -> list[str]:
    return [
        row["client"],
        row["protocol"],
        row["dialect"],
        row["state"],
        span(row["state_us"]),
        str(row["open_requests"]),
        size(row["held_bytes"]),
        "yes" if row["paused"] else "no",
        row["principal"],
        row["peer"],
    ]
