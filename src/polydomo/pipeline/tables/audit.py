"""``audit``: every breach of the rules of ``journal/rules.py``, with the rows that prove it.

The rules are translated as they stand: counters become window functions, ``broken`` becomes a filter. That is done in
three steps, each for less rows than the one before. A *screen* (``screens.py``) clears most keys by aggregates of fixed
width. The rows of what it lets through are gathered, once for all scopes, and *searched*: a window over numbers alone.
Breaches that are found, and nobody expects any, are *proven*: the rows that were counted up to each are named.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from polydomo.journal import audit as reference
from polydomo.journal import rules, schema
from polydomo.journal.rules import (
    CONNECTION,
    COUNTERS,
    EACH,
    REQUEST,
    RULES,
    RUN,
    RUNNING,
    SERVICE,
    TOTAL,
    Counter,
    Rule,
)
from polydomo.journal.schema import MESSAGES, REQUESTS
from polydomo.pipeline.tables import local, screens, sequence
from polydomo.pipeline.tables.marks import BIT, marked, marks, with_bits
from polydomo.pipeline.tables.rare import COMMON, rare
from polydomo.pipeline.tables.table import FEW, UNIT, Column, Table, quoted, unit

TABLE = Table(
    "audit",
    "one breach of one rule",
    (
        Column("rule", "STRING", "id of the rule"),
        Column("says", "STRING", "what must hold, in one sentence"),
        Column("broker", "STRING", "the broker"),
        Column("run", "BIGINT", "the run in which it was broken"),
        Column("number", "BIGINT", "the request it is about, if it is about one"),
        Column("worker", "INT", "the worker"),
        Column("connection", "INT", "the connection"),
        Column("service", "STRING", "the service"),
        Column("seq", "BIGINT", "the row at which it was broken; the last one that proves it"),
        Column("time", "TIMESTAMP", "the time of the last row that proves it and is there"),
        Column("proof", "ARRAY<BIGINT>", "sequence numbers of the rows that prove it, at most 20"),
        Column("detail", "STRING", "what else there is to say"),
        *UNIT,
    ),
)

CHECKS = Table(
    "audit_rules",
    "one rule in one run: whether the journal's level showed enough to check it, and what came of it",
    (
        Column("run", "BIGINT", "the run"),
        Column("broker", "STRING", "its broker"),
        Column("level", "STRING", "the level at which it was journalled"),
        Column("rule", "STRING", "id of the rule"),
        Column("says", "STRING", "what must hold"),
        Column("checkable", "BOOLEAN", "whether every breach would be seen at this level"),
        Column("breaches", "BIGINT", "how many there are"),
        *UNIT,
    ),
)

# The columns that rules and counters look at.
NARROW = {
    MESSAGES: (
        "time",
        "broker",
        "run",
        "seq",
        "event",
        "connection",
        "client",
        "service",
        "number",
        "attempt",
        "worker",
        "released",
        "credit",
        "auto",
        "silence_us",
        "allowed_us",
        "outcome",
        "level",
        "covers_run",
        "covers_first",
        "covers_last",
    ),
    REQUESTS: (
        "time",
        "broker",
        "run",
        "seq",
        "number",
        "outcome",
        "attempts",
        "max_attempts",
        "dispatches",
        "worker",
        "wait_us",
        "run_us",
        "total_us",
    ),
}
Row = tuple[Any, ...]
Work = Callable[[], list[Row]]
Together = Callable[[Sequence[Work]], Iterable[list[Row]]]  # does some work, perhaps at the same time


def of(kind: str, rows: DataFrame) -> DataFrame:
    """Rows of one kind as the rules want them: with the columns of both kinds, and "nothing" in what this one has not."""
    types = {column.name: column.type for one in schema.KINDS for column in schema.COLUMNS[one]}
    names = dict.fromkeys([*NARROW[MESSAGES], *NARROW[REQUESTS]])
    nothing = {name: "''" if types[name] == schema.TEXT else "0" for name in names}
    return rows.selectExpr(
        f"'{kind}' AS kind", *(name if name in NARROW[kind] else f"{nothing[name]} AS {name}" for name in names)
    )


def counters_of(scope: tuple[str, ...]) -> list[Counter]:
    return [counter for counter in COUNTERS if counter.scope == scope]


def rules_of(shape: str, scope: tuple[str, ...] = ()) -> list[Rule]:
    return [rule for rule in RULES if rule.shape == shape and rule.scope == scope]


def _any(conditions: Sequence[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def counted_by(scope: tuple[str, ...]) -> str:
    """The condition under which a row changes any counter of the scope."""
    return _any([rules.counted(counter) for counter in counters_of(scope)])


def looked_at_by(known: Sequence[Rule]) -> str:
    return _any([rules.looked_at(rule) for rule in known])


# --- what whole runs say of themselves --------------------------------------------------------------------------------

ACCOUNTS = f"event IN ('{schema.STARTED}', '{schema.MISSING}', '{schema.STOPPED}')"
_RUN_NAMES = [counter.name for counter in counters_of(RUN)]


def run_counters(accounts: DataFrame) -> DataFrame:
    """The counters of whole runs: what a run lost is told after it, by its successor."""
    made: DataFrame | None = None
    for counter in counters_of(RUN):
        (key,) = counter.key or RUN
        part = accounts.where(rules.counted(counter)).selectExpr(
            f"{key} AS run",
            *(
                f"CAST({counter.value if other is counter else 0} AS BIGINT) AS {other.name}"
                for other in counters_of(RUN)
            ),
        )
        made = part if made is None else made.unionByName(part)
    assert made is not None
    return made.groupBy("run").agg(
        *(
            (f.sum if counter.how == rules.SUM else f.max)(counter.name).alias(counter.name)
            for counter in counters_of(RUN)
        )
    )


def with_runs(rows: DataFrame, runs: DataFrame) -> DataFrame:
    return rows.join(f.broadcast(runs), "run", "left").na.fill(0, _RUN_NAMES)


# --- searches ---------------------------------------------------------------------------------------------------------

_KEYS = {
    "number": "0L",
    "worker": "0",
    "connection": "0",
    "service": "''",
}  # what a breach may be about, and nothing of it
FOUND = (
    ("rule", "STRING"), ("run", "BIGINT"), ("number", "BIGINT"), ("worker", "INT"), ("connection", "INT"), ("service", "STRING"),
    ("seq", "BIGINT"),
)  # fmt: skip


def matched(known: Sequence[Rule]) -> str:
    """The ids of the rules that a row breaks: all rules of a scope are judged in one go."""
    tests = []
    for rule in known:
        condition = rule.broken if rule.shape == TOTAL else f"{rules.looked_at(rule)} AND ({rule.broken})"
        tests.append(f"IF({condition}, '{rule.id}', NULL)")
    return f"array_compact(array({', '.join(tests)}))"


def _found(rows: DataFrame, about: Sequence[str]) -> DataFrame:
    """One row for each rule that is ``broken``."""
    keys = [
        f"CAST({name} AS {'BIGINT' if name == 'number' else 'INT'}) AS {name}"
        for name in ("number", "worker", "connection")
    ]
    given = [name if name in about else f"{nothing} AS {name}" for name, nothing in _KEYS.items()]
    return rows.selectExpr("explode(broken) AS rule", "run", *given, "seq").selectExpr(
        "rule", "run", *keys, "service", "seq"
    )


def _used(known: Sequence[Rule]) -> list[Counter]:
    """The counters that the rules ask for."""
    return [
        counter
        for counter in COUNTERS
        if any(counter.scope == rule.scope and _asks(rule, counter.name) for rule in known)
    ]


def _asks(rule: Rule, name: str) -> bool:
    return re.search(rf"\b{name}\b", rule.broken) is not None


def _amount(counter: Counter) -> str:
    """What a row adds to the counter, as one number."""
    value = f"seq * {rules.LAST_BASE}L + {counter.value}" if counter.how == rules.LAST else counter.value
    return f"CAST(CASE WHEN {rules.counted(counter)} THEN {value} ELSE 0 END AS BIGINT)"


def running(rows: DataFrame, runs: DataFrame, known: Sequence[Rule]) -> DataFrame:
    """The breaches of RUNNING rules of one scope among rows that hold all that their counters count of their keys."""
    scope = known[0].scope
    used = _used(known)
    names = dict.fromkeys([*NARROW[MESSAGES], *NARROW[REQUESTS]])
    asked = [name for name in names if name not in scope and any(_asks(rule, name) for rule in known)]
    matter = rows.where(f"({_any([rules.counted(counter) for counter in used])}) OR ({looked_at_by(known)})")
    looked = [f"{rules.looked_at(rule)} AS looked_{place}" for place, rule in enumerate(known)]
    stood = matter.selectExpr(
        *scope, "seq", *asked, *looked, *(f"{_amount(counter)} AS {counter.name}" for counter in used)
    )
    here = Window.partitionBy(*scope).orderBy("seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    columns = []
    for counter in used:
        so_far = (f.sum if counter.how == rules.SUM else f.max)(counter.name).over(here)
        columns.append((so_far % rules.LAST_BASE if counter.how == rules.LAST else so_far).alias(counter.name))
    places = [f"looked_{place}" for place in range(len(known))]
    stood = stood.select(*scope, "seq", *asked, *places, *columns).where(" OR ".join(places))
    broken = ", ".join(
        f"IF({place} AND ({rule.broken}), '{rule.id}', NULL)" for place, rule in zip(places, known, strict=True)
    )
    judged = (
        with_runs(stood, runs).withColumn("broken", f.expr(f"array_compact(array({broken}))")).where("size(broken) > 0")
    )
    return _found(judged, scope)


def totals(rows: DataFrame, runs: DataFrame, known: Sequence[Rule]) -> DataFrame:
    """The same for TOTAL rules. A breach is found at the last row that any counter of the scope counts."""
    scope = known[0].scope
    sums = rows.where(counted_by(scope)).groupBy(*scope).agg(
        *(f.expr(rules.total(counter)).alias(counter.name) for counter in _used(known)), f.max("seq").alias("seq")
    )  # fmt: skip
    return _found(with_runs(sums, runs).withColumn("broken", f.expr(matched(known))).where("size(broken) > 0"), scope)


def each(rows: DataFrame, kind: str) -> DataFrame:
    """The breaches of rules that look at one row alone: it is the proof."""
    known = [rule for rule in rules_of(EACH) if rule.kind == kind]
    broken = rows.where(looked_at_by(known)).withColumn("broken", f.expr(matched(known))).where("size(broken) > 0")
    about = ("number", "worker")
    keys = [name if name in about else f"{nothing} AS {name}" for name, nothing in _KEYS.items()]
    return broken.selectExpr(
        "explode(broken) AS rule", "broker", "run", *keys, "seq", "time", "array(seq) AS proof", "'' AS detail"
    )


# --- proofs -----------------------------------------------------------------------------------------------------------


def proven(rows: DataFrame, found: DataFrame, scope: tuple[str, ...]) -> DataFrame:
    """Breaches of the scope's rules, with the rows that prove them: the last that were counted up to each."""
    at = found.groupBy(*scope, "seq").agg(f.collect_list("rule").alias("broken"))
    matter = (
        rows.where(f"({counted_by(scope)}) OR ({looked_at_by(rules_of(RUNNING, scope))})")
        .join(f.broadcast(found.select(*scope).distinct()), list(scope), "left_semi")
        .selectExpr(*scope, "seq", "time", "broker", f"IF({counted_by(scope)}, seq, NULL) AS counted")
        .join(f.broadcast(at), [*scope, "seq"], "left")
    )
    here = Window.partitionBy(*scope).orderBy("seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    near = Window.partitionBy(*scope).orderBy("place").rangeBetween(1 - reference.MAX_PROOF, Window.currentRow)
    gathered = (
        matter.withColumn("place", f.count("counted").over(here))
        .where("counted IS NOT NULL OR broken IS NOT NULL")
        # the last ones that were counted: those that share a place with one of them were not
        .withColumn("so_far", f.sort_array(f.collect_list("counted").over(near)))
        .where("broken IS NOT NULL")
        .groupBy(*scope, "seq")  # a row that is there twice
        .agg(f.max_by(f.struct("so_far", "time", "broker", "broken"), "place").alias("last"))
        .selectExpr(*scope, "seq", "last.*")
        .selectExpr("*", "explode(broken) AS rule")
    )
    whole = f"slice(so_far, -least({reference.MAX_PROOF}, size(so_far)), {reference.MAX_PROOF})"
    before = f"slice(so_far, -least({reference.MAX_PROOF - 1}, size(so_far)), {reference.MAX_PROOF - 1})"
    ids = ", ".join(repr(rule.id) for rule in rules_of(TOTAL, scope)) or "''"
    proof = f"IF(rule IN ({ids}), {whole}, array_append(filter({before}, s -> s != seq), seq)) AS proof"
    keys = [name if name in scope else f"{nothing} AS {name}" for name, nothing in _KEYS.items()]
    return gathered.selectExpr("rule", "broker", "run", *keys, "seq", "time", proof, "'' AS detail")


# --- all of it --------------------------------------------------------------------------------------------------------

# Of a gathered row: what is proven with it, and what the counters and rules look at.
GATHERED = (
    "time", "broker", "run", "seq", "event", "connection", "client", "service", "number", "attempt", "worker", "released", "credit",
    "auto", "outcome",
)  # fmt: skip


def one_by_one(work: Sequence[Work]) -> Iterable[list[Row]]:
    return [do() for do in work]


def plain_rows(frame: DataFrame) -> list[Row]:
    return [tuple(row) for row in frame.collect()]


def screened(scope: tuple[str, ...]) -> bool:
    """Whether a screen knows all rules of the scope."""
    return {rule.id for rule in RULES if rule.scope == scope and rule.shape in (TOTAL, RUNNING)} <= {
        *screens.KNOWN.get(scope, ())
    }


def flag(scope: tuple[str, ...]) -> str:
    return f"of_{scope[-1]}"


@dataclass
class Audit:
    """The audit of whole runs. ``words`` are rows of other runs that account for what these have lost; ``rare`` are the messages of
    which there are few (``rare.py``), where they are at hand already.

    What is small is settled on the way, so that no plan holds the way to it: which searches there is anything for, and
    that nothing has to be proven, is known before it is planned.
    """

    messages: DataFrame
    requests: DataFrame
    words: DataFrame | None = None
    together: Together = one_by_one
    rare: DataFrame | None = None
    breaches: list[Row] = field(default_factory=list)  # as TABLE has them
    checks: list[Row] = field(default_factory=list)  # as CHECKS has them

    def run(self) -> "Audit":
        self.spark = self.messages.sparkSession
        if self.rare is None:
            self.rare = rare(self.messages)
        self.rows = {MESSAGES: of(MESSAGES, self.messages), REQUESTS: of(REQUESTS, self.requests)}
        self._accounts(of(MESSAGES, self.rare).where(ACCOUNTS))
        full = [scope for scope in self._scopes() if not screened(scope)]
        work: list[Work] = [partial(self._searched, scope) for scope in full if scope != REQUEST]
        single, holes, _, passed, *found = self.together(
            [self._each, self._sequence, self._suspects, self._passed, *work]
        )
        self.breaches = [*single, *holes, *self._closer(passed, [row for rows in found for row in rows])]
        self._check()
        return self

    def _accounts(self, accounts: DataFrame) -> None:
        """What runs say of themselves and of each other."""
        if self.words is not None:
            accounts = accounts.unionByName(of(MESSAGES, self.words))
        told = plain_rows(accounts.select("run", "event", "covers_run", "covers_first", "covers_last"))
        columns = (
            ("run", "BIGINT"),
            ("event", "STRING"),
            ("covers_run", "BIGINT"),
            ("covers_first", "BIGINT"),
            ("covers_last", "BIGINT"),
        )
        counters = run_counters(local.frame(self.spark, told, columns).selectExpr(f"'{MESSAGES}' AS kind", "*"))
        self.runs = local.frame(
            self.spark, plain_rows(counters), [("run", "BIGINT"), *((name, "BIGINT") for name in _RUN_NAMES)]
        )
        covers = [row[2:] for row in told if row[2] != 0 and row[4] >= row[3]]
        self.covers = local.frame(self.spark, covers, (("run", "BIGINT"), ("start", "BIGINT"), ("end", "BIGINT")))

    def _scopes(self) -> list[tuple[str, ...]]:
        return sorted({rule.scope for rule in RULES if rule.shape in (TOTAL, RUNNING)})

    def _all(self, scope: tuple[str, ...]) -> DataFrame:
        """The rows that the scope's counters and rules are about."""
        kinds = {counter.kind for counter in counters_of(scope)} | {rule.kind for rule in RULES if rule.scope == scope}
        return self.rows[MESSAGES] if kinds == {MESSAGES} else self.rows[MESSAGES].unionByName(self.rows[REQUESTS])

    def _each(self) -> list[Row]:
        assert self.rare is not None
        few = all(
            event not in COMMON for rule in rules_of(EACH) if rule.kind == MESSAGES for event in rule.events or COMMON
        )
        messages = of(MESSAGES, self.rare) if few else self.rows[MESSAGES]
        return self._told(each(messages, MESSAGES).unionByName(each(self.rows[REQUESTS], REQUESTS)))

    def _suspects(self) -> list[Row]:
        """Marks of requests. They stay where they are: there may be many."""
        if screened(REQUEST):
            self.suspects = screens.suspects(self.messages, self.requests).localCheckpoint()
        else:
            self.suspects = marks(self._all(REQUEST).where("number != 0"))
        return []

    def _passed(self) -> list[Row]:
        """Rows ``run, seq, connection, service`` that the screens of connections and services let through."""
        assert self.rare is not None
        return plain_rows(screens.passed(self.messages, of(MESSAGES, self.rare)))

    def _searched(self, scope: tuple[str, ...]) -> list[Row]:
        """The breaches of the scope's rules among all rows."""
        return self._breaches({scope: self._all(scope)})

    def _breaches(self, rows: Mapping[tuple[str, ...], DataFrame]) -> list[Row]:
        made: DataFrame | None = None
        for scope, frame in rows.items():
            for shape, find in ((RUNNING, running), (TOTAL, totals)):
                if known := rules_of(shape, scope):
                    found = find(frame, self.runs, known)
                    made = found if made is None else made.unionByName(found)
        return [] if made is None else plain_rows(made)

    def _closer(self, passed: list[Row], found: list[Row]) -> list[Row]:
        """Searches what the screens let through, and proves all that was found."""
        keys: dict[tuple[str, ...], set[Row]] = {REQUEST: set()}
        for run, _seq, connection, service in passed:
            if connection is not None:
                keys.setdefault(CONNECTION, set()).add((run, connection))
            if service is not None:
                keys.setdefault(SERVICE, set()).add((run, service))
        for rule, run, *about, _seq in found:
            scope = rules.BY_ID[rule].scope
            keys.setdefault(scope, set()).add((run, about[[*_KEYS].index(scope[-1])]))
        rows = self._gathered(keys, {row[:2] for row in passed} | {(row[1], row[-1]) for row in found}).persist()
        try:
            again = {scope: rows.where(flag(scope)) for scope in keys if screened(scope) or scope == REQUEST}
            return self._proven([*found, *self._breaches(again)], rows)
        finally:
            rows.unpersist()

    def _gathered(self, keys: Mapping[tuple[str, ...], set[Row]], named: set[Row]) -> DataFrame:
        """The rows of suspected requests; of the other ``keys``, by scope, the rows that are counted; and the rows ``run, seq`` that are
        ``named``. A flag for each scope says of which of its keys all that matters is there."""
        about = f"({counted_by(REQUEST)}) OR ({looked_at_by(rules_of(RUNNING, REQUEST))})"
        matter = f"coalesce(bits & {BIT} != 0, false) AND number != 0 AND ({about})"
        rows = with_bits(self.rows[MESSAGES], self.suspects, "left")
        flags = [f"{matter} AS {flag(REQUEST)}"]
        rows, is_named = self._among(rows, ("run", "seq"), named)
        for scope, some in keys.items():
            if scope != REQUEST:
                rows, is_key = self._among(rows, scope, some)
                flags.append(f"{is_key} AND ({counted_by(scope)} OR {is_named}) AS {flag(scope)}")
        names = [flag(scope) for scope in keys]
        messages = rows.selectExpr("kind", *GATHERED, *flags).where(" OR ".join(names))
        records = marked(self.rows[REQUESTS].where("number != 0"), self.suspects)
        others = [f"false AS {name}" for name in names if name != flag(REQUEST)]
        return messages.unionByName(records.selectExpr("kind", *GATHERED, f"true AS {flag(REQUEST)}", *others))

    def _among(self, rows: DataFrame, scope: tuple[str, ...], keys: set[Row]) -> tuple[DataFrame, str]:
        """The rows, and a condition that holds for those of the keys. Few are named in it; many come as a column."""
        part = scope[-1]
        if len(keys) <= FEW:
            by_run: dict[int, list[str]] = {}
            for run, key in keys:
                by_run.setdefault(run, []).append(quoted(key) if isinstance(key, str) else str(key))
            each_run = [f"run = {run} AND {part} IN ({', '.join(some)})" for run, some in by_run.items()]
            return rows, f"({_any(each_run)})"
        types = {"seq": "BIGINT", "service": "STRING"}
        columns = ("run", "BIGINT"), (part, types.get(part, "INT")), (f"among_{part}", "BOOLEAN")
        told = local.frame(self.spark, [(*key, True) for key in keys], columns)
        return rows.join(f.broadcast(told), [*scope], "left"), f"coalesce(among_{part}, false)"

    def _sequence(self) -> list[Row]:
        words = sequence.words(self.messages, self.requests).localCheckpoint()
        self.facts = plain_rows(sequence.facts(words).selectExpr("*", *unit("time")))
        columns = ("run", "BIGINT"), ("broker", "STRING"), ("first", "BIGINT"), ("time", "TIMESTAMP")
        facts = local.frame(
            self.spark, [(run, broker, first, time) for run, broker, _, first, time, *_ in self.facts], columns
        )
        twice = plain_rows(sequence.doubled(words))
        again = local.frame(self.spark, [], (("run", "BIGINT"), ("seq", "BIGINT")))
        if twice:
            doubled = local.frame(self.spark, twice, (("run", "BIGINT"), ("word", "BIGINT")))
            again = sequence.again(self.messages, self.requests, doubled)
        holes = sequence.holes(words, facts, self.covers, again)
        nothing = [f"{nothing} AS {name}" for name, nothing in _KEYS.items()]
        return self._told(
            holes.selectExpr("'no-hole' AS rule", "broker", "run", *nothing, "seq", "time", "proof", "detail")
        )

    def _proven(self, found: list[Row], rows: DataFrame) -> list[Row]:
        scopes: dict[tuple[str, ...], list[Row]] = {}
        for row in found:
            scopes.setdefault(rules.BY_ID[row[0]].scope, []).append(row)
        made: DataFrame | None = None
        for scope, some in scopes.items():
            proofs = proven(rows.where(flag(scope)), local.frame(self.spark, some, FOUND), scope)
            made = proofs if made is None else made.unionByName(proofs)
        return [] if made is None else self._told(made)

    def _told(self, breaches: DataFrame) -> list[Row]:
        says = f.create_map(*(f.lit(text) for rule in RULES for text in (rule.id, rule.says)))
        return plain_rows(
            breaches.withColumn("says", says[f.col("rule")]).selectExpr("*", *unit("time")).transform(TABLE.contract)
        )

    def _check(self) -> None:
        """Which rules the journal of each run allowed to check. A run whose first row is gone is known by the rows it has."""
        names = TABLE.names
        counts: dict[tuple[str, int], int] = {}
        for row in self.breaches:
            key = row[names.index("rule")], row[names.index("run")]
            counts[key] = counts.get(key, 0) + 1
        for run, broker, at_level, _, _, hour, date in self.facts:
            level = schema.LEVELS[at_level]
            shown = rules.checkable(level)
            for rule in RULES:
                self.checks.append(
                    (run, broker, level, rule.id, rule.says, rule in shown, counts.get((rule.id, run), 0), hour, date)
                )


def build(messages: DataFrame, requests: DataFrame, words: DataFrame | None = None) -> tuple[DataFrame, DataFrame]:
    """``audit`` and ``audit_rules`` of whole runs."""
    made = Audit(messages, requests, words).run()
    spark = messages.sparkSession
    return local.frame(spark, made.breaches, TABLE.pairs), local.frame(spark, made.checks, CHECKS.pairs)
