"""``workers``: turns, work and presence by hour, worker and service."""

import math
from collections import Counter, defaultdict
from datetime import datetime

from polydomo.journal import schema
from polydomo.journal.histogram import bucket, percentile
from tests.pipeline.reference.basics import HOUR, OWN, Row, hour_of, moment, us
from tests.pipeline.reference.journal import Journal


def workers(journal: Journal) -> list[Row]:
    life = journal.life
    present = _present(journal)
    keys: dict[tuple[int, int, int], set[str]] = defaultdict(set)
    cells: dict[tuple[int, int, int, str], Row] = {}

    def cell(hour: int, run: int, worker: int, service: str) -> Row:
        keys[hour, run, worker].add(service)
        return cells.setdefault((hour, run, worker, service), {
            "turns": 0, "finals": 0, "given_back": 0, "run_us": 0, "histogram": Counter(), "peer": "", "protocol": "",
            "principal": ""})  # fmt: skip

    for turns in journal.turns.values():
        for turn in turns:
            done = cell(hour_of(turn["ended"]), turn["run"], turn["worker"], turn["service"])
            done["turns"] += 1
            done["finals"] += turn["ending"] == "final"
            done["given_back"] += turn["ending"] == schema.REQUEUED
            done["peer"], done["protocol"] = (
                max(done["peer"], turn["worker_peer"]),
                max(done["protocol"], turn["worker_protocol"]),
            )
            done["principal"] = max(done["principal"], turn["worker_principal"])
            if turn["began"] is None:
                continue
            done["histogram"][bucket(turn["run_us"])] += 1
            begin, end = us(turn["began"]), us(turn["ended"])
            for hour in range(begin // HOUR, end // HOUR + 1):
                cell(hour, turn["run"], turn["worker"], turn["service"])["run_us"] += min(end, (hour + 1) * HOUR) - max(
                    begin, hour * HOUR
                )
    events: dict[tuple[int, int, int], Counter[str]] = defaultdict(Counter)
    for row in journal.messages:
        if row["event"] in (schema.LATE, schema.LOST, schema.STALE) and row["worker"] > 0:
            events[hour_of(row["time"]), row["run"], row["worker"]][row["event"]] += 1
    spans: dict[tuple[int, int, int], tuple[int, int]] = {}
    for (run, worker), known in present.items():
        for hour in range(known["came"] // HOUR, max(known["came"], known["went"]) // HOUR + 1):
            since = max(known["came"], hour * HOUR)
            spans[hour, run, worker] = since, max(since, min(known["went"], (hour + 1) * HOUR))
    made = []
    for key in {*keys, *events, *spans}:
        hour, run, worker = key
        known = present.get((run, worker), {"peer": "", "protocol": "", "principal": "", "offers": ""})
        since, until = spans.get(key, (0, 0))
        for service in keys.get(key) or {known["offers"] if key in spans else ""}:
            done = cells.get((hour, run, worker, service), {"turns": 0, "finals": 0, "given_back": 0, "run_us":
            0, "histogram": Counter(),
                                                            "peer": "", "protocol": "", "principal": ""})  # fmt: skip
            made.append({
                "window": moment(hour * HOUR), "broker": life[run][2], "run": run, "worker": worker, "service": service,
                "peer": max(done["peer"], known["peer"] if key in spans else ""),
                "protocol": max(done["protocol"], known["protocol"] if key in spans else ""),
                "principal": max(done["principal"], known["principal"] if key in spans else ""), "turns": done["turns"],
                "finals": done["finals"], "given_back": done["given_back"], "run_us": done["run_us"], "present_us": until - since,
                "utilisation": done["run_us"] / (until - since) if until > since else 0.0, "run_histogram": done["histogram"],
                "run_p50_us": percentile(done["histogram"], 0.5), "run_p99_us": percentile(done["histogram"], 0.99),
                **{name: events[key][name] for name in (schema.LATE, schema.LOST, schema.STALE)},
                "since": since, "until": until,
            })  # fmt: skip
    groups: dict[tuple[datetime, str, str], list[Row]] = defaultdict(list)
    for row in made:
        groups[row["window"], row["broker"], row["service"]].append(row)
    for fellows in groups.values():
        able = sorted(row["run_p50_us"] for row in fellows if row["turns"] >= 20 and row["protocol"] not in OWN)
        count = sum(row["protocol"] not in OWN for row in fellows)
        middle = able[math.ceil(len(able) / 2) - 1] if able else 0.0
        for row in fellows:
            row |= {"fellows": count, "fellows_p50_us": middle, "outlier": ""}
            if len(able) >= 2 and row["turns"] >= 20 and row["protocol"] not in OWN:
                if row["run_p50_us"] >= 2 * middle:
                    row["outlier"] = "slow"
                elif row["given_back"] >= 3 and row["given_back"] >= 0.1 * row["turns"]:
                    row["outlier"] = "gives back"
    return made


def _present(journal: Journal) -> dict[tuple[int, int], Row]:
    """By run and worker: when it was registered and when it left."""
    life = journal.life
    made: dict[tuple[int, int], Row] = {}
    for row in journal.messages:
        if row["event"] in (schema.REGISTERED, schema.LEFT, schema.LOST) and row["worker"] > 0:
            known = made.setdefault(
                (row["run"], row["worker"]),
                {
                    "came": life[row["run"]][0],
                    "went": life[row["run"]][1],
                    "peer": "",
                    "protocol": "",
                    "principal": "",
                    "offers": "",
                    "gone": False,
                    "seen": False,
                },
            )
            known["peer"] = max(known["peer"], row["peer"])
            known["protocol"] = max(known["protocol"], row["protocol"])
            known["principal"] = max(known["principal"], row["principal"])
            if row["event"] == schema.REGISTERED:
                if not known["seen"]:
                    known["came"], known["seen"] = us(row["time"]), True
                known["offers"] = row["service"]
            elif not known["gone"]:
                if not known["seen"]:
                    known["came"] = max(known["came"], hour_of(row["time"]) * HOUR)
                known["went"], known["gone"] = us(row["time"]), True
                known["offers"] = known["offers"] or row["service"]
    return made
