"""Audits a run in DuckDB, from a saved state: translates the rules of ``journal/rules.py`` to SQL.

A counter becomes a window function over the new rows plus the saved value of its key; ``broken`` becomes a filter. The state at a
sequence number holds, for every scope (request, worker, connection, service):

* ``counts``: the counters of open keys, with the last rows that were counted;
* ``retired``: ranges of keys that are complete: requests that ended and have a record, workers that left, connections that closed. If a row
  about such a key arrives, the scope is audited from the beginning: the row is a breach, or close to one, and rare.

Breaches of TOTAL rules are computed from the state, so a key with one is not retired. Breaches of the other rules are found once, at their
row.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from polydomo.journal import audit as reference
from polydomo.journal import rules, schema
from polydomo.journal.rules import COUNTERS, EACH, LAST, LAST_BASE, RULES, RUN, RUNNING, SUM, TOTAL, Counter, Rule
from polydomo.journal.schema import MESSAGES, REQUESTS
from polydomo.pipeline.engine import prefilters
from polydomo.pipeline.engine.duck import Duck

Scope = tuple[str, ...]
SCOPES: tuple[Scope, ...] = tuple(dict.fromkeys(counter.scope for counter in COUNTERS if counter.scope != RUN))
STATE = pa.schema(
    [
        ("scope", pa.string()), ("what", pa.string()), ("key", pa.int64()), ("stop", pa.int64()), ("name",
        pa.string()), ("seq", pa.int64()), ("time", pa.timestamp("us", "UTC")), ("seqs", pa.list_(pa.int64())),
        *((counter.name, pa.int64()) for counter in COUNTERS if counter.scope != RUN),
    ]
)  # fmt: skip


def _looked_at(kind: str) -> list[str]:
    """The columns of a kind that rules and counters use."""
    texts = [rule.broken for rule in RULES] + [f"{counter.where} {counter.value}" for counter in COUNTERS]
    keys = {name for rule in RULES for name in rule.scope} | {
        name for counter in COUNTERS for name in (*counter.scope, *counter.key)
    }
    words = {
        "time",
        "seq",
        "event",
        "number",
        "worker",
        *keys,
        *(word for text in texts for word in re.findall(r"\w+", text)),
    } - {"run"}
    return [column.name for column in schema.COLUMNS[kind] if column.name in words]


NARROW = {kind: _looked_at(kind) for kind in schema.KINDS}
TEXT_KEYS = frozenset(
    column.name for kind in schema.KINDS for column in schema.COLUMNS[kind] if column.type == schema.TEXT
)
# When a key is complete; keys of other scopes never are. A request that has only a record was journalled at level ``requests``.
RETIRED = {
    "number": "finished = 1 AND (outcomes = 1 OR (outcomes = 0 AND acceptances = 0))",
    "worker": "goings > 0",
    "connection": "closings > 0",
}

# Merges adjacent ranges of ``spans`` (first, last): ranges of the same island belong together.
ISLANDS = """marked AS (
    SELECT first, last, first > 1 + coalesce(max(last) OVER (ORDER BY first, last ROWS BETWEEN UNBOUNDED PRECEDING
        AND 1 PRECEDING), -9) AS starts
    FROM spans
),
grouped AS (SELECT *, count(*) FILTER (starts) OVER (ORDER BY first, last ROWS BETWEEN UNBOUNDED PRECEDING
    AND CURRENT ROW) AS island FROM marked)"""


def relation(kind: str, source: str) -> str:
    """Rows of one kind with the columns of both kinds; missing columns are empty."""
    types = {column.name: column.type for one in schema.KINDS for column in schema.COLUMNS[one]}
    columns = [name if name in NARROW[kind] else f"{_nothing(types[name])} AS {name}" for name in _columns()]
    return f"SELECT '{kind}' AS kind, {', '.join(columns)} FROM {source}"


def _columns() -> list[str]:
    return [*dict.fromkeys([*NARROW[MESSAGES], *NARROW[REQUESTS]])]


def _nothing(word: str) -> str:
    return "''" if word == schema.TEXT else "0"


def counters_of(scope: Scope) -> list[Counter]:
    return [counter for counter in COUNTERS if counter.scope == scope]


def rules_of(shape: str, scope: Scope) -> list[Rule]:
    return [rule for rule in RULES if rule.shape == shape and rule.scope == scope]


def _any(conditions: Iterable[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def depends_on_missing(rule: Rule) -> bool:
    """Whether the rule applies only to runs that lost no rows."""
    return "run_missing == 0" in rule.broken


@dataclass
class RunAudit:
    """Audits the rows of one run after ``base``. ``new_messages`` and ``new_records`` are views of these rows; ``state`` is a table.

    ``open_all`` makes the views ``all_messages`` and ``all_records``, of all rows of the run that the journal has.
    """

    duck: Duck
    base: int
    stopped: int
    missing: int
    open_all: Callable[[], None]
    redone: list[Scope] = field(default_factory=list)  # scopes that were audited from the beginning
    states: list[str] = field(default_factory=list)  # tables of the new state

    def run(self) -> None:
        """Creates the tables ``breaches`` (rule, key, name, seq, time, proof) and ``new_state``."""
        self.duck.run(
            """CREATE OR REPLACE TEMP TABLE breaches (rule VARCHAR, number BIGINT, worker BIGINT, connection BIGINT,
    service VARCHAR, seq BIGINT, time TIMESTAMPTZ, proof BIGINT[], detail VARCHAR)""",
            base=self.base,
        )
        self._each()
        for scope in SCOPES:
            self._scope(scope)
        self.duck.load("new_state", STATE.empty_table())
        for table in self.states:
            self.duck.run(f"INSERT INTO new_state BY NAME SELECT * FROM {table}")

    def _each(self) -> None:
        for kind, source in ((MESSAGES, "new_messages"), (REQUESTS, "new_records")):
            for rule in RULES:
                if rule.shape == EACH and rule.kind == kind:
                    self.duck.run(
                        f"""INSERT INTO breaches SELECT '{rule.id}', number, worker, 0, '', seq, time, [seq], ''
    FROM ({relation(kind, source)}) WHERE {rules.looked_at(rule)} AND ({rule.broken})"""
                    )

    # --- one scope -------------------------------------------------------------------------------------------------------

    def _scope(self, scope: Scope, redo: bool = False) -> None:
        duck, part = self.duck, scope[-1]
        which = "all" if redo else "new"
        if redo:
            if not self.redone:
                self.open_all()
            self.redone.append(scope)
            duck.run(
                "CREATE OR REPLACE TEMP TABLE state AS SELECT * FROM state WHERE scope != getvariable('scope')",
                scope=part,
            )
        kinds = {counter.kind for counter in counters_of(scope)} | {rule.kind for rule in RULES if rule.scope == scope}
        for name in ("messages", "records"):
            duck.run(f"CREATE OR REPLACE TEMP VIEW these_{name} AS FROM {which}_{name}")
        parts = [
            relation(kind, "these_messages" if kind == MESSAGES else "these_records")
            for kind in schema.KINDS
            if kind in kinds
        ]
        counted = _any(rules.counted(counter) for counter in counters_of(scope))
        looked = _any(rules.looked_at(rule) for rule in rules_of(RUNNING, scope))
        duck.run(
            f"""CREATE OR REPLACE TEMP VIEW matter AS SELECT *, {part} AS key FROM ({" UNION ALL ".join(parts)})
    WHERE ({counted}) OR ({looked})"""
        )
        if not redo and part not in TEXT_KEYS and self._reappeared(scope):
            self._scope(scope, redo=True)
            return
        self._suspects(scope)
        key = "name" if part in TEXT_KEYS else "key"
        running = rules_of(RUNNING, scope)
        columns = [f"{_amount(counter)} AS {counter.name}_added" for counter in counters_of(scope)]
        columns += [f"{rules.looked_at(rule)} AS looked_{place}" for place, rule in enumerate(running)]
        columns += [
            name for name in _columns() if name not in ("seq", "time") and any(_asks(rule, name) for rule in running)
        ]
        duck.run(
            f"""CREATE OR REPLACE TEMP TABLE known AS SELECT * FROM state WHERE scope = getvariable('scope') AND what = 'counts';
