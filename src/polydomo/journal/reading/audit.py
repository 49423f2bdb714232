"""Checks the rules in Python, on rows in memory: the reference for the pipeline, run by the simulator on every seed."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from polydomo.journal import schema
from polydomo.journal.ids import run_name
from polydomo.journal.reading.flow_audit import early_or_repeated
from polydomo.journal.reading.rules import (
    BY_ID,
    COUNTERS,
    EACH,
    FLOWS,
    LAST,
    MAX,
    ONCE,
    RULES,
    RUN,
    RUNNING,
    SEQUENCE,
    TOTAL,
    AuditRule,
    Counter,
)
from polydomo.journal.schema import MESSAGES, REQUESTS

Row = dict[str, Any]
Key = tuple[Any, ...]
GAP = "missing, and no row states it"  # what is wrong with sequence numbers
REPEATED = "there twice"
MAX_PROOF = 20  # rows kept as evidence of one violation


@dataclass
class Breach:
    """One violation of a rule, and the rows (run, seq) that show it."""

    rule: str
    run: int
    about: dict[str, Any]  # the scope's columns: number, worker, ...
    proof: list[tuple[int, int]] = field(default_factory=list)
    detail: str = ""

    def __str__(self) -> str:
        about = " ".join(f"{name} {value}" for name, value in self.about.items() if name != "run")
        rows = ", ".join(str(seq) for _, seq in self.proof)
        return f"{self.rule}: {BY_ID[self.rule].says} Run {run_name(self.run)} {about} rows {rows}{self.detail}"


def kind_of(row: Row) -> str:
    """Rows of ``messages`` have an event, those of ``requests`` have none."""
    return MESSAGES if "event" in row else REQUESTS


def audit(rows: Iterable[Row], only: Iterable[str] | None = None) -> list[Breach]:
    """Every violation of the rules (only those in ``only``, if given) in the rows, which may be in any order."""
    wanted = set(only) if only is not None else set(BY_ID)
    ordered = sorted(rows, key=lambda row: (row["run"], row["seq"]))
    auditor = _Auditor([rule for rule in RULES if rule.id in wanted])
    found = auditor.run(ordered)
    if any(rule.shape == SEQUENCE and rule.id in wanted for rule in RULES):
        found += holes(ordered)
    for rule in RULES:
        if rule.shape == ONCE and rule.id in wanted:
            found += repeated(rule, ordered)
    if any(rule.shape == FLOWS and rule.id in wanted for rule in RULES):
        found += [breach for breach in of_nodes(ordered) if breach.rule in wanted]
    return found


def repeated(rule: AuditRule, rows: Iterable[Row]) -> list[Breach]:
    """Events that happened more than once although they must not. A violation belongs to the run of its last row; ``detail`` names the
    others."""
    broken = _compiled(rule.broken)
    seen: dict[str, list[Row]] = {}
    for row in rows:
        if row.get("event") in rule.events and row["once"] and eval(broken, _NO_BUILTINS, row):
            seen.setdefault(row["once"], []).append(row)
    found = []
    for once, several in seen.items():
        if len(several) > 1:
            several.sort(key=lambda row: (row["time"], row["run"], row["seq"]))
            last = several[-1]
            proof = [(row["run"], row["seq"]) for row in several[-MAX_PROOF:]]
            places = ", ".join(f"{run_name(run)} {seq}" for run, seq in proof)
            found.append(Breach(rule.id, last["run"], {"run": last["run"]}, proof, f": {once} in rows {places}"))
    return found


def of_nodes(rows: Iterable[Row]) -> list[Breach]:
    """Nodes of flows that were released too early, ended twice, or ran although their result was reused. A violation belongs to the run of
    its last row."""
    found = []
    for rule, several, what in early_or_repeated(rows):
        proof = [(row["run"], row["seq"]) for row in several[-MAX_PROOF:]]
        found.append(Breach(rule, proof[-1][0], {"run": proof[-1][0]}, proof, f": {what}"))
    return found


def holes(rows: Iterable[Row]) -> list[Breach]:
    """Sequence numbers of each run that are neither present nor covered, and numbers that occur twice.

    The first present row of a run counts as its beginning, because retention may have removed earlier rows.
    """
    present: dict[int, list[tuple[int, int, bool]]] = {}  # run -> ranges, there (True) or covered
    first: dict[int, int] = {}
    for row in rows:
        run, seq = row["run"], row["seq"]
        present.setdefault(run, []).append((seq, seq, True))
        first[run] = min(seq, first.get(run, seq))
    covered = [row for row in rows if row.get("covers_run")]
    for row in covered:
        if row["covers_last"] >= row["covers_first"]:
            present.setdefault(row["covers_run"], []).append((row["covers_first"], row["covers_last"], False))
    found = []
    for run, ranges in present.items():
        if run not in first:
            continue  # only the statement of the next run is left
        ranges.sort()
        last = first[run] - 1
        for start, end, there in ranges:
            if end < first[run]:
                continue
            if start > last + 1:
                found.append(_hole(run, last + 1, start - 1, GAP))
            elif there and start <= last:
                found.append(_hole(run, start, start, REPEATED))
            last = max(last, end)
    return found


def _hole(run: int, first: int, last: int, what: str) -> Breach:
    return Breach("no-hole", run, {"run": run}, [(run, first - 1), (run, last + 1)], f": {first} to {last} are {what}")


class _Auditor:
    """Iterates over the rows once and updates the counters of every scope."""

    def __init__(self, wanted: list[AuditRule]) -> None:
        self.each: dict[tuple[str, str], list[tuple[AuditRule, CodeType]]] = {}
        self.running: dict[tuple[str, str], list[tuple[AuditRule, CodeType]]] = {}
        self.totals: list[tuple[AuditRule, CodeType]] = []
        for rule in wanted:
            if rule.shape == TOTAL:
                self.totals.append((rule, _compiled(rule.broken)))
            elif rule.shape in (EACH, RUNNING):
                table = self.each if rule.shape == EACH else self.running
                for event in rule.events or (schema.EVENTS if rule.kind == MESSAGES else ("",)):
                    table.setdefault((rule.kind, event), []).append((rule, _compiled(rule.broken)))
        self.counters: dict[tuple[str, str], list[tuple[Counter, CodeType, CodeType | None]]] = {}
        for counter in COUNTERS:
            made = (counter, _compiled(counter.value), _compiled(counter.where) if counter.where else None)
            for event in counter.events or ("",):
                self.counters.setdefault((counter.kind, event), []).append(made)
        self.zeros = {scope: {c.name: 0 for c in COUNTERS if c.scope == scope} for scope in {c.scope for c in COUNTERS}}
        self.counts: dict[tuple[tuple[str, ...], Key], dict[str, int]] = {}
        self.proofs: dict[tuple[tuple[str, ...], Key], list[tuple[int, int]]] = {}

    def run(self, rows: list[Row]) -> list[Breach]:
        # the next run states what a run lost; apply it to all its rows
        for row in rows:
            self._count(row, (RUN,))
        found: list[Breach] = []
        scopes = tuple(scope for scope in self.zeros if scope != RUN)
        for row in rows:
            self._count(row, scopes)
            place = (kind_of(row), row.get("event", ""))
            for rule, broken in self.each.get(place, ()):
                if eval(broken, _NO_BUILTINS, row):
                    found.append(Breach(rule.id, row["run"], {"run": row["run"]}, [(row["run"], row["seq"])]))
            for rule, broken in self.running.get(place, ()):
                key = tuple(row[name] for name in rule.scope)
                names = {**row, **self._of(RUN, (row["run"],)), **self._of(rule.scope, key)}
                if eval(broken, _NO_BUILTINS, names):
                    # what is known about a whole run is no row before this one
                    proof = [] if rule.scope == RUN else self.proofs.get((rule.scope, key), [])[-MAX_PROOF + 1 :]
                    here = (row["run"], row["seq"])
                    about = dict(zip(rule.scope, key, strict=True))
                    found.append(Breach(rule.id, row["run"], about, [*(p for p in proof if p != here), here]))
        for (scope, key), counts in self.counts.items():
            for rule, broken in self.totals:
                if rule.scope == scope and eval(broken, _NO_BUILTINS, {**self._of(RUN, key[:1]), **counts}):
                    about = dict(zip(scope, key, strict=True))
                    found.append(Breach(rule.id, key[0], about, self.proofs[scope, key][-MAX_PROOF:]))
        return found

    def _of(self, scope: tuple[str, ...], key: Key) -> dict[str, int]:
        return self.counts.get((scope, key)) or self.zeros[scope]

    def _count(self, row: Row, scopes: tuple[tuple[str, ...], ...]) -> None:
        for counter, value, where in self.counters.get((kind_of(row), row.get("event", "")), ()):
            if counter.scope not in scopes or (where is not None and not eval(where, _NO_BUILTINS, row)):
                continue
            key = tuple(row[name] for name in counter.key or counter.scope)
            place = (counter.scope, key)
            counts = self.counts.get(place)
            if counts is None:
                counts = self.counts[place] = dict(self.zeros[counter.scope])
                self.proofs[place] = []
            amount = eval(value, _NO_BUILTINS, row)
            if counter.how == LAST:
                counts[counter.name] = amount
            elif counter.how == MAX:
                counts[counter.name] = max(counts[counter.name], amount)
            else:
                counts[counter.name] += amount
            proof = self.proofs[place]
            here = (row["run"], row["seq"])
            if not proof or proof[-1] != here:
                proof.append(here)
                if len(proof) > 4 * MAX_PROOF:
                    del proof[: -2 * MAX_PROOF]


_NO_BUILTINS: dict[str, Any] = {"__builtins__": {}}


def _compiled(expression: str) -> CodeType:
    return compile(expression, f"<rule: {expression}>", "eval")
