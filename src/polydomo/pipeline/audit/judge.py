"""Checks the rules of ``journal/reading/rules.py`` in Spark SQL, from a saved state.

A counter becomes a window function over the new rows and the saved value of its key, which stands before them as a row of its own.
``broken`` becomes a condition. The result has a row for each key (a request, worker, connection or service of a run): its counters, its
last rows as evidence, and the breaches that were ``found``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from polydomo.journal import schema
from polydomo.journal.reading import rules
from polydomo.journal.reading.audit import MAX_PROOF
from polydomo.journal.reading.rules import (
    CONNECTION,
    COUNTERS,
    EACH,
    LAST,
    LAST_BASE,
    PRINCIPAL,
    REQUEST,
    RIGHT,
    RULES,
    RUN,
    RUNNING,
    SERVICE,
    SUM,
    TOTAL,
    WORKER,
    AuditRule,
    Counter,
)
from polydomo.journal.schema import MESSAGES
from polydomo.pipeline.bronze import BLOCK
from polydomo.pipeline.sql import GATHER, by_run, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Scope = tuple[str, ...]
SCOPES: tuple[Scope, ...] = tuple(dict.fromkeys(counter.scope for counter in COUNTERS if counter.scope != RUN))
KEPT = [counter for counter in COUNTERS if counter.scope != RUN]
TEXT_KEYS = frozenset(
    column.name for kind in schema.KINDS for column in schema.COLUMNS[kind] if column.type == schema.TEXT
)
STATE = (
    "run BIGINT, scope STRING, key BIGINT, name STRING, seq BIGINT, time TIMESTAMP, seqs ARRAY<BIGINT>, "
    + ", ".join(f"{counter.name} BIGINT" for counter in KEPT)
)
RUN_FACTS = [counter.name for counter in COUNTERS if counter.scope == RUN]
BETWEEN = "\\n"  # in SQL, the principal and the service of a right
BLOCKS = "run BIGINT, block BIGINT, mask BIGINT"


def counters_of(scope: Scope) -> list[Counter]:
    return [counter for counter in COUNTERS if counter.scope == scope]


def rules_of(shape: str, scope: Scope) -> list[AuditRule]:
    return [rule for rule in RULES if rule.shape == shape and rule.scope == scope]


def name_of(scope: Scope) -> str:
    """The scope as the saved state and the rows of the result name it."""
    return "right" if scope == RIGHT else scope[-1]


def _facts(runs: Mapping[int, Mapping[str, int]], text: str) -> str:
    """SQL for the facts about whole runs that ``text`` names."""
    names = [name for name in RUN_FACTS if name in _names([text])]
    return "".join(f", {by_run({run: facts[name] for run, facts in runs.items()})} AS {name}" for name in names)


def _any(conditions: Iterable[str]) -> str:
    return " OR ".join(f"({condition})" for condition in conditions) or "false"


def _names(texts: Iterable[str]) -> set[str]:
    return {word for text in texts for word in re.findall(r"\w+", text)}


def _rows(kinds: Iterable[str], words: set[str]) -> str:
    """Rows of some kinds with the columns of both that ``words`` name; missing columns are empty."""
    types = {column.name: column.type for kind in schema.KINDS for column in schema.COLUMNS[kind]}
    columns = [name for name in types if name in words | {"run", "seq", "time", "event"}]
    parts = []
    for kind in kinds:
        mine = {column.name for column in schema.COLUMNS[kind]}
        chosen = [name if name in mine else f"{_nothing(types[name])} AS {name}" for name in columns]
        parts.append(
            f"SELECT '{kind}' AS kind, {', '.join(chosen)} FROM {{{'messages' if kind == MESSAGES else 'records'}}}"
        )
    return " UNION ALL ".join(parts)


def _nothing(kind: str) -> str:
    return "''" if kind == schema.TEXT else "CAST(NULL AS TIMESTAMP)" if kind == schema.TIME else "0"


def _amount(counter: Counter) -> str:
    """What a row adds to the counter. A last value is combined with its sequence number."""
    value = f"seq * {LAST_BASE} + {counter.value}" if counter.how == LAST else counter.value
    return f"CAST(CASE WHEN {rules.counted(counter)} THEN {value} ELSE 0 END AS BIGINT)"


def _value(counter: Counter, total: str) -> str:
    return f"({total} % {LAST_BASE})" if counter.how == LAST else total


def _last(array: str, most: int) -> str:
    """The last elements of an array."""
    return f"reverse(slice(reverse({array}), 1, {most}))"


def _broken(known: list[AuditRule], condition: str, found: str) -> str:
    """An array of what is found for each rule that is broken."""
    each = ", ".join(
        f"IF({condition.format(place=place)}({rule.broken}), '{rule.id}', NULL)" for place, rule in enumerate(known)
    )
    return f"transform(array_compact(array({each})), rule -> {found})" if known else "array()"


def scope_sql(scope: Scope, chosen: str, runs: Mapping[int, Mapping[str, int]]) -> str:
    """SQL for the keys of a scope. ``chosen`` selects the rows that are checked one by one: a join."""
    part, counters = name_of(scope), counters_of(scope)
    key = "name" if scope[-1] in TEXT_KEYS else "key"
    column = f"concat(principal, '{BETWEEN}', service)" if scope == RIGHT else part
    running, total = rules_of(RUNNING, scope), rules_of(TOTAL, scope)
    kinds = [kind for kind in schema.KINDS if kind in {*(one.kind for one in counters), *(one.kind for one in running)}]
    texts = [rule.broken for rule in running] + [f"{one.where} {one.value}" for one in counters]
    words = _names(texts) | set(scope)
    counted = _any(rules.counted(counter) for counter in counters)
    looked = f"({_any(rules.looked_at(rule) for rule in running)}){' AND c.there' if chosen == _OF_SERVICES else ''}"
    about = f"m.{part} != 0 AND " if scope in (REQUEST, CONNECTION) else ""
    columns = [
        column.name
        for column in {column.name: column for kind in kinds for column in schema.COLUMNS[kind]}.values()
        if column.name in _names(rule.broken for rule in running) and column.name != "run"
    ]
    amounts = ", ".join(f"{_amount(counter)} AS {counter.name}" for counter in counters)
    flags = ", ".join(f"{rules.looked_at(rule)} AS looked_{place}" for place, rule in enumerate(running))
    # what a row says, with names that differ from those of the counters
    saved = ", ".join(counter.name for counter in counters)
    here = "OVER (PARTITION BY run, key ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)"
    so_far = ", ".join(
        f"{_value(counter, f'{_how(counter)}({counter.name}) {here}')} AS {counter.name}" for counter in counters
    )
    added = ", ".join(f"{counter.name} AS added_{counter.name}" for counter in counters)
    plain = ", ".join(columns) + ", " if columns else ""
    blanks = "".join(f"NULL AS {name}, " for name in columns)
    running_found = _broken(running, "looked_{place} AND ", "named_struct('rule', rule, 'seq', seq, 'time', time)")
    sums = ", ".join(f"{_how(counter)}(added_{counter.name}) AS {counter.name}" for counter in counters)
    values = {counter.name: _value(counter, counter.name) for counter in counters}
    totals = _broken(
        [_with(rule, values) for rule in total],
        "",
        f"named_struct('rule', rule, 'seq', seq, 'time', time, 'proof', {_last('seqs', MAX_PROOF)})",
    )
    before = _last("filter(seqs, s -> s <= f.seq)", MAX_PROOF - 1)
    proof = f"array_append(filter({before}, s -> s != f.seq), f.seq)"
    proven = f"transform(breaches, f -> named_struct('rule', f.rule, 'seq', f.seq, 'time', f.time, 'proof', {proof}))"
    facts = [_facts(runs, " ".join(rule.broken for rule in some)) for some in (running, total)]
    other = ", ".join(f"{counter.name if counter in counters else '0L'} AS {counter.name}" for counter in KEPT)
    return f"""
