"""Every rule catches what breaks it, in Python and in SQL alike, and nothing else does."""

import copy
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from polydomo.journal import schema
from polydomo.journal.reading import audit as auditing
from polydomo.journal.reading import rules
from polydomo.journal.reading.audit import audit
from polydomo.journal.reading.rules import COUNTERS, RULES, RUN
from polydomo.journal.schema import MESSAGES, REQUESTS
from tests.journal.stage import Row, journalled, live

RunOf = tuple[str, int, int]  # rule, run, sequence number of the last row that proves it; 0 where it takes all rows


def journal(seed: int = 1, steps: int = 400) -> list[Row]:
    world, recorder = journalled()
    live(world, seed, steps)
    recorder.end("over")
    return recorder.rows()


def lone_request() -> list[Row]:
    """One request that is requeued once and then answered."""
    world, recorder = journalled()
    client, first = world.client(), world.worker()
    client.ask()
    world.wait(1.0)
    first.close()
    second = world.worker()
    world.wait(1.0)
    second.answer()
    world.broker.shutdown()
    recorder.end("over")
    return recorder.rows()


def event(rows: list[Row], name: str, nth: int = 0) -> Row:
    return [row for row in rows if row.get("event") == name][nth]


def finished(rows: list[Row]) -> Row:
    return next(row for row in rows if "event" not in row)


def add(rows: list[Row], like: Row, **changes: object) -> Row:
    """One more row before the last, with a sequence number of its own."""
    last = rows[-1]
    made = {**copy.deepcopy(like), **changes, "seq": last["seq"]}
    last["seq"] += 1
    rows.insert(len(rows) - 1, made)
    return made


def remove(rows: list[Row], *gone: Row) -> None:
    """The rows were never there: those after them move up."""
    for row in gone:
        rows.remove(row)
    for number, row in enumerate(rows, 1):
        row["seq"] = number


def late_lost(rows: list[Row]) -> None:
    event(rows, schema.LOST).update(silence_us=30_000_000, allowed_us=7_500_000)


def first_come_first(rows: list[Row]) -> None:
    """Another request is dispatched while a requeued one waits."""
    again = event(rows, schema.DISPATCHED, 1)
    place = rows.index(again)
    other = {**again, "number": 99, "attempt": 1, "worker": 0}
    for row in rows[place:]:
        row["seq"] += 1
    rows.insert(place, other)


def twice(rows: list[Row], outcome: str, once: str) -> None:
    """The same thing happens to a job or a schedule at two brokers."""
    first = add(
        rows, schema.row(schema.MESSAGES, run=rows[0]["run"], time=rows[-1]["time"], broker="b", event=schema.JOB)
    )
    first |= {"outcome": outcome, "once": once}
    rows.append({**first, "run": 77, "seq": 1, "broker": "another"})


def nodes(rows: list[Row], *events: Row) -> None:
    """Events of nodes of a flow, each in a run of its own: node 1 needs node 0."""
    for run, given in enumerate(events, 101):
        row = schema.row(
            schema.MESSAGES, run=run, seq=1, time=rows[-1]["time"], broker="b", event=schema.JOB, flow="01FLOW"
        )
        rows.append({**row, **given})


def released(node: int, position: int, needs: str = "") -> Row:
    return {"outcome": "accepted", "node": node, "position": position, "needs": needs}


def reuse(*steps: str) -> Callable[[list[Row]], None]:
    """What happened to node 0 within one run: lookups in the memo store, and the end of the node."""

    def plant(rows: list[Row]) -> None:
        nodes(rows, *[
            {"run": 101, "seq": seq, **({"event": schema.JOB, "outcome": "done", "code": step, "position": 1}
             if step in ("ok", "reused") else {"event": schema.MEMO, "outcome": step})}
            for seq, step in enumerate(steps, 1)
        ])  # fmt: skip

    return plant


def node_end(node: int, position: int, since: int = 0, **more: Any) -> Row:
    return {"outcome": "done", "node": node, "position": position, "since": since, **more}


