"""Generates journals of any size, as brokers would have written them: several brokers, chains, bridges, retries, losses, requests
that end in the queue, durable jobs, flows, schedules, memoised services, requests with a key, principals, a broker that is killed, and,
on request, breaches of every rule.

    python -m bench.generate_journal DIR --million 10 --seed 1 --breaches 3

DIR/planted.json lists every planted breach as [rule, run, about]: an audit must find these and nothing else.
"""

import argparse
import json
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.durable_lives import ONCE_JOB, ONCE_SCHEDULE
from bench.life import (
    CLIENTS,
    CODES,
    EV,
    EVENTS,
    FAR,
    FINISHED,
    JOB_CLIENT,
    KEY_CLIENT,
    KEY_HOLDER,
    LEVELS,
    MEMO_CLIENT,
    MEMO_STORE,
    ORIGINS,
    OUTCOMES,
    PRINCIPALS,
    PROTOCOLS,
    REASONS,
    SERVICES,
    TOPICS,
    Array,
    Life,
    Made,
)
from bench.lives import make
from bench.plant import plant
from polydomo.journal import schema
from polydomo.journal.files import parquet
from polydomo.journal.files.runs import segment_name
from polydomo.journal.ids import ALPHABET
from polydomo.journal.schema import MESSAGES, REQUESTS

# --- as Parquet ---------------------------------------------------------------------------------------------------------


def words(codes: Array, values: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), pa.array(values))


def times(values: Array) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == 0).cast(pa.timestamp("us", tz="UTC"))


_LETTERS = np.frombuffer(ALPHABET.encode(), np.uint8)


def ids(ms: Array, run: "int | Array", number: Array) -> Array:
    made = np.empty((ms.size, 26), np.uint8)
    place = 0
    for value, characters in ((ms, 10), (np.broadcast_to(run, ms.shape), 8), (number, 8)):
        for shift in range(5 * (characters - 1), -1, -5):
            made[:, place] = _LETTERS[value >> shift & 31]
            place += 1
    return made.reshape(-1).view("S26")


def buckets(us: Array) -> Array:
    return np.where(us > 1, np.log(np.maximum(us, 1)) / np.log(1.02), 0).astype(np.int64)


PEERS = [""] + [f"tcp://10.0.{i // 50}.{i % 50}:{40000 + i}" for i in range(1, 400)]


def peer(connection: Array) -> pa.Array:
    return words(np.where(connection > 0, 1 + connection % (len(PEERS) - 1), 0), PEERS)


def protocol(connection: Array) -> pa.Array:
    special = {0: 0, CLIENTS + 1 + FAR: 6, MEMO_CLIENT: 7, CLIENTS + MEMO_STORE: 7, JOB_CLIENT: 8}
    special |= {KEY_CLIENT: 9, CLIENTS + KEY_HOLDER: 9}
    chosen = [connection == number for number in special]
    return words(np.select(chosen, [*special.values()], 1 + connection % 5), PROTOCOLS)


def principal(connection: Array) -> pa.Array:
    return words(np.where(connection > 0, connection % len(PRINCIPALS), 0), PRINCIPALS)