CREATE OR REPLACE TEMP TABLE closer AS SELECT key, seq, time, ({counted}) AS counted, {", ".join(columns)}
    FROM matter WHERE key IN (SELECT key FROM suspects)""",
            scope=part,
        )
        self._running(scope, key)
        self._totals(scope, key, counted)
        self._retire(scope, counted)

    def _reappeared(self, scope: Scope) -> bool:
        """Whether there are new rows about a retired key."""
        part = scope[-1]
        self.duck.run(
            """CREATE OR REPLACE TEMP TABLE retired AS
SELECT key AS first, stop FROM state WHERE scope = getvariable('scope') AND what = 'retired'""",
            scope=part,
        )
        if not self.duck.value("SELECT count(*) FROM retired"):
            return False
        exempt = " AND key != 0" if part != "worker" else ""
        asked = f"""SELECT count(*) FROM (SELECT DISTINCT key FROM matter WHERE true{exempt}) k ASOF JOIN retired r ON k.key >= r.first
            WHERE k.key <= r.stop"""
        return bool(self.duck.value(asked))

    def _suspects(self, scope: Scope) -> None:
        """Creates ``suspects``: the keys whose rows are checked one by one."""
        if scope in prefilters.BY_SCOPE and prefilters.usable(scope):
            self.duck.run(prefilters.BY_SCOPE[scope])
        else:
            self.duck.run("CREATE OR REPLACE TEMP TABLE suspects AS SELECT DISTINCT key FROM matter")

    def _running(self, scope: Scope, key: str) -> None:
        """Finds breaches of RUNNING rules, with the counters up to each row."""
        known = rules_of(RUNNING, scope)
        used = [counter for counter in counters_of(scope) if any(_asks(rule, counter.name) for rule in known)]
        if not known:
            return
        here = "OVER (PARTITION BY c.key ORDER BY c.seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
        columns = ", ".join(f"{_so_far(counter, here)} AS {counter.name}" for counter in used)
        looked = _any(f"looked_{place}" for place in range(len(known)))
        names = [
            name for name in _columns() if name not in ("seq", "time") and any(_asks(rule, name) for rule in known)
        ]
        names += ["key", "seq", "time", *(f"looked_{place}" for place in range(len(known)))]
        broken = ", ".join(
            f"if(looked_{place} AND ({rule.broken}), '{rule.id}', NULL)" for place, rule in enumerate(known)
        )
        self.duck.run(
            f"""CREATE OR REPLACE TEMP TABLE found AS