@pytest.mark.parametrize(
    "events",
    [
        (released(0, 1), node_end(0, 1), released(1, 2, "0"), node_end(1, 2)),
        (node_end(0, 4, since=3), released(1, 2, "0")),  # node 0 was retried after node 1 had run
        (node_end(0, 4, since=3), node_end(0, 1), released(1, 5, "0")),
        (node_end(0, 0), released(1, 0, "0"), node_end(0, 0)),  # the answers of the store were lost
        (node_end(0, 1, nodes=3), released(1, 4, "0"), node_end(0, 3, event=schema.NODE, needs="4")),  # it was replaced
    ],
)
def test_nodes_in_order(events: tuple[Row, ...]) -> None:
    rows = lone_request()
    nodes(rows, *events)
    assert audit(rows) == []


@pytest.mark.parametrize(
    "steps",
    [
        ("hit", "reused"),
        ("miss", "hit", "reused"),  # the first attempt failed, and then an equal call had a result
        ("hit", "miss", "ok"),  # the outcome of the hit was not stored, because the broker led no longer
        ("hit", "miss", "hit", "reused"),
        ("reused",),  # the hit is not in the journal
    ],
)
def test_a_node_is_reused_or_run(steps: tuple[str, ...]) -> None:
    rows = lone_request()
    reuse(*steps)(rows)
    assert audit(rows) == [] and in_sql(rows) == set()


# tests/journal/reading/test_authority_audit.py plants these
AUTHORITY = {
    "origin-known",
    "forwarded-with-the-right",
    "job-with-the-right",
    "registered-with-the-right",
    "no-call-of-built-in",
}
PLANTED: list[tuple[str, Callable[[list[Row]], object]]] = [
    ("one-outcome", lambda rows: add(rows, event(rows, schema.FINAL))),
    ("one-record", lambda rows: add(rows, finished(rows))),
    ("some-outcome", lambda rows: remove(rows, event(rows, schema.FINAL), finished(rows))),
    ("outcome-recorded", lambda rows: remove(rows, finished(rows))),
    ("nothing-after-outcome", lambda rows: add(rows, event(rows, schema.REQUEUED))),
    ("one-holder", lambda rows: remove(rows, event(rows, schema.REQUEUED))),
    ("fenced", lambda rows: event(rows, schema.FINAL).update(worker=1)),
    ("fenced", lambda rows: event(rows, schema.FINAL).update(attempt=1)),
    ("to-the-asker", lambda rows: event(rows, schema.FINAL).update(client=77)),
    ("attempts-bounded", lambda rows: finished(rows).update(attempts=4)),
    ("answered-by-a-worker", lambda rows: finished(rows).update(dispatches=0)),
    ("times-in-order", lambda rows: finished(rows).update(wait_us=finished(rows)["total_us"], run_us=10)),
    ("no-more-than-asked", lambda rows: event(rows, schema.REGISTERED, 1).update(credit=0)),
    ("nothing-after-goodbye", lambda rows: event(rows, schema.DISPATCHED, 1).update(worker=1)),
    ("nothing-after-closing", lambda rows: event(rows, schema.DISPATCHED, 1).update(connection=2)),
    ("given-back-first", first_come_first),
    ("silence-acted-on", late_lost),
    (
        "not-given-up-early",
        lambda rows: event(rows, schema.LOST).update(outcome="silence", silence_us=1, allowed_us=7_500_000),
    ),
    ("called-with-the-right", lambda rows: event(rows, schema.ACCEPTED).update(principal="mallory", allowed=2)),
    ("given-with-the-right", lambda rows: event(rows, schema.DISPATCHED).update(principal="mallory", allowed=2)),
    ("job-one-outcome", lambda rows: twice(rows, "done", "01JOB")),
    ("schedule-fires-once", lambda rows: twice(rows, "fired", "nightly 2026-01-01T00:00:00.000000Z")),
    ("node-after-needs", lambda rows: nodes(rows, released(1, 1, "0"), node_end(0, 1))),
    ("node-after-needs", lambda rows: nodes(rows, released(1, 4, "0"), node_end(0, 1), node_end(0, 5, since=3))),
    (
        "node-one-outcome",
        lambda rows: nodes(rows, node_end(0, 1), node_end(0, 2, event=schema.NODE, outcome="skipped")),
    ),
    ("reused-node-not-run", reuse("hit", "miss", "reused")),
    ("reused-node-not-run", reuse("miss", "hit", "reused", "joined")),
    ("no-hole", lambda rows: rows.remove(event(rows, schema.CONNECTED))),
    ("no-hole", lambda rows: rows.append({**event(rows, schema.CONNECTED)})),
]


def test_the_unharmed_journal_is_in_order() -> None:
    assert audit(lone_request()) == []