def job_ids(life: Life, created: Array, home: Array, job: Array) -> Array:
    """The ids of jobs or flows; empty for number 0."""
    return np.where(job > 0, ids(created // 1000, np.where(home > 0, home, life.run), job), b"")


def job_columns(life: Life, jobs: dict[str, Array], rows: dict[str, Array]) -> dict[str, Any]:
    """The columns of events of jobs, flows and schedules."""
    job = {name: values[rows["extra"]] for name, values in jobs.items()}
    named_ids = job_ids(life, job["created"], job["home"], job["job"])
    schedule = f"nightly {life.name} {life.run:x}"
    due = np.char.add(f"{schedule} ".encode(), job["created"].astype("S20"))
    again = np.where(job["reopened"] > 0, np.char.add(b" ", job["reopened"].astype("S12")), b"")
    outcome = np.char.add(named_ids, again).astype("S64")
    once = np.select([job["once"] == ONCE_JOB, job["once"] == ONCE_SCHEDULE], [outcome, due.astype("S64")], b"")
    keys = np.where(job["key"] > 0, np.char.add(b"key-", job["key"].astype("S12")), b"")
    connection = np.where(rows["extra"] > 0, job["client"], rows["connection"])
    return {
        "job": text(named_ids), "key": text(keys), "origin": words(job["origin"], ORIGINS),
        "schedule": words(job["schedule"], ["", schedule]),
        "code": words(job["code"], CODES), "wait_us": job["wait"], "created": times(job["created"]), "once": text(once),
        "principal": principal(connection),
        "flow": text(job_ids(life, job["flow_created"], job["home"], job["flow"])),
        "name": words(job["name"], life.texts), "needs": words(job["needs"], life.texts),
        **{name: job[name] for name in ("node", "position", "since", "nodes")},
    }  # fmt: skip


def text(values: Array) -> pa.Array:
    """An array of bytes as text."""
    return pa.array(values.astype(object), pa.binary()).cast(pa.string())


def table(kind: str, columns: dict[str, Any], rows: int) -> pa.Table:
    """All columns of the kind, with nothing in those that are not given."""
    made = []
    for wanted in schema.arrow(kind):
        values = columns.get(wanted.name)
        if values is None:
            zero = pa.scalar(
                schema.NOTHING[next(c.type for c in schema.COLUMNS[kind] if c.name == wanted.name)], wanted.type
            )
            values = words(np.zeros(rows, np.int32), [""]) if wanted.type == pa.string() else pa.repeat(zero, rows)
        elif isinstance(values, np.ndarray):
            values = pa.array(values.astype(wanted.type.to_pandas_dtype()))
        made.append(values)
    return pa.table(made, names=schema.names(kind))


def message_table(life: Life, jobs: dict[str, Array], rows: dict[str, Array], seq: Array) -> pa.Table:
    n = seq.size
    zero = np.zeros(n, np.int32)
    given = {
        "time": times(rows["t"]),
        "broker": words(zero, [life.name]),
        "run": np.full(n, life.run),
        "seq": seq,
        "event": words(rows["event"], EVENTS),
        "peer": peer(rows["connection"]),
        "protocol": protocol(rows["connection"]),
        "service": words(np.where(named(rows), rows["service"] + 1, 0), ["", *SERVICES]),
        "silence_us": rows["silence"],
        "allowed_us": rows["allowed"],
        "outcome": words(rows["outcome"], OUTCOMES),
        "reason": words(rows["reason"], REASONS),
        "topic": words(rows["topic"], TOPICS),
        "level": words(rows["level"], LEVELS),
        "principal": principal(rows["connection"]),
    }
    if rows["extra"].any():
        given |= job_columns(life, jobs, rows)
    same = "connection client number attempt hop worker released size queue workers credit auto covers_run covers_first covers_last".split()
    return table(MESSAGES, {**given, **{name: rows[name] for name in same}}, n)


_UNNAMED = [
    EV[name]
    for name in (
        schema.STARTED,
        schema.STOPPED,
        schema.MISSING,
        schema.CONNECTED,
        schema.DISCONNECTED,
        schema.STALE,
        schema.PUBLISHED,
        schema.FLOW,
        schema.NODE,
    )
]


def named(rows: dict[str, Array]) -> Array:
    """Whether a row names a service."""
    return ~np.isin(rows["event"], _UNNAMED)


def record_table(life: Life, made: Made, number: Array, seq: Array, parents: Array | None) -> pa.Table:
    r = {name: values[number - 1] for name, values in made.records.items()}
    n = seq.size
    wait = np.where(r["first"] > 0, r["first"], r["ended"]) - r["accepted"]
    run_us = np.where(r["dispatched"] > 0, r["ended"] - r["dispatched"], 0)
    total = np.where(r["wrong_total"] > 0, 0, r["ended"] - r["accepted"])
    held = np.where(r["worker"] > 0, r["worker"] + CLIENTS, 0)
    given = {
        "time": times(r["ended"]),
        "broker": words(np.zeros(n), [life.name]),
        "run": np.full(n, life.run),
        "seq": seq,
        "request": pa.array(ids(r["accepted"] // 1000, life.run, number), pa.binary(26))
        .cast(pa.binary())
        .cast(pa.string()),
        "service": words(r["service"], SERVICES),
        "last_service": words(r["last_service"], SERVICES),
        "client_peer": peer(r["client"]),
        "client_protocol": protocol(r["client"]),
        "worker_peer": peer(held),
        "worker_protocol": protocol(held),
        "accepted": times(r["accepted"]),
        "first_dispatched": times(r["first"]),
        "dispatched": times(r["dispatched"]),
        "first_partial": times(r["partial"]),
        "wait_us": wait,
        "run_us": run_us,
        "total_us": total,
        "wait_bucket": buckets(wait),
        "run_bucket": buckets(run_us),
        "total_bucket": buckets(total),
        "outcome": words(r["outcome"], OUTCOMES),
        "reason": words(r["reason"], REASONS),
        "principal": principal(r["client"]),
        "worker_principal": principal(held),
    }
    if r["job"].any():
        created, home = made.of_jobs("created"), made.of_jobs("home")
        given["job"] = text(job_ids(life, created[r["job"]], home[r["job"]], r["job"]))
    if parents is not None:
        given["parent"] = pa.array(np.concatenate([np.array([b""]), parents])[r["child"]].astype("S26")).cast(
            pa.string()
        )
    same = "number client worker attempts max_attempts dispatches hops partials request_bytes reply_bytes".split()
    return table(REQUESTS, {**given, **{name: r[name] for name in same}}, n)


def write(directory: Path, life: Life, made: Made, parents: Array | None, segment_rows: int) -> int:
    """Segments by hour, of at most this many rows. Returns the number of rows of ``messages``."""
    rows, seq = made.messages, made.seq
    hour = rows["t"] // parquet.HOUR
    edges = [0, *(np.flatnonzero(np.diff(hour)) + 1).tolist(), seq.size]
    written = 0
    last_end = 0
    for start, stop in pairwise(edges):
        for begin in range(start, stop, segment_rows):
            end = min(stop, begin + segment_rows)
            part = {name: values[begin:end] for name, values in rows.items()}
            finished = part["event"] == FINISHED
            first, last = last_end + 1, int(seq[end - 1])
            last_end = last
            moment = datetime.fromtimestamp(int(hour[begin]) * parquet.HOUR / 1e6, UTC)
            for kind in (MESSAGES, REQUESTS):
                chosen = finished if kind == REQUESTS else ~finished
                if not chosen.any():
                    continue
                if kind == REQUESTS:
                    made_table = record_table(life, made, part["number"][chosen], seq[begin:end][chosen], parents)
                else:
                    made_table = message_table(
                        life, made.jobs, {name: values[chosen] for name, values in part.items()}, seq[begin:end][chosen]
                    )
                    written += made_table.num_rows
                folder = directory / life.name / f"kind={kind}" / f"date={moment:%Y-%m-%d}" / f"hour={moment:%H}"
                folder.mkdir(parents=True, exist_ok=True)
                parquet.write(folder / segment_name(life.run, first, last), kind, [made_table])
    return written


ROWS_PER_REQUEST = 3.6  # of messages, as these lives are


def generate(
    directory: Path, rows: int, seed: int = 1, breaches: int = 1, seconds: float = 5400.0, segment_rows: int = 400_000
) -> dict[str, Any]:
    """Writes about this many rows of ``messages`` of four brokers: one has a bridge to the next, one has lost rows and states it, one was
    killed and restarted, at level ``requests``."""
    dice = np.random.default_rng(seed)
    total = max(200, int(rows / ROWS_PER_REQUEST))
    runs = [int(run) for run in dice.integers(1 << 30, 1 << 39, 5)]
    lives = [
        Life("north", runs[0], int(total * 0.45), seconds, breaches, bridge=True),
        Life("south", runs[1], int(total * 0.3), seconds, breaches),
        Life("west", runs[2], int(total * 0.15), seconds, 0, loses=True),
        Life("east", runs[3], int(total * 0.1), seconds, 0, killed=True),
        Life("east", runs[4], int(total * 0.05), seconds / 3, 0, begins=seconds * 0.6, level=schema.REQUESTS),
    ]
    directory.mkdir(parents=True, exist_ok=True)
    planted: list[Any] = []
    crossing = None
    parents = None
    moving: list[Any] = []
    written = 0
    for life in lives:
        life.visitors = crossing
        life.taken_over = moving
        made = make(life, dice, plant)
        written += write(directory, life, made, parents, segment_rows)
        planted += made.planted
        moving = made.moving
        crossing = parents = None
        if made.leaving is not None:
            parents = ids(made.leaving.pop("ms"), life.run, made.leaving.pop("number"))
            crossing = made.leaving
        if life.killed:
            lives[-1].covers = (life.run, *made.lost)
    names = [*dict.fromkeys(life.name for life in lives)]
    facts = {"rows": written, "seed": seed, "brokers": names, "planted": planted}
    (directory / "planted.json").write_text(json.dumps(facts))
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--million", type=float, default=1.0, help="rows of `messages`")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--breaches", type=int, default=1, help="of each rule, in each of two brokers")
    given = parser.parse_args()
    began = time.monotonic()
    try:
        facts = generate(given.directory, int(given.million * 1e6), given.seed, given.breaches)
    except ValueError as error:
        parser.error(str(error))
    took = time.monotonic() - began
    print(f"{facts['rows']:,} rows of messages, {len(facts['planted'])} breaches planted, in {took:.1f} s")


if __name__ == "__main__":
    main()