WITH stood AS (SELECT {", ".join(f"c.{name}" for name in names)}, {columns} FROM closer c LEFT JOIN known k ON c.key = k.{key}),
judged AS (SELECT *, {self.stopped} AS run_stopped, {self.missing} AS run_missing FROM stood WHERE {looked})
SELECT unnest(list_filter([{broken}], lambda x: x IS NOT NULL)) AS rule, key, seq, time FROM judged"""
        )
        # the last rows that were counted up to each breach, including those in the state
        most = reference.MAX_PROOF
        self.duck.run(
            f"""CREATE OR REPLACE TEMP TABLE proofs AS
WITH chosen AS (SELECT DISTINCT key, seq FROM closer WHERE counted AND key IN (SELECT key FROM found) UNION
    SELECT {key}, unnest(seqs) FROM known WHERE {key} IN (SELECT key FROM found))
SELECT key, seq, list(seq) OVER (PARTITION BY key ORDER BY seq ROWS BETWEEN {most - 2} PRECEDING AND CURRENT ROW) AS seqs
FROM chosen"""
        )
        proof = "list_append(list_filter(coalesce(p.seqs, []), lambda s: s != f.seq), f.seq)"
        self.duck.run(
            f"INSERT INTO breaches SELECT f.rule, {_about(scope, 'f.key')}, f.seq, f.time, {proof}, '' "
            "FROM found f ASOF LEFT JOIN proofs p ON f.key = p.key AND f.seq >= p.seq"
        )

    def _totals(self, scope: Scope, key: str, counted: str) -> None:
        """Finds breaches of TOTAL rules, and computes the counts of all suspects and of all keys in the state."""
        counters = counters_of(scope)
        if scope[-1] in TEXT_KEYS:  # services that the prefilter has cleared have counts, too
            sums = ", ".join(f"{_total(counter, _amount(counter))} AS {counter.name}" for counter in counters)
            source = f"matter WHERE ({counted})"
        else:
            sums = ", ".join(f"{_total(counter, f'{counter.name}_added')} AS {counter.name}" for counter in counters)
            source = "closer WHERE counted"
        merged = ", ".join(f"{_merge(counter)} AS {counter.name}" for counter in counters)
        most = reference.MAX_PROOF
        self.duck.run(
            f"""CREATE OR REPLACE TEMP TABLE sums AS
WITH fresh AS (SELECT key, {sums}, max(seq) AS seq, arg_max(time, seq) AS time, list_slice(list(DISTINCT seq ORDER BY seq),
    -{most}, -1) AS seqs
    FROM {source} GROUP BY key)