@pytest.mark.parametrize(("rule", "plant"), PLANTED, ids=[f"{i}-{rule}" for i, (rule, _) in enumerate(PLANTED)])
def test_a_planted_breach_is_found(rule: str, plant: Callable[[list[Row]], object]) -> None:
    rows = lone_request()
    plant(rows)
    found = audit(rows)
    assert rule in {breach.rule for breach in found}
    proof = next(breach for breach in found if breach.rule == rule)
    assert proof.proof and rules.BY_ID[rule].says in str(proof)
    assert found == audit(list(reversed(rows)))  # in whatever order they are read


def test_every_rule_has_a_planted_breach() -> None:
    assert {rule for rule, _ in PLANTED} | AUTHORITY == set(rules.BY_ID)


def test_only_named_rules_are_checked() -> None:
    rows = lone_request()
    add(rows, event(rows, schema.FINAL))
    assert [breach.rule for breach in audit(rows, ["one-record"])] == []


def test_a_covered_gap_breaks_no_rule_but_disables_rules_that_need_its_rows() -> None:
    rows = lone_request()
    gone = [event(rows, schema.REQUEUED), event(rows, schema.DISPATCHED, 1)]
    for row in gone:
        rows.remove(row)
    assert "no-hole" in {breach.rule for breach in audit(rows)}
    run = rows[0]["run"]
    first, last = gone[0]["seq"], gone[1]["seq"]
    add(rows, rows[0], event=schema.MISSING, covers_run=run, covers_first=first, covers_last=last)
    found = {breach.rule for breach in auditing.holes(rows)}
    between = set(range(first, last + 1)) - {gone[0]["seq"], gone[1]["seq"]}
    assert found == ({"no-hole"} if between else set())


def test_a_lost_tail_that_the_next_run_states_breaks_no_rule() -> None:
    rows = [row for row in lone_request() if row["seq"] < 9]
    run = rows[0]["run"]
    successor = schema.row(
        MESSAGES, run=run + 1, seq=1, event=schema.STARTED, covers_run=run, covers_first=9, covers_last=20
    )
    assert audit([*rows, successor]) == []


def test_a_journal_that_begins_later_breaks_no_rule() -> None:
    rows = lone_request()
    for start in range(len(rows)):
        assert auditing.holes(rows[start:]) == []


def test_rules_by_level() -> None:
    assert rules.checkable(schema.OFF) == []
    assert {rule.level for rule in rules.checkable(REQUESTS)} == {REQUESTS}
    assert rules.checkable(MESSAGES) == list(RULES)


def test_no_counter_has_the_name_of_a_column() -> None:
    columns = set(schema.names(MESSAGES)) | set(schema.names(REQUESTS))
    assert not columns & {counter.name for counter in COUNTERS}


# --- in SQL -------------------------------------------------------------------------------------------------------------


def relation(rows: list[Row]) -> pa.Table:
    """Both kinds as one relation, with nothing in what a kind has not."""
    columns = {column.name: column for kind in schema.KINDS for column in schema.COLUMNS[kind]}
    fields = {field.name: field for kind in schema.KINDS for field in schema.arrow(kind)}
    made = {name: [row.get(name, column.nothing) for row in rows] for name, column in columns.items()}
    made["kind"] = [auditing.kind_of(row) for row in rows]
    return pa.table(made, schema=pa.schema([*fields.values(), pa.field("kind", pa.string())]))


NODE_ENDS = """(SELECT * FROM journal WHERE flow != '' AND position > 0 AND nodes = 0
    AND (event = 'node' OR (event = 'job' AND outcome IN ('done', 'dead', 'cancelled'))))"""
NEEDED = """(SELECT run, seq, flow, position, unnest(string_split(needs, ',')) AS part FROM journal
    WHERE event = 'job' AND flow != '' AND position > 0 AND needs != '' AND outcome IN ('accepted', 'reopened'))"""
