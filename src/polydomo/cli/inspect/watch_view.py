"""The view of ``polydomo watch``: a coloured screen on a terminal, plain lines in a pipe.

Names and reasons come from peers, so all text is escaped with ``clean`` and never interpreted as markup.
"""

from collections import deque
from typing import TYPE_CHECKING, Any

from polydomo.cli.common.render import PrintedColumn, aligned, clean, latency, local, natural
from polydomo.journal.quantities import size, span

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

Row = dict[str, Any]

BARS = " ▁▂▃▄▅▆▇█"
PLAIN = " .:-=+*#@"  # for output without Unicode
WIDTH = 30  # number of snapshots in a sparkline

COLOURS = {
    "ready": "green",
    "busy": "cyan",
    "late": "yellow",
    "lost": "red",
    "left": "dim",
    "registering": "magenta",
    "paused": "yellow",
    "drained": "yellow",
    "draining": "yellow",
}

SERVICES = [
    PrintedColumn("service"),
    PrintedColumn("state"),
    PrintedColumn("protocols"),
    PrintedColumn("workers", right=True),
    PrintedColumn("busy", right=True),
    PrintedColumn("queued", right=True),
    PrintedColumn("oldest", right=True),
    PrintedColumn("rate/s", right=True),
    PrintedColumn("p50", right=True),
    PrintedColumn("p99", right=True),
    PrintedColumn("failed/s", right=True),
    PrintedColumn("answered", right=True),
    PrintedColumn("failed", right=True),
]

WORKERS = [
    PrintedColumn("worker"),
    PrintedColumn("state"),
    PrintedColumn("protocol"),
    PrintedColumn("services"),
    PrintedColumn("held", right=True),
    PrintedColumn("done", right=True),
    PrintedColumn("failed", right=True),
    PrintedColumn("mean", right=True),
    PrintedColumn("since", right=True),
    PrintedColumn("cause"),
    PrintedColumn("peer"),
]

EVENTS = [
    PrintedColumn("time"),
    PrintedColumn("what"),
    PrintedColumn("name"),
    PrintedColumn("state"),
    PrintedColumn("cause"),
]


class RateHistory:
    """The rates of the last snapshots, in total and by service."""

    def __init__(self) -> None:
        self.all: deque[float] = deque(maxlen=WIDTH)
        self.services: dict[str, deque[float]] = {}
        self._last = ""

    def add(self, figures: Row) -> None:
        if figures["time"] == self._last:
            return  # no new snapshot since
        self._last = figures["time"]
        self.all.append(figures["rate"])
        now = {row["name"]: row["rate"] for row in figures["services"]}
        self.services = {name: self.services.get(name, deque(maxlen=WIDTH)) for name in now}
        for name, rate in now.items():
            self.services[name].append(rate)


def sparkline(values: "deque[float]", bars: str = BARS) -> str:
    """
    >>> sparkline(deque([0.0, 1.0, 4.0, 8.0]))
    ' ▁▄█'
    """
    most = max(values, default=0.0)
    if not most:
        return " " * len(values)
    return "".join(bars[0 if not value else max(1, round(value / most * 8))] for value in values)


def headline(figures: Row) -> list[tuple[str, str]]:
    workers = figures["workers"]
    return [
        ("up", span(figures["uptime_us"])),
        ("connections", str(figures["connections"])),
        ("workers", f"{workers['ready']} ready, {workers['busy']} busy, {workers['late']} late"),
        ("open", str(figures["open_requests"])),
        ("queued", str(figures["queued"])),
        ("held", size(figures["held_bytes"])),
        ("rate", f"{number(figures['rate'])}/s"),
        ("failed", f"{number(figures['failed_rate'])}/s"),
        ("p50", latency(figures["p50_us"])),
        ("p99", latency(figures["p99_us"])),
        *_jobs(figures.get("jobs")),
    ]


def _jobs(jobs: Row | None) -> list[tuple[str, str]]:
    """Durable jobs, where this broker runs them and there is something to show."""
    if not jobs or not jobs["leads"]:
        return []
    opened = ", ".join(f"{number} {phase}" for phase, number in jobs["open"].items() if number)
    shown = [("jobs", f"{opened or 'none open'}, {jobs['done']} done")] if opened or jobs["submitted"] else []
    shown += [(name, str(jobs[name])) for name in ("retried", "dead", "schedules") if jobs[name]]
    return shown