SELECT run, '{part}' AS scope, {"0L AS key, key AS name" if key == "name" else "CAST(key AS BIGINT) AS key, '' AS name"}, seq, time,
    {_last("seqs", MAX_PROOF)} AS seqs, {other}, 0L AS number, 0L AS worker, concat({proven}, {totals}) AS found
FROM (
    SELECT *{facts[1]} FROM (
        SELECT run, key, {sums}, max(IF(counted, seq, saved_seq)) AS seq, max_by(time, IF(counted, seq, saved_seq)) AS time,
            sort_array(array_distinct(concat(flatten(collect_list(saved)), collect_list(IF(counted, seq, NULL))))) AS seqs,
                flatten(collect_list(breaches)) AS breaches
        FROM (
            SELECT run, key, seq, time, counted, saved, saved_seq, {", ".join(f"added_{counter.name}" for counter in counters)},
                {running_found} AS breaches
            FROM (
                SELECT *{facts[0]} FROM (
                    SELECT run, key, seq, time, counted, saved, saved_seq,
                        {plain}{"".join(f"looked_{place}, " for place in range(len(running)))}{added}, {so_far} FROM (SELECT {GATHER} *
                            FROM (
                        SELECT {"/*+ BROADCASTJOIN(c) */" if chosen else ""} m.run, {column} AS key,
                            m.seq, m.time, ({counted}) AS counted, CAST(NULL AS ARRAY<BIGINT>) AS saved,
                            CAST(NULL AS BIGINT) AS saved_seq, {plain}{flags + ", " if flags else ""}{amounts}
                        FROM ({_rows(kinds, words)}) m {chosen} WHERE {about}(({counted}) OR {looked})
                        UNION ALL
                        SELECT run, {key}, -1L, time, false, seqs, seq, {blanks}{"".join("false, " for _ in running)}{saved}
                        FROM {{state}} WHERE scope = '{part}'
                    ))
                )
            )
        ) GROUP BY run, key
    )
)
"""


def _with(rule: AuditRule, values: dict[str, str]) -> AuditRule:
    """The rule over counters as they are saved."""
    text = re.sub(r"\b(" + "|".join(values) + r")\b", lambda match: values[match[1]], rule.broken)
    return AuditRule(rule.id, rule.says, rule.level, rule.shape, rule.scope, rule.kind, rule.events, text)


def _how(counter: Counter) -> str:
    return "sum" if counter.how == SUM else "max"


def each_sql(runs: Mapping[int, Mapping[str, int]]) -> str:
    """SQL for the breaches of rules about single rows, and what is known about their runs."""
    known = [rule for rule in RULES if rule.shape == EACH or (rule.shape == RUNNING and rule.scope == RUN)]
    words = _names(rule.broken for rule in known) | {"number", "worker"}
    proof = "named_struct('rule', rule, 'seq', seq, 'time', time, 'proof', array(seq))"
    found = ", ".join(f"IF({rules.looked_at(rule)} AND ({rule.broken}), '{rule.id}', NULL)" for rule in known)
    condition = _any(f"{rules.looked_at(rule)} AND ({rule.broken})" for rule in known)
    return f"""