OF_NODES = {
    "node-after-needs": f"""
        SELECT DISTINCT r.run, r.seq FROM {NEEDED} AS r JOIN {NODE_ENDS} AS e ON e.flow = r.flow
        AND e.node BETWEEN split_part(r.part, '-', 1)::INT AND split_part(r.part, '-', -1)::INT
        AND r.position > e.since AND r.position <= e.position WHERE r.part != '...'""",
    "node-one-outcome": f"""
        SELECT run, seq FROM (SELECT run, seq, count(*) OVER (PARTITION BY flow, node, since) AS n,
            row_number() OVER (PARTITION BY flow, node, since ORDER BY time DESC, run DESC, seq DESC) AS place
        FROM {NODE_ENDS}) WHERE n > 1 AND place = 1""",
    "reused-node-not-run": """
        SELECT run, max(later.seq) FROM (
            SELECT run, flow, node, e.seq, max(h.seq) AS hit FROM journal AS e JOIN journal AS h USING (run, flow, node)
            WHERE flow != '' AND e.event = 'job' AND e.code = 'reused' AND h.event = 'memo' AND h.outcome = 'hit' AND h.seq < e.seq
            GROUP BY ALL
        ) JOIN journal AS later USING (run, flow, node)
        WHERE later.event = 'memo' AND later.outcome IN ('miss', 'joined') AND later.seq > hit GROUP BY run, flow, node""",
}


def in_sql(rows: list[Row]) -> set[RunOf]:
    """The audit as the pipeline does it, in DuckDB."""
    db = duckdb.connect()
    db.register("journal", relation(rows))
    run_counters = [counter for counter in COUNTERS if counter.scope == RUN]
    joins = ""
    for counter in run_counters:
        key = (counter.key or counter.scope)[0]
        joins += (
            f" LEFT JOIN (SELECT {key} AS r, {rules.total(counter)} AS {counter.name} FROM journal GROUP BY {key}) AS of_{counter.name}"
            f" USING (r)"
        )
    shown = ", ".join(f"coalesce({counter.name}, 0) AS {counter.name}" for counter in run_counters)
    db.execute(
        f"CREATE TABLE runs AS SELECT r AS run, {shown} FROM (SELECT DISTINCT run AS r FROM journal) AS known{joins}"
    )
    found: set[RunOf] = set()
    for rule in RULES:
        counters = [counter for counter in COUNTERS if counter.scope == rule.scope != RUN]
        if rule.shape == rules.EACH:
            query = f"SELECT run, seq FROM journal WHERE {rules.looked_at(rule)} AND ({rule.broken})"
        elif rule.shape == rules.RUNNING:
            running = ", ".join(f"{rules.running(counter)} AS {counter.name}" for counter in counters)
            query = (
                f"SELECT run, seq FROM (SELECT *, {running or '0'} FROM journal) JOIN runs USING (run)"
                f" WHERE {rules.looked_at(rule)} AND ({rule.broken})"
            )
        elif rule.shape == rules.TOTAL:
            totals = ", ".join(f"{rules.total(counter)} AS {counter.name}" for counter in counters)
            keys = ", ".join(rule.scope)
            query = (
                f"SELECT run, 0 FROM (SELECT {keys}, {totals} FROM journal WHERE number != 0 GROUP BY {keys}) JOIN runs USING (run)"
                f" WHERE {rule.broken}"
            )
        elif rule.shape == rules.ONCE:
            chosen = f"SELECT * FROM journal WHERE {rules.looked_at(rule)} AND ({rule.broken}) AND once != ''"
            last = "row_number() OVER (PARTITION BY once ORDER BY time DESC, run DESC, seq DESC)"
            several = "count(*) OVER (PARTITION BY once)"
            query = f"SELECT run, seq FROM (SELECT run, seq, {last} AS place, {several} AS n FROM ({chosen})) WHERE n > 1 AND place = 1"
        elif rule.shape == rules.FLOWS:
            query = OF_NODES[rule.id]
        else:
            continue
        found |= {(rule.id, run, seq) for run, seq in db.execute(query).fetchall()}
    return found


def in_python(rows: list[Row]) -> set[RunOf]:
    shapes = {rule.id: rule.shape for rule in RULES}
    return {
        (breach.rule, breach.run, 0 if shapes[breach.rule] == rules.TOTAL else breach.proof[-1][1])
        for breach in audit(rows)
        if shapes[breach.rule] != rules.SEQUENCE
    }


@pytest.mark.parametrize(("rule", "plant"), PLANTED, ids=[f"{i}-{rule}" for i, (rule, _) in enumerate(PLANTED)])
def test_sql_finds_what_python_finds(rule: str, plant: Callable[[list[Row]], object]) -> None:
    rows = lone_request()
    plant(rows)
    assert in_sql(rows) == in_python(rows)


def test_sql_finds_nothing_in_an_unharmed_life() -> None:
    assert in_sql(journal()) == set()