def service_cells(row: Row) -> list[str]:
    return [
        clean(row["name"]),
        row["state"],
        ",".join(row["protocols"]),
        str(row["workers"]),
        str(row["busy"]),
        str(row["queued"]),
        span(row["oldest_wait_us"]) if row["queued"] else "-",
        number(row["rate"]),
        latency(row["p50_us"]),
        latency(row["p99_us"]),
        number(row["failed_rate"]),
        str(row["answered"]),
        str(row["failed"]),
    ]


def worker_cells(row: Row) -> list[str]:
    return [
        clean(f"{row['worker']} ({row['name']})") if row.get("name") else row["worker"],
        "draining" if row.get("draining") else row["state"],
        row["protocol"],
        clean(",".join(row["services"])),
        str(row["held"]),
        str(row["done"]),
        str(row["failed"]),
        latency(row["mean_us"]),
        span(row["state_us"]),
        clean(row["cause"].removesuffix(f" from {row['peer']}")),  # shown in the next column
        clean(row["peer"]),
    ]


def event_cells(row: Row) -> list[str]:
    when = local(row["time"]).strftime("%H:%M:%S")
    return [when, row["kind"], clean(row["name"]), row["state"], clean(row["cause"])]


def number(value: float) -> str:
    """
    >>> [number(n) for n in (0.0, 0.4, 12.3, 4567.8)]
    ['-', '0.4', '12', '4568']
    """
    return "-" if not value else f"{value:.1f}" if value < 10 else f"{value:.0f}"


def queued_first(row: Row) -> tuple[Any, ...]:
    """Services with queued requests come first, then the busiest."""
    return -row["queued"], -row["rate"], natural(row["name"])


def late_first(row: Row) -> tuple[Any, ...]:
    """Late workers come first, then the longest busy, then the others by number."""
    order = {"late": 0, "busy": 1}
    since = -row["state_us"] if row["state"] in order else 0
    return order.get(row["state"], 2), since, natural(row["worker"])


# --- plain ------------------------------------------------------------------------------------------------------------------


def lines(figures: Row) -> list[str]:
    """All metrics as aligned plain text, followed by an empty line."""
    state = "stopping" if figures["draining"] else "serving"
    first = f"{figures['address']} {state}: " + ", ".join(f"{name} {value}" for name, value in headline(figures))
    found = [first]
    if figures["services"]:
        rows = [service_cells(row) for row in sorted(figures["services"], key=queued_first)]
        found += ["", *aligned(SERVICES, [[cell or "-" for cell in row] for row in rows])]
    if figures["workers_list"]:
        rows = [worker_cells(row) for row in sorted(figures["workers_list"], key=late_first)]
        found += ["", *aligned(WORKERS, [[cell or "-" for cell in row] for row in rows])]
    return [*found, ""]


# --- a screen ---------------------------------------------------------------------------------------------------------------

SMALL = 16  # with fewer lines, the sparkline is left out
NARROW = 50  # with fewer columns, the sparkline is left out
HEADS = 4  # lines of a table besides its rows: title, header, rule, and an empty line

# Optional columns, in the order in which they are dropped on a narrow terminal.
OPTIONAL = (
    "last half minute",
    "peer",
    "failed",
    "answered",
    "failed/s",
    "protocols",
    "done",
    "mean",
    "protocol",
    "oldest",
    "p50",
    "p99",
    "since",
    "held",
    "rate/s",
    "busy",
)
# Columns that may be truncated, and their minimum width. The names in them may have hundreds of characters.
SHORTENED = {"service": 32, "services": 24, "worker": 24, "name": 24, "cause": 16}
GAP = 3  # width of the gap between two columns


