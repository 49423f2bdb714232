"""The lives of brokers as columns of numbers: what ``generate_journal.py`` writes down. Every rule can be broken on purpose."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from polydomo.journal import schema

Array = np.ndarray
START = int(datetime(2026, 1, 31, 6, 10, tzinfo=UTC).timestamp() * 1e6)
SERVICES = ["echo", "resize", "ocr", "mail", "index", "search", "far", "nobody"]
LANES = 6  # workers of a service, one job at a time each
FAR, NOBODY = SERVICES.index("far"), SERVICES.index("nobody")
PAUSE_SHARE_USED = FAR  # services below this one have workers of their own
PROTOCOLS = ["", "mdp01", "mdp02", "dcp", "emqp", "memo01", "bridge"]
OUTCOMES = ["", "ok", "error", "no-service", "silence", "interrupted", "info"]
REASONS = [
    "",
    "the worker said no",
    "nobody offers it",
    "no beat",
    "beat missed",
    "started",
    "image scaled",
    "the disk did not keep up",
]
LEVELS = ["", "requests", "messages"]
TOPICS = ["", "status.echo", "status.resize", "load.index"]
EVENTS = ["", *schema.EVENTS]
EV = {name: number for number, name in enumerate(EVENTS)}
FINISHED = -1  # in ``event``: the row of kind ``requests``
LOST_ROWS = 1000
CLIENTS = 40  # connections 1 to 40 are clients
SPARE_CREDIT = 1 << 27
# orders of events at the same microsecond
O_ACCEPT, O_QUEUE, O_EXTRA, O_DISPATCH, O_PARTIAL, O_FINAL, O_RECORD, O_AFTER = range(8)
O_LOST = 20

MESSAGE_FIELDS = (
    "t order event connection client service number attempt hop worker released size queue workers credit auto silence allowed outcome "
    "reason topic level covers_run covers_first covers_last"
).split()
RECORD_FIELDS = (
    "number service last_service client worker accepted first dispatched partial ended attempts max_attempts dispatches hops partials "
    "request_bytes reply_bytes outcome reason child wrong_total"
).split()


@dataclass
class Blocks:
    """Rows as columns of numbers, gathered piece by piece."""

    fields: list[str]
    parts: dict[str, list[Array]] = field(default_factory=dict)

    def add(self, **columns: Any) -> None:
        n = max(np.size(value) for value in columns.values())
        if not n or any(np.ndim(value) and not np.size(value) for value in columns.values()):
            return
        for name in self.fields:
            value = columns.pop(name, 0)
            self.parts.setdefault(name, []).append(np.broadcast_to(np.asarray(value, np.int64), (n,)))
        assert not columns, f"no such columns: {columns}"

    def done(self) -> dict[str, Array]:
        return {
            name: np.concatenate(self.parts[name]) if name in self.parts else np.zeros(0, np.int64)
            for name in self.fields
        }


@dataclass
class Life:
    """What one run of one broker is to do."""

    name: str
    run: int
    requests: int
    seconds: float
    breaches: int  # of each rule
    bridge: bool = False  # its ``far`` is another broker
    loses: bool = False  # some of its rows are lost, and it says so
    visitors: dict[str, Array] | None = (
        None  # requests that come over a bridge: service, accepted, ended, parent (run, number, ms)
    )


@dataclass
class Changes:
    """What is changed once all rows are there. A number below zero is that of a worker."""

    drop: list[tuple[int, int]] = field(default_factory=list)  # number, event
    set: list[tuple[int, int, str, int]] = field(default_factory=list)  # number, event, column, value
    record: list[tuple[int, str, int]] = field(default_factory=list)  # number, column, value
    hole: list[int] = field(default_factory=list)  # whose partial reply is not there
    twice: list[int] = field(default_factory=list)  # whose partial reply is there twice


Planted = list[tuple[str, int, dict[str, Any]]]  # rule, run, what it is about
Facts = dict[str, Array]
Plant = Callable[["Life", "Blocks", "Blocks", Facts, Facts, int, np.random.Generator], tuple[Planted, Changes]]


@dataclass
class Made:
    messages: dict[str, Array]  # and the places of records among them
    records: dict[str, Array]
    seq: Array
    planted: list[tuple[str, int, dict[str, Any]]]
    leaving: dict[str, Array] | None  # what crosses the bridge


def spare(service: Any) -> Any:
    """The number of a service's worker that asks for very many at once."""
    return np.asarray(service) + 1