SELECT run, 'row' AS scope, 0L AS key, '' AS name, seq, time, CAST(array() AS ARRAY<BIGINT>) AS seqs,
    {", ".join(f"0L AS {one.name}" for one in KEPT)},
    CAST(number AS BIGINT) AS number, CAST(worker AS BIGINT) AS worker, transform(array_compact(array({found})), rule -> {proof}) AS found
FROM (SELECT *{_facts(runs, condition)} FROM ({_rows(schema.KINDS, words)})) WHERE {condition}
"""


def judged(
    messages: "DataFrame",
    records: "DataFrame",
    state: "DataFrame",
    runs: Mapping[int, Mapping[str, int]],
    chosen: "Mapping[Scope, DataFrame | None]",
) -> "DataFrame":
    """The keys of all scopes that are checked row by row. ``runs`` has the facts about each run. ``chosen`` says which requests,
    connections and services are checked: None means all of them."""
    frames = {"messages": messages, "records": records, "state": state}
    made = sql(each_sql(runs), messages=messages, records=records)
    checked = any(facts["run_checked"] for facts in runs.values())
    for scope in (WORKER, *((PRINCIPAL, RIGHT) if checked else ()), *chosen):
        keys = chosen.get(scope)
        if keys is None:
            made = made.unionAll(sql(scope_sql(scope, "", runs), **frames))
        elif scope == SERVICE:
            made = made.unionAll(sql(scope_sql(scope, _OF_SERVICES, runs), **frames, chosen=keys))
        else:
            join = _OF_BLOCKS.replace("/*key*/", scope[-1])
            made = made.unionAll(sql(scope_sql(scope, join, runs), **frames, chosen=keys))
    return made


_OF_BLOCKS = (
    f"JOIN {{chosen}} c ON c.run = m.run AND c.block = m./*key*/ div {BLOCK} "
    f"AND (c.mask & shiftleft(1L, int(m./*key*/ % {BLOCK}))) != 0"
)
# counted rows of all services, and others of the chosen ones
_OF_SERVICES = "LEFT JOIN (SELECT run, name, true AS there FROM {chosen}) c ON c.run = m.run AND c.name = m.service"
