"""``polydomo bench``: measures throughput and latency of a broker, as clients see them."""

import asyncio
import contextlib
import csv
import io
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import CLIENT_VARIABLE, Json
from polydomo.cli.common.render import PrintedColumn, show, show_json
from polydomo.cli.common.security import remember_name
from polydomo.journal.quantities import counted
from polydomo.limits import MAX_BODY

if TYPE_CHECKING:
    from polydomo.cli.bench.load import Load, LoadResult, LoadTarget, Progress

PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
TOO_LATE = 0.1  # seconds: if more calls than are due in this time are late, the broker or the clients cannot keep up
SPARE = {"p99.9": 3, "p90": 2, "max": 1}  # on a narrow terminal
SATURATED = 0.9  # CPU cores: above this, the load generator is the bottleneck, not the broker


def add_to(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL",
            envvar=CLIENT_VARIABLE,
            callback=remember_name,
            help="Address of the broker to measure.  [default: start one]",
        ),
    ] = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option("--protocol", "-p", metavar="NAME", help="Protocol; may be given several times.  [default: mdx]"),
    ] = None,
    size: Annotated[
        list[int] | None,
        typer.Option(
            metavar="BYTES", min=0, max=MAX_BODY, help="Size of a body; may be given several times.  [default: 64]"
        ),
    ] = None,
    clients: Annotated[int, typer.Option(metavar="N", min=1, help="Number of clients.")] = 4,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Number of workers. They echo the request.")] = 8,
    credit: Annotated[
        int, typer.Option(metavar="N", min=1, help="Calls that each worker holds at a time; over MDP always 1.")
    ] = 1,
    outstanding: Annotated[int, typer.Option(metavar="N", min=1, help="Calls that each client keeps open.")] = 16,
    rate: Annotated[
        float,
        typer.Option(metavar="N", min=0.0, help="Send N calls per second at fixed times, instead of --outstanding."),
    ] = 0.0,
    processes: Annotated[
        str | None, typer.Option(metavar="N|auto", help="Processes of the broker that it starts.  [default: 1]")
    ] = None,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write latencies by percentile to this file, as SVG.")
    ] = None,
    duration: Annotated[float, options.time_option("How long to measure, for each row.", least=0.05)] = 5.0,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print comma-separated values; times are in microseconds.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure throughput and latency of a broker with its own clients and workers.

    Without `--to` and `POLYDOMO_TO`, it starts a broker for the measurement, and also reports the broker's CPU time per request.

    **Examples**

    - `polydomo bench`
    - `polydomo bench -p mdp1 -p mdp2 -p mdx --size 64 --size 4096 --duration 3 --csv`
    - `polydomo bench --to tcp://127.0.0.1:5246 --clients 8 --workers 32 --outstanding 64`
    - `polydomo bench --workers 4 --credit 16`
    - `polydomo bench --processes 2`
    - `polydomo bench --rate 5000 --plot latency.svg`: latencies count from the time at which each call was due
    """
    from polydomo.cli.bench.load import Load
    from polydomo.cli.broker.up import fast_loop, raise_file_limit
    from polydomo.cli.common.exit_status import FAILED, needs_broker
    from polydomo.errors import SettingError

    if csv and json:
        raise SettingError("--csv and --json: choose one")
    url = options.address(to) if to else None
    if url and processes:
        raise SettingError("--processes: only for the broker that this command starts; leave out --to")
    loads = [
        Load(options.protocol_name(name), clients, workers, outstanding, count, duration, credit, rate)
        for name in protocol or [""]
        for count in size or [64]
    ]
    raise_file_limit()
    with asyncio.Runner(loop_factory=fast_loop()) as runner, needs_broker(url or "its own address"):
        outcomes = runner.run(measure(url, loads, processes))
    if csv:
        typer.echo(as_csv(outcomes), nl=False)
    elif json:
        show_json([record(outcome) for outcome in outcomes])
    else:
        report(outcomes, processes)
    if plot:
        write_plot(plot, outcomes)
    if not all(outcome.latencies for outcome in outcomes):
        raise typer.Exit(FAILED)


async def measure(url: str | None, loads: "list[Load]", processes: str | None = None) -> "list[LoadResult]":
    from polydomo.cli.bench import load as bench_load
    from polydomo.cli.common.child_guard import ChildGuard

    async with contextlib.AsyncExitStack() as stack:
        guard = stack.enter_context(contextlib.closing(ChildGuard()))
        target: LoadTarget = (
            bench_load.LoadTarget(url)
            if url
            else await stack.enter_async_context(bench_load.own_broker(guard, processes))
        )
        outcomes = []
        for one in loads:
            with progress_bar(one) as progress:
                outcomes.append(await bench_load.run(target, one, progress, guard))
        return outcomes


@contextlib.contextmanager
def progress_bar(load: "Load") -> "Iterator[Progress]":
    """A progress bar, removed at the end. Shown only on a terminal."""
    if not sys.stderr.isatty():
        yield lambda seconds: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(f"{load.protocol}, {load.size} B", total=load.warm_up + load.duration)
        yield lambda seconds: bar.advance(task, seconds)


# --- the results ------------------------------------------------------------------------------------------------------


def report(outcomes: "list[LoadResult]", processes: str | None = None) -> None:
    from polydomo.cli.bench.load import UNANSWERED

    load = outcomes[0].load
    sent = f"{load.rate:,g} calls/s in all" if load.rate else f"{load.outstanding} calls outstanding each"
    held = {outcome.load.held for outcome in outcomes}
    holding = f", each holding up to {load.credit} calls{' (over MDP one)' if 1 in held else ''}" if held != {1} else ""
    typer.echo(
        f"{counted(load.clients, 'client')} with {sent}, {counted(load.workers, 'worker')}{holding}, "
        f"{f'broker processes: {processes}, ' if processes else ''}{load.duration:g} s"
    )
    titles = ("size", "requests/s", *PARTS, "failed")
    columns = [
        PrintedColumn("protocol"),
        *(PrintedColumn(title, right=True, spare=SPARE.get(title, 0)) for title in titles),
    ]
    with_cpu = any(outcome.broker_cpu is not None for outcome in outcomes)
    if with_cpu:
        columns.append(PrintedColumn("broker CPU", right=True))
    rows = []
    for outcome in outcomes:
        row = [outcome.load.protocol, f"{outcome.load.size} B", f"{outcome.rate:,.0f}"]
        row += [milliseconds(value) for value in outcome.percentiles(*PARTS.values())]
        row.append(", ".join(f"{count} {name}" for name, count in outcome.errors.items()) or "0")
        if with_cpu:
            cpu = cpu_per_request(outcome)
            row.append("" if cpu is None else f"{cpu:.1f} us")
        rows.append(row)
    show(columns, rows)
    if load.rate:
        from polydomo.cli.bench.plot import text_plot

        for title, ordered in titles_of(outcomes):
            typer.echo("\n".join(["", *text_plot(title, ordered)]))
    behind = [outcome for outcome in outcomes if outcome.late + outcome.errors[UNANSWERED] > load.rate * TOO_LATE]
    if load.rate and behind:
        typer.echo(
            f"Only {min(outcome.rate for outcome in behind):,.0f} of {load.rate:,g} calls/s were answered in time: the rate is too "
            "high for this machine, and calls waited longer and longer. Set a lower --rate; without --rate, the highest throughput "
            "is measured.",
            err=True,
        )
    if any(outcome.own_cpu > SATURATED for outcome in outcomes):
        typer.echo(
            "The benchmark's clients used up their CPU core, so the broker may be faster than shown.",
            err=True,
        )


def titles_of(outcomes: "list[LoadResult]") -> "list[tuple[str, list[float]]]":
    return [(f"{outcome.load.protocol}, {outcome.load.size} B", sorted(outcome.latencies)) for outcome in outcomes]


def write_plot(file: str, outcomes: "list[LoadResult]") -> None:
    """Raises SettingError."""
    from pathlib import Path

    from polydomo.cli.bench.plot import svg_plot
    from polydomo.errors import SettingError

    load = outcomes[0].load
    what = f"{load.rate:g} calls/s" if load.rate else f"{load.clients} x {load.outstanding} calls outstanding"
    try:
        Path(file).write_text(svg_plot(f"Latency by percentile, {what}", titles_of(outcomes)), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--plot: cannot write {file}: {error.strerror or error}") from None


def as_csv(outcomes: "list[LoadResult]") -> str:
    out = io.StringIO()
    records = [record(outcome) for outcome in outcomes]
    writer = csv.DictWriter(out, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return out.getvalue()


def record(outcome: "LoadResult") -> dict[str, object]:
    """One row of machine-readable output: numbers without units, times in microseconds."""
    load = outcome.load
    cpu = cpu_per_request(outcome)
    answered = bool(outcome.latencies)
    times = [round(value * 1e6) if answered else None for value in outcome.percentiles(*PARTS.values())]
    return {
        "protocol": load.protocol,
        "size_bytes": load.size,
        "clients": load.clients,
        "workers": load.workers,
        "credit": load.credit,
        "outstanding": None if load.rate else load.outstanding,
        "rate": load.rate or None,
        "duration_us": round(load.duration * 1e6),
        "requests": len(outcome.latencies),
        "failed": sum(outcome.errors.values()),
        "requests_per_second": round(outcome.rate, 1),
        **{f"{name.replace('.', '')}_us": value for name, value in zip(PARTS, times, strict=True)},
        "broker_cpu_us": None if cpu is None else round(cpu),
    }


def cpu_per_request(outcome: "LoadResult") -> float | None:
    """Microseconds of the broker's CPU time."""
    answered = len(outcome.latencies) - outcome.late
    if outcome.broker_cpu is None or not answered:
        return None
    return outcome.broker_cpu * 1e6 / answered


def milliseconds(seconds: float) -> str:
    return "" if seconds != seconds else f"{seconds * 1000:.2f} ms"