def make(life: Life, dice: np.random.Generator, plant: "Plant") -> Made:
    rows = Blocks(MESSAGE_FIELDS)
    records = Blocks(RECORD_FIELDS)
    n = life.requests
    end = START + int(life.seconds * 1e6)
    kinds = dice.random(n)
    service = dice.integers(0, PAUSE_SHARE_USED, n)
    service[kinds < 0.01] = NOBODY
    if life.bridge:
        service[(kinds >= 0.01) & (kinds < 0.03)] = FAR
    arrive = np.sort(dice.integers(START + 1_000_000, end - 1_000_000, n))
    client = dice.integers(1, CLIENTS + 1, n)
    number = np.arange(1, n + 1)
    size = dice.integers(20, 2000, n)
    takes = np.maximum(
        20, (dice.lognormal(0, 0.8, n) * np.array([150, 2500, 4000, 900, 600, 1500, 3000, 1])[service]).astype(np.int64)
    )
    plain = service < PAUSE_SHARE_USED
    chained = plain & (kinds > 0.94)
    errs = plain & ~chained & (kinds > 0.93)
    aside = plain & (kinds > 0.90) & (kinds <= 0.93)  # taken by the spare at once
    share = min(0.3, max(0.002, 15 * life.breaches / n))  # of losses: enough of them for all that is to be planted
    lost = plain & (kinds > 0.90 - share) & (kinds <= 0.90)
    in_lane = plain & ~aside
    # --- who has it when: each lane is a queue of its own
    lane = service * LANES + dice.integers(0, LANES, n)
    began = arrive.copy()
    stopped = began + takes
    for one in range(PAUSE_SHARE_USED * LANES):
        mine = np.flatnonzero(in_lane & (lane == one))
        if mine.size:
            work = takes[mine] + 2  # a worker is given the next one two microseconds after it was free
            total = np.cumsum(work)
            over = total + np.maximum.accumulate(arrive[mine] - (total - work))
            began[mine] = over - work
            stopped[mine] = over - 2
    # workers: spares first; a lane gets a new worker, on a new connection, each time it loses one
    spares = len(SERVICES)
    order = np.lexsort((began, lane))
    order = order[in_lane[order]]
    generation = np.zeros(n, np.int64)
    flags = lost[order].astype(np.int64)
    before = np.cumsum(flags) - flags
    lanes, starts = np.unique(lane[order], return_index=True)
    generation[order] = before - np.repeat(before[starts], np.diff([*starts, order.size]))
    most = int(generation.max(initial=0)) + 1
    worker = np.where(in_lane, spares + 1 + lane * most + generation, spare(service))
    worker[service == NOBODY] = 0
    connection = worker + CLIENTS
    offered = LANES + 1
    # --- the run and its peers
    rows.add(t=START, event=EV[schema.STARTED], level=2, reason=5)
    rows.add(t=START + 1, event=EV[schema.CONNECTED], connection=np.arange(1, CLIENTS + 1))
    who = np.arange(1, spares + 1)
    rows.add(t=START + 1, event=EV[schema.CONNECTED], connection=who + CLIENTS)
    rows.add(
        t=START + 2,
        event=EV[schema.REGISTERED],
        connection=who + CLIENTS,
        worker=who,
        service=who - 1,
        credit=SPARE_CREDIT,
    )
    who = spares + 1 + lanes * most
    rows.add(t=START + 1, event=EV[schema.CONNECTED], connection=who + CLIENTS)
    rows.add(
        t=START + 2,
        event=EV[schema.REGISTERED],
        connection=who + CLIENTS,
        worker=who,
        service=lanes // LANES,
        credit=1,
        auto=1,
    )
    about = {"client": client, "number": number, "service": service}

    def of(where: Array, **more: Any) -> dict[str, Any]:
        chosen = {name: values[where] for name, values in about.items()}
        return {**chosen, **{name: values[where] if np.ndim(values) else values for name, values in more.items()}}

    rows.add(
        t=arrive, event=EV[schema.ACCEPTED], order=O_ACCEPT, connection=client, size=size, workers=offered, **about
    )
    waits = in_lane & (began > arrive)
    rows.add(
        **of(
            waits,
            t=arrive,
            event=EV[schema.QUEUED],
            order=O_QUEUE,
            connection=client,
            queue=1 + (number % 7),
            workers=offered,
        )
    )
    got = service != NOBODY
    rows.add(
        **of(
            got,
            t=began,
            event=EV[schema.DISPATCHED],
            order=O_DISPATCH,
            connection=connection,
            worker=worker,
            attempt=1,
            size=size,
        )
    )
    nobody = ~got
    rows.add(**of(nobody, t=arrive + 5, event=EV[schema.FAILED], order=O_FINAL, connection=client, outcome=3, reason=2))
    # partials, of long ones
    parts = got & ~lost & ~chained & (takes > 1000) & (number % 5 == 0)
    rows.add(
        **of(
            parts,
            t=began + 300,
            event=EV[schema.PARTIAL],
            order=O_PARTIAL,
            connection=connection,
            worker=worker,
            attempt=1,
            size=100,
        )
    )
    # replies
    ok = got & ~lost & ~chained & ~errs
    rows.add(
        **of(
            ok,
            t=stopped,
            event=EV[schema.FINAL],
            order=O_FINAL,
            connection=client,
            worker=worker,
            attempt=1,
            released=1,
            size=size // 2,
            outcome=1,
        )
    )
    rows.add(
        **of(
            errs,
            t=stopped,
            event=EV[schema.FAILED],
            order=O_FINAL,
            connection=client,
            worker=worker,
            attempt=1,
            released=1,
            outcome=2,
            reason=1,
        )
    )
    # passed on: the next service's spare has it for as long again
    then = (service + 1) % PAUSE_SHARE_USED
    second = stopped + 3
    over = second + takes // 2 + 10
    rows.add(
        **{
            **of(
                chained,
                t=stopped,
                event=EV[schema.FORWARDED],
                order=O_FINAL,
                connection=connection,
                worker=worker,
                attempt=1,
                released=1,
                queue=1,
                workers=offered,
            ),
            "service": then[chained],
        }
    )
    rows.add(
        **{
            **of(
                chained,
                t=second,
                event=EV[schema.DISPATCHED],
                order=O_DISPATCH,
                connection=spare(then) + CLIENTS,
                worker=spare(then),
                attempt=1,
                hop=1,
                size=size,
            ),
            "service": then[chained],
        }
    )
    rows.add(
        **{
            **of(
                chained,
                t=over,
                event=EV[schema.FINAL],
                order=O_FINAL,
                connection=client,
                worker=spare(then),
                attempt=1,
                hop=1,
                released=1,
                size=size // 2,
                outcome=1,
            ),
            "service": then[chained],
        }
    )
    # losses: the lane's worker is gone, its request goes to the spare at once, and a new worker takes the lane
    again = stopped + takes // 2 + 10
    rows.add(
        t=stopped[lost] - 1,
        event=EV[schema.LATE],
        connection=connection[lost],
        worker=worker[lost],
        service=service[lost],
        silence=5_000_000,
        allowed=7_500_000,
        reason=4,
    )
    rows.add(
        t=stopped[lost],
        event=EV[schema.LOST],
        order=O_LOST,
        connection=connection[lost],
        worker=worker[lost],
        service=service[lost],
        silence=7_600_000,
        allowed=7_500_000,
        outcome=4,
        reason=3,
        size=1,
    )
    rows.add(
        **of(
            lost,
            t=stopped,
            event=EV[schema.REQUEUED],
            order=O_LOST + 1,
            connection=connection,
            worker=worker,
            attempt=1,
            queue=1,
            workers=offered - 1,
            reason=3,
        )
    )
    rows.add(
        **of(
            lost,
            t=stopped,
            event=EV[schema.DISPATCHED],
            order=O_LOST + 3,
            connection=spare(service) + CLIENTS,
            worker=spare(service),
            attempt=2,
            size=size,
        )
    )
    rows.add(
        **of(
            lost,
            t=again,
            event=EV[schema.FINAL],
            order=O_FINAL,
            connection=client,
            worker=spare(service),
            attempt=2,
            released=1,
            size=size // 2,
            outcome=1,
        )
    )
    rows.add(t=stopped[lost], event=EV[schema.DISCONNECTED], order=O_LOST + 4, connection=connection[lost], reason=3)
    rows.add(t=stopped[lost], event=EV[schema.CONNECTED], order=O_LOST + 5, connection=connection[lost] + 1)
    rows.add(
        t=stopped[lost],
        event=EV[schema.REGISTERED],
        order=O_LOST + 6,
        connection=connection[lost] + 1,
        worker=worker[lost] + 1,
        service=service[lost],
        credit=1,
        auto=1,
    )
    # late replies of workers that were lost, log records, values
    rows.add(t=stopped[lost] + 900, event=EV[schema.STALE], worker=worker[lost], size=50)
    tells = np.flatnonzero(ok & (number % 200 == 0))
    rows.add(
        t=began[tells] + 5,
        event=EV[schema.LOG],
        connection=connection[tells],
        service=service[tells],
        number=number[tells],
        outcome=6,
        reason=6,
        size=30,
    )
    said = np.arange(START + 2_000_000, end, 1_000_000)
    rows.add(t=said, event=EV[schema.PUBLISHED], connection=CLIENTS + 1, topic=1 + np.arange(said.size) % 3, size=8)
    # --- records
    ended = np.select([nobody, chained, lost], [arrive + 5, over, again], stopped)
    records.add(
        number=number,
        service=service,
        last_service=np.where(chained, then, service),
        client=client,
        worker=np.select([chained, lost], [spare(then), spare(service)], worker),
        accepted=arrive,
        first=np.where(got, began, 0),
        dispatched=np.select([nobody, chained, lost], [0, second, stopped], began),
        partial=np.where(parts, began + 300, 0),
        ended=ended,
        attempts=np.where(lost, 2, got),
        max_attempts=3,
        dispatches=np.where(lost | chained, 2, got),
        hops=chained,
        partials=parts,
        request_bytes=size,
        reply_bytes=np.where(errs | nobody, 0, size // 2),
        outcome=np.select([nobody, errs], [3, 2], 1),
        reason=np.select([nobody, errs], [2, 1], 0),
    )
    rows.add(t=ended, event=FINISHED, order=O_RECORD, number=number)
    next_number = n + 1
    # --- requests that come over the bridge
    if life.visitors is not None:
        came = life.visitors
        k = came["service"].size
        numbers = np.arange(next_number, next_number + k)
        next_number += k
        visitor(rows, records, numbers, came["service"], came["accepted"], came["ended"], child=came["parent"])
    leaving = None
    if life.bridge:
        far = np.flatnonzero((service == FAR) & (takes > 200))
        leaving = {
            "service": far % PAUSE_SHARE_USED,
            "accepted": began[far] + 10,
            "ended": stopped[far] - 10,
            "parent": np.arange(far.size) + 1,
            "ms": arrive[far] // 1000,
            "number": number[far],
        }
    planted: list[tuple[str, int, dict[str, Any]]] = []
    changes = Changes()
    if life.breaches:
        facts = {
            "number": number,
            "service": service,
            "client": client,
            "worker": worker,
            "began": began,
            "stopped": stopped,
            "ended": ended,
            "takes": takes,
            "connection": connection,
        }
        masks = {
            "usual": ok & in_lane & ~parts & (takes > 100),
            "lost": lost,
            "chained": chained,
            "partial": parts & in_lane,
        }
        planted, changes = plant(life, rows, records, facts, masks, next_number, dice)
    if life.loses:
        rows.add(t=np.array([(START + end) // 2]), event=EV[schema.MISSING], order=98, reason=7, covers_run=life.run)
    rows.add(t=np.array([end + 10_000_000]), event=EV[schema.STOPPED], order=99)
    return finish(life, rows.done(), records.done(), changes, planted, leaving)


def visitor(
    rows: Blocks, records: Blocks, number: Any, service: Any, accepted: Any, ended: Any, child: Any = 0, **changes: Any
) -> None:
    """Requests that a spare takes at once."""
    number, service, accepted, ended = np.broadcast_arrays(number, service, accepted, ended)
    client = changes.pop("client", 1)
    about = {"number": number, "service": service, "client": client}
    worker = changes.pop("worker", spare(service))
    began = np.minimum(accepted + 2, ended)
    began = changes.pop("began", began)
    order = changes.pop("order", O_DISPATCH)
    connection = changes.pop("connection", np.asarray(worker) + CLIENTS)
    assert not changes
    rows.add(t=accepted, event=EV[schema.ACCEPTED], order=O_ACCEPT, connection=client, size=100, **about)
    rows.add(
        t=began,
        event=EV[schema.DISPATCHED],
        order=order,
        connection=connection,
        worker=worker,
        attempt=1,
        size=100,
        **about,
    )
    rows.add(
        t=ended,
        event=EV[schema.FINAL],
        order=O_FINAL,
        connection=client,
        worker=worker,
        attempt=1,
        released=1,
        size=50,
        outcome=1,
        **about,
    )
    records.add(
        number=number,
        service=service,
        last_service=service,
        client=client,
        worker=worker,
        accepted=accepted,
        first=began,
        dispatched=began,
        ended=ended,
        attempts=1,
        max_attempts=3,
        dispatches=1,
        request_bytes=100,
        reply_bytes=50,
        outcome=1,
        child=child,
    )
    rows.add(t=ended, event=FINISHED, order=O_RECORD, number=number)


def finish(
    life: Life, rows: dict[str, Array], records: dict[str, Array], changes: Changes, planted: Any, leaving: Any
) -> Made:
    """Puts the rows in order, numbers them, and makes the changes that were planned."""
    keep = np.ones(rows["t"].size, bool)
    for number, event in changes.drop:
        keep &= ~((rows["number"] == number) & (rows["event"] == event))
    for number, event, name, value in changes.set:
        key = rows["number"] == number if number > 0 else rows["worker"] == -number
        rows[name] = np.where(key & (rows["event"] == event), value, rows[name])
    for number, name, value in changes.record:
        records[name] = records[name].copy()
        records[name][number - 1] = value
    chosen = np.flatnonzero(keep)
    chosen = chosen[np.lexsort((rows["order"][chosen], rows["t"][chosen]))]
    rows = {name: values[chosen] for name, values in rows.items()}
    seq = np.arange(1, chosen.size + 1)
    partial = rows["event"] == EV[schema.PARTIAL]
    gone = [int(np.flatnonzero(partial & (rows["number"] == number))[0]) for number in changes.hole]
    again = [int(np.flatnonzero(partial & (rows["number"] == number))[0]) for number in changes.twice]
    if life.loses:
        (at,) = np.flatnonzero(rows["event"] == EV[schema.MISSING])
        rows["covers_first"][at], rows["covers_last"][at] = seq[at - LOST_ROWS], seq[at - 1]
        gone += [*range(at - LOST_ROWS, at)]
    index = np.sort(np.concatenate([np.delete(np.arange(seq.size), gone), np.array(again, np.int64)]))
    rows = {name: values[index] for name, values in rows.items()}
    return Made(rows, records, seq[index], planted, leaving)