SELECT coalesce(f.key, k.{key}) AS key, {merged}, coalesce(f.seq, k.seq) AS seq, coalesce(f.time, k.time) AS time,
    list_slice(list_concat(coalesce(k.seqs, []), coalesce(f.seqs, [])), -{most}, -1) AS seqs
FROM fresh f FULL JOIN known k ON f.key = k.{key}"""
        )
        known = rules_of(TOTAL, scope)
        broken = ", ".join(f"if({rule.broken}, '{rule.id}', NULL)" for rule in known)
        found = (
            f"unnest(list_filter([{broken}], lambda x: x IS NOT NULL))" if known else "unnest(CAST([] AS VARCHAR[]))"
        )
        self.duck.run(
            f"""CREATE OR REPLACE TEMP TABLE totals AS SELECT {found} AS rule, key, seq, time, seqs
FROM (SELECT *, {self.stopped} AS run_stopped, {self.missing} AS run_missing FROM sums)"""
        )
        self.duck.run(f"INSERT INTO breaches SELECT rule, {_about(scope, 'key')}, seq, time, seqs, '' FROM totals")

    def _retire(self, scope: Scope, counted: str) -> None:
        """Computes the scope's part of the new state."""
        part, duck = scope[-1], self.duck
        names = ", ".join(counter.name for counter in counters_of(scope))
        done = f"({RETIRED.get(part, 'false')}) AND key NOT IN (SELECT key FROM totals)"
        place = "NULL AS key, NULL AS stop, key AS name" if part in TEXT_KEYS else "key, NULL AS stop, '' AS name"
        table = f"state_of_{part}"
        duck.run(
            f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT '{part}' AS scope, 'counts' AS what, {place}, seq, time, seqs, {names} "
            f"FROM sums WHERE NOT ({done})"
        )
        self.states.append(table)
        if part in TEXT_KEYS:
            return
        # retired keys: those of the state, those that are complete now, and those that the prefilter cleared
        cleared = (
            f"SELECT DISTINCT key FROM matter WHERE ({counted}) AND key != 0 AND key NOT IN (SELECT key FROM suspects)"
        )
        if part == "number":
            cleared += " AND kind = 'requests'"
        duck.run(
            f"""CREATE OR REPLACE TEMP TABLE retired_{part} AS
WITH keys AS (SELECT key FROM sums WHERE {done} UNION {cleared}),
spans AS (
    SELECT key AS first, stop AS last FROM state WHERE scope = '{part}' AND what = 'retired' UNION ALL
    SELECT min(key), max(key) FROM (SELECT key, key - row_number() OVER (ORDER BY key) AS island FROM keys) GROUP BY island
),
{ISLANDS}
SELECT '{part}' AS scope, 'retired' AS what, min(first) AS key, max(last) AS stop, '' AS name, 0 AS seq FROM grouped GROUP BY island"""
        )
        self.states.append(f"retired_{part}")


def _asks(rule: Rule, name: str) -> bool:
    return re.search(rf"\b{name}\b", rule.broken) is not None


def _amount(counter: Counter) -> str:
    """SQL for what a row adds to the counter."""
    value = f"seq * {LAST_BASE} + {counter.value}" if counter.how == LAST else counter.value
    return f"CASE WHEN {rules.counted(counter)} THEN {value} ELSE 0 END"


def _so_far(counter: Counter, over: str) -> str:
    if counter.how == SUM:
        return f"CAST(coalesce(k.{counter.name}, 0) + sum(c.{counter.name}_added) {over} AS BIGINT)"
    greatest = f"greatest(coalesce(k.{counter.name}, 0), max(c.{counter.name}_added) {over})"
    return f"{greatest} % {LAST_BASE}" if counter.how == LAST else greatest


def _total(counter: Counter, amount: str) -> str:
    """SQL for the value in the state: a last value stays combined with its sequence number."""
    return f"CAST({'sum' if counter.how == SUM else 'max'}({amount}) AS BIGINT)"


def _merge(counter: Counter) -> str:
    both = f"coalesce(f.{counter.name}, 0)", f"coalesce(k.{counter.name}, 0)"
    return f"{both[0]} + {both[1]}" if counter.how == SUM else f"greatest({both[0]}, {both[1]})"


def _about(scope: Scope, key: str) -> str:
    """SQL for the columns that identify what a breach is about."""
    return ", ".join(
        key if name == scope[-1] else "''" if name == "service" else "0"
        for name in ("number", "worker", "connection", "service")
    )
