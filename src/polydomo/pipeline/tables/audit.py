"""``audit``: every breach of the rules of ``journal/rules.py``, with the rows that prove it.

The rules are translated as they stand: counters become window functions, ``broken`` becomes a filter. Sorting every
row by request, by worker, by connection and by service would cost more than all other tables together, so each scope
has a *screen* first: an aggregate of fixed width that proves most of its keys to be without a breach of the rules it
knows. Only what a screen lets through is sorted. A rule that a screen does not know is never screened.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
    TOTAL,
    WORKER,
    Counter,
    Rule,
)
from polydomo.journal.schema import MESSAGES, REQUESTS
from polydomo.pipeline.tables import sequence
from polydomo.pipeline.tables.table import UNIT, Column, Table, unit

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
ENDINGS = (schema.FINAL, schema.FAILED)
REPLIES = (schema.PARTIAL, schema.FINAL, schema.FORWARDED)


def one(messages: DataFrame, requests: DataFrame) -> DataFrame:
    """Rows of both kinds as one relation, as the rules want it, with "nothing" in what a kind has not."""
    types = {column.name: column.type for kind in schema.KINDS for column in schema.COLUMNS[kind]}
    names = dict.fromkeys([*NARROW[MESSAGES], *NARROW[REQUESTS]])
    made = []
    for kind, rows in ((MESSAGES, messages), (REQUESTS, requests)):
        nothing = {name: "''" if types[name] == schema.TEXT else "0" for name in names}
        made.append(
            rows.selectExpr(f"'{kind}' AS kind", *(name if name in NARROW[kind] else f"{nothing[name]} AS {name}" for name in names))
        )
    return made[0].unionByName(made[1])


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


def run_counters(accounts: DataFrame) -> DataFrame:
    """The counters of whole runs: what a run lost is told after it, by its successor."""
    made: DataFrame | None = None
    for counter in counters_of(RUN):
        (key,) = counter.key or RUN
        part = accounts.where(rules.counted(counter)).selectExpr(
            f"{key} AS run", *(f"CAST({counter.value if other is counter else 0} AS BIGINT) AS {other.name}" for other in counters_of(RUN))
        )
        made = part if made is None else made.unionByName(part)
    assert made is not None
    return made.groupBy("run").agg(
        *((f.sum if counter.how == rules.SUM else f.max)(counter.name).alias(counter.name) for counter in counters_of(RUN))
    )


# --- screens ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Screen:
    """``broken`` is true of every key that may break one of the ``known`` rules, by aggregates (``of``) over the rows of the scope."""

    scope: tuple[str, ...]
    known: tuple[str, ...]
    where: str  # rows that matter
    of: tuple[str, ...]
    broken: str


def _when(events: Sequence[str]) -> str:
    return f"event IN ({', '.join(repr(event) for event in events)})"


# One pass over all requests; what is not the plainest life of a request (accepted, handed out once, replied to by that
# worker, all in that order and with the same client) is looked at in detail.
REQUEST_SCREEN = Screen(
    REQUEST,
    ("one-outcome", "one-record", "some-outcome", "outcome-recorded", "nothing-after-outcome", "one-holder", "fenced", "to-the-asker"),
    f"number != 0 AND (kind = 'requests' OR event IN ({', '.join(repr(e) for e in (schema.ACCEPTED, *rules.ANY_STEP, *ENDINGS))}))",
    (
        "sum(IF(event = 'accepted', 1, 0)) AS acceptances",
        "sum(IF(event = 'dispatched', 1, 0)) AS handouts",
        "sum(IF(event IN ('requeued', 'forwarded'), 1, 0)) AS returns",
        f"sum(IF({_when(ENDINGS)}, 1, 0)) AS outcomes",
        "sum(IF(kind = 'requests', 1, 0)) AS finished",
        f"max(IF({_when((schema.ACCEPTED, *rules.ANY_STEP))}, seq, 0)) AS last_step",
        f"max(IF({_when(ENDINGS)}, seq, 0)) AS last_ending",
        "max(IF(event = 'dispatched', seq, 0)) AS handout",
        "max(IF(event = 'accepted', seq, 0)) AS acceptance",
        f"min(IF({_when((*rules.ANY_STEP, *ENDINGS))}, seq, NULL)) AS first_step",
        f"min(IF({_when(REPLIES)}, seq, NULL)) AS first_reply",
        "min(IF(kind = 'messages', client, NULL)) AS least_client",
        "max(client) AS most_client",
        # worker and attempt in one number: the same in the handing out and in every reply
        f"min(IF({_when((schema.DISPATCHED, *REPLIES))}, worker * 65536L + attempt, NULL)) AS least_holder",
        f"max(IF({_when((schema.DISPATCHED, *REPLIES))}, worker * 65536L + attempt, 0)) AS most_holder",
    ),
    "acceptances > 1 OR outcomes > 1 OR finished > 1 OR handouts > 1 OR returns > 0 "
    "OR (acceptances = 1 AND (outcomes = 0 OR finished = 0)) OR (outcomes = 1 AND last_step > last_ending) "
    "OR (acceptances = 1 AND (coalesce(first_step < acceptance, false) OR coalesce(least_client != most_client, false) "
    "OR coalesce(least_holder != most_holder, false) OR coalesce(first_reply < handout, false) "
    "OR (handouts = 0 AND first_reply IS NOT NULL)))",
)

WORKER_SCREEN = Screen(
    WORKER,
    ("nothing-after-goodbye",),
    _when((schema.LEFT, schema.LOST, schema.DISPATCHED, schema.REGISTERED)),
    (
        f"min(IF({_when((schema.LEFT, schema.LOST))}, seq, NULL)) AS gone",
        f"max(IF({_when((schema.DISPATCHED, schema.REGISTERED))}, seq, 0)) AS active",
    ),
    "gone < active",
)

CONNECTION_SCREEN = Screen(
    CONNECTION,
    ("nothing-after-closing",),
    "connection != 0 AND " + _when((schema.DISCONNECTED, schema.ACCEPTED, schema.DISPATCHED, schema.REGISTERED)),
    (
        f"min(IF(event = '{schema.DISCONNECTED}', seq, NULL)) AS closed",
        f"max(IF(event != '{schema.DISCONNECTED}', seq, 0)) AS active",
    ),
    "closed < active",
)


SCREENS = {screen.scope: screen for screen in (REQUEST_SCREEN, WORKER_SCREEN, CONNECTION_SCREEN)}


def suspects(rows: DataFrame, screen: Screen) -> DataFrame:
    """The keys that the screen does not clear."""
    found = rows.where(screen.where).groupBy(*screen.scope).agg(*(f.expr(of) for of in screen.of))
    return found.where(screen.broken).select(*screen.scope)


# --- rules ------------------------------------------------------------------------------------------------------------

_KEYS = {"number": "0L", "worker": "0", "connection": "0", "service": "''"}  # what a breach may be about, and nothing of it
_RUN_NAMES = [counter.name for counter in counters_of(RUN)]


def matched(known: Sequence[Rule]) -> str:
    """The ids of the rules that a row breaks: all rules of a scope are judged in one go."""
    tests = []
    for rule in known:
        condition = rule.broken if rule.shape == TOTAL else f"{rules.looked_at(rule)} AND ({rule.broken})"
        tests.append(f"IF({condition}, '{rule.id}', NULL)")
    return f"array_compact(array({', '.join(tests)}))"


def _breaches(rows: DataFrame, about: Sequence[str], proof: str) -> DataFrame:
    """One row for each rule that is ``broken``."""
    keys = [name if name in about else f"{nothing} AS {name}" for name, nothing in _KEYS.items()]
    return rows.selectExpr("explode(broken) AS rule", "broker", "run", *keys, "seq", "time", f"{proof} AS proof", "'' AS detail")


def with_runs(rows: DataFrame, runs: DataFrame) -> DataFrame:
    return rows.join(f.broadcast(runs), "run", "left").na.fill(0, _RUN_NAMES)


def judged(rows: DataFrame, runs: DataFrame, scope: tuple[str, ...]) -> list[DataFrame]:
    """The breaches of the scope's rules among rows that hold all that its counters count of their keys."""
    running, total, counters = rules_of(RUNNING, scope), rules_of(TOTAL, scope), counters_of(scope)
    rows = rows.withColumn("counted", f.expr(f"IF({counted_by(scope)}, seq, NULL)"))
    found = []
    if running:
        here = Window.partitionBy(*scope).orderBy("seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
        keep = reference.MAX_PROOF - 1
        near = Window.partitionBy(*scope).orderBy("place").rangeBetween(1 - keep, Window.currentRow)
        stood = rows.select(
            "*",
            *(f.expr(rules.running(counter)).alias(counter.name) for counter in counters),
            f.count("counted").over(here).alias("place"),
        )
        proven = (
            with_runs(stood, runs)
            .withColumn("broken", f.expr(matched(running)))
            .where("counted IS NOT NULL OR size(broken) > 0")
            # the last ones that were counted: those that share a place with one of them were not
            .withColumn("so_far", f.collect_list("counted").over(near))
        )
        found.append(_breaches(proven, scope, "array_append(filter(so_far, s -> s != seq), seq)"))
    if total:
        sums = (
            rows.where("counted IS NOT NULL")
            .groupBy(*scope)
            .agg(
                *(f.expr(rules.total(counter)).alias(counter.name) for counter in counters),
                f.expr("sort_array(collect_list(counted))").alias("all_counted"),
                f.expr("max(struct(seq, time, broker))").alias("at"),
            )
            .selectExpr("*", "at.seq AS seq", "at.time AS time", "at.broker AS broker")
        )
        last = f"slice(all_counted, -least({reference.MAX_PROOF}, size(all_counted)), {reference.MAX_PROOF})"
        found.append(_breaches(with_runs(sums, runs).withColumn("broken", f.expr(matched(total))), scope, last))
    return found


def searched(rows: DataFrame, runs: DataFrame, rule: Rule) -> DataFrame:
    """The keys in breach of a RUNNING rule that no screen knows: a window over numbers alone."""
    used = [counter for counter in counters_of(rule.scope) if re.search(rf"\b{counter.name}\b", rule.broken)]
    matter = rows.where(f"({_any([rules.counted(counter) for counter in used])}) OR ({rules.looked_at(rule)})")
    asked = [name for name in NARROW[rule.kind] if name not in rule.scope and re.search(rf"\b{name}\b", rule.broken)]
    amounts = [f"{_amount(counter)} AS {counter.name}" for counter in used]
    stood = matter.selectExpr(*rule.scope, "seq", *asked, f"{rules.looked_at(rule)} AS looked_at", *amounts)
    here = Window.partitionBy(*rule.scope).orderBy("seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    for counter in used:
        so_far = (f.sum if counter.how == rules.SUM else f.max)(counter.name).over(here)
        stood = stood.withColumn(counter.name, so_far % rules.LAST_BASE if counter.how == rules.LAST else so_far)
    return with_runs(stood.where("looked_at"), runs).where(rule.broken).select(*rule.scope).distinct()


def _amount(counter: Counter) -> str:
    """What a row adds to the counter, as one number."""
    value = f"seq * {rules.LAST_BASE}L + {counter.value}" if counter.how == rules.LAST else counter.value
    return f"CAST(CASE WHEN {rules.counted(counter)} THEN {value} ELSE 0 END AS BIGINT)"


def of_scope(rows: DataFrame, runs: DataFrame, scope: tuple[str, ...]) -> list[DataFrame]:
    """The breaches of all rules of a scope: first the keys that may be in breach, then what they did."""
    known = [*rules_of(RUNNING, scope), *rules_of(TOTAL, scope)]
    screen = SCREENS.get(scope)
    if any(rule.shape == TOTAL and (screen is None or rule.id not in screen.known) for rule in known):
        keys = None  # nothing is known to clear any key
    else:
        wanted = [suspects(rows, screen)] if screen is not None else []
        wanted += [searched(rows, runs, rule) for rule in known if screen is None or rule.id not in screen.known]
        keys = wanted[0]
        for more in wanted[1:]:
            keys = keys.unionByName(more)
    matter = rows.where(f"({counted_by(scope)}) OR ({looked_at_by(rules_of(RUNNING, scope))})")
    return judged(matter if keys is None else matter.join(keys, list(scope), "left_semi"), runs, scope)


def breaches(messages: DataFrame, requests: DataFrame, words: DataFrame | None = None) -> DataFrame:
    """Every breach in whole runs. ``words`` are rows of other runs that account for what these have lost."""
    rows = one(messages, requests)
    accounts = one(messages, requests).where("kind = 'messages' AND event IN ('started', 'missing', 'stopped')")
    if words is not None:
        accounts = accounts.unionByName(one(words, requests.limit(0)))
    runs = run_counters(accounts)
    each = rows.withColumn("broken", f.expr(matched(rules_of(EACH))))
    found = [_breaches(each, ("number", "worker"), "array(seq)")]
    for scope in sorted({rule.scope for rule in RULES if rule.shape in (TOTAL, RUNNING)}):
        found += of_scope(rows, runs, scope)
    holes = sequence.holes(rows, accounts)
    found.append(
        holes.selectExpr(
            "'no-hole' AS rule",
            "broker",
            "run",
            *(f"{nothing} AS {name}" for name, nothing in _KEYS.items()),
            "seq",
            "time",
            "proof",
            "detail",
        )
    )
    made = found[0]
    for more in found[1:]:
        made = made.unionByName(more)
    says = f.create_map(*(f.lit(text) for rule in RULES for text in (rule.id, rule.says)))
    return made.withColumn("says", says[f.col("rule")]).selectExpr("*", *unit("time")).transform(TABLE.contract)


def checks(messages: DataFrame, requests: DataFrame, audit: DataFrame) -> DataFrame:
    """Which rules the journal of each run allowed to check. A run whose first row is gone is known by the rows it has."""
    only = ", ".join(repr(event) for event in schema.ONLY_MESSAGES)
    runs = (
        messages.selectExpr("run", "broker", "time", f"CASE WHEN level = 'messages' OR event IN ({only}) THEN 2 ELSE 1 END AS at_level")
        .unionByName(requests.selectExpr("run", "broker", "time", "1 AS at_level"))
        .groupBy("run", "broker")
        .agg(f.max("at_level").alias("at_level"), f.max("time").alias("time"))
    )
    known = f.array(
        *(
            f.struct(f.lit(rule.id).alias("rule"), f.lit(rule.says).alias("says"), f.lit(schema.LEVELS.index(rule.level)).alias("least"))
            for rule in RULES
        )
    )
    counts = audit.groupBy("run", "rule").agg(f.count("*").alias("breaches"))
    return (
        runs.select("*", f.explode(known).alias("known"))
        .selectExpr(
            "run",
            "broker",
            f"elt(at_level + 1, {', '.join(repr(level) for level in schema.LEVELS)}) AS level",
            "known.rule AS rule",
            "known.says AS says",
            "known.least <= at_level AS checkable",
            "time",
        )
        .join(counts, ["run", "rule"], "left")
        .na.fill(0, ["breaches"])
        .selectExpr("*", *unit("time"))
        .transform(CHECKS.contract)
    )