class TableView:
    """One table, with as many rows and columns as fit."""

    def __init__(self, title: str, columns: list[PrintedColumn], rows: list[list[str]], unseen: int = 0) -> None:
        self.title = title
        self.columns = columns
        self.rows = rows
        self.unseen = unseen  # number of rows that the broker did not send

    def _fitting(self, count: int, width: int) -> dict[int, int]:
        """The columns that fit, and the widths they get. Only those of ``SHORTENED`` are truncated."""
        from rich.cells import cell_len

        longest, needed = {}, {}
        for i, column in enumerate(self.columns):
            longest[i] = max([len(column.title), *(cell_len(row[i]) for row in self.rows[:count])])
            needed[i] = GAP + min(longest[i], max(len(column.title), SHORTENED.get(column.title, longest[i])))
        titles = [column.title for column in self.columns]
        for title in OPTIONAL:
            if sum(needed.values()) <= width:
                break
            if title in titles:
                needed.pop(titles.index(title))
        spare = width - sum(needed.values())
        for i in needed:
            more = max(0, min(spare, longest[i] + GAP - needed[i]))
            needed[i] += more
            spare -= more
        return {i: needed[i] - GAP for i in sorted(needed)}

    def table(self, count: int, width: int) -> "Table":
        from rich.box import SIMPLE_HEAD
        from rich.table import Table
        from rich.text import Text

        more = len(self.rows) - count + self.unseen
        title = Text(f"{self.title} (and {more} more)" if more > 0 else self.title, style="bold")
        table = Table(
            box=SIMPLE_HEAD, show_edge=False, expand=True, title=title, title_justify="left", header_style="dim"
        )
        shown = self._fitting(count, width)
        for i, room in shown.items():
            column = self.columns[i]
            table.add_column(
                Text(column.title),
                justify="right" if column.right else "left",
                no_wrap=True,
                overflow="ellipsis",
                max_width=room if column.title in SHORTENED else None,
            )
        for row in self.rows[:count]:
            table.add_row(*(Text(row[i] or "-", style=_style(self.columns[i], row[i])) for i in shown))
        return table


def screen(
    figures: Row, history: RateHistory, width: int, height: int, trouble: str, bars: str = BARS
) -> "RenderableType":
    """The full screen: services first, then workers, then recent events, each with a share of the lines."""
    from rich.console import Group
    from rich.text import Text

    head = _head(figures, history, trouble, width, height, bars)
    services = [
        [*service_cells(row), sparkline(history.services.get(row["name"], deque()), bars)]
        for row in sorted(figures["services"], key=queued_first)
    ]
    workers = [worker_cells(row) for row in sorted(figures["workers_list"], key=late_first)]
    events = [event_cells(row) for row in reversed(figures["events"])]
    room = height - 1 - sum(-(-len(line) // width) for line in head.plain.split("\n"))
    parts: list[RenderableType] = [head]
    for part, share in (
        (
            TableView("services", [*SERVICES, PrintedColumn("last half minute")], services, figures["more_services"]),
            0.5,
        ),
        (TableView("workers", WORKERS, workers), 0.6),
        (TableView("recent events", EVENTS, events), 1.0),
    ):
        count = min(len(part.rows), max(int(room * share), HEADS + 2) - HEADS, room - HEADS)
        if count > 0:
            parts += [part.table(count, width), Text("")]
            room -= count + HEADS
    return Group(*parts)


def _head(figures: Row, history: RateHistory, trouble: str, width: int, height: int, bars: str) -> "Text":
    from rich.text import Text

    small = height < SMALL or width < NARROW

    text = Text()
    text.append("polydomo ", style="bold")
    text.append(figures["address"], style="bold cyan")
    if trouble:
        text.append(f"   {clean(trouble)}; waiting for the broker", style="bold red")
    elif figures["draining"]:
        text.append("   stopping", style="bold yellow")
    text.append("\n" if small else "   Ctrl-C to quit\n", style="dim")
    column = 0
    for name, value in headline(figures):
        if column and column + len(f"{name} {value}") > width:  # do not break between a name and its value
            text.append("\n")
            column = 0
        text.append(f"{name} ", style="dim")
        text.append(f"{value}   ")
        column += len(f"{name} {value}   ")
    text.append("\n")
    if not small:
        text.append(sparkline(history.all, bars).ljust(WIDTH), style="green")
        text.append(" requests/s\n", style="dim")
    return text


def _style(column: PrintedColumn, cell: str) -> str:
    if column.title == "last half minute":
        return "green"
    return COLOURS.get(cell, "") if column.title == "state" else ""
