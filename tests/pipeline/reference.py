"""The tables in plain Python, row by row, written from what docs/pipeline.md says of them: the pipeline's SQL is held against it.

It shares nothing with the pipeline but the journal's schema, the buckets of durations and the rules of the audit.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from polydomo.journal import rules, schema
from polydomo.journal.audit import audit, kind_of
from polydomo.journal.histogram import bucket, percentile
from polydomo.pipeline.tables.capacity import Objective

Row = dict[str, Any]
HOUR = 3_600_000_000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def us(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


def moment(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def hour_of(time: datetime) -> int:
    return us(time) // HOUR


class Reference:
    def __init__(self, rows: Iterable[Row], objectives: Mapping[str, Objective] | None = None) -> None:
        self.objectives = dict(objectives or {})
        self.rows = sorted(rows, key=lambda row: (row["run"], row["seq"]))
        self.messages = [row for row in self.rows if kind_of(row) == schema.MESSAGES]
        self.records = [row for row in self.rows if kind_of(row) == schema.REQUESTS]
        self.steps: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in self.messages:
            if row["event"] in (schema.DISPATCHED, schema.REQUEUED, schema.FORWARDED):
                self.steps[row["run"], row["number"]].append(row)
        self.parts = self._parts()
        self.turns = {id(part): self._turns(part) for part in self.parts}
        self._fix()
        self.tables: dict[str, list[Row]] = {}
        self._requests_and_hops()
        self._services()
        self._workers()
        self._topology()
        self._capacity()
        self._logs()
        self._values()
        self._jobs()
        self._audit()

    # --- requests and hops ---------------------------------------------------------------------------------------------------

    def _parts(self) -> list[Row]:
        """Each request of a run and hour once: its first record counts."""
        seen: set[tuple[int, int, int]] = set()
        found = []
        for row in self.records:
            key = (row["run"], row["number"], hour_of(row["time"]))
            if key not in seen:
                seen.add(key)
                found.append(dict(row))
        return found

    def _turns(self, part: Row) -> list[Row]:
        if not part["dispatches"]:
            return []
        here, begun = hour_of(part["time"]), hour_of(part["accepted"])
        steps = [row for row in self.steps[part["run"], part["number"]] if begun <= hour_of(row["time"]) <= here]
        ends = [row for row in steps if row["event"] != schema.DISPATCHED]
        starts: dict[tuple[int, int], Row] = {}
        for row in steps:
            if row["event"] == schema.DISPATCHED:
                starts.setdefault((row["hop"], row["attempt"]), row)
        targets = {row["hop"] + 1: row["service"] for row in ends if row["event"] == schema.FORWARDED}
        made = []
        for row in ends:
            forwarded = row["event"] == schema.FORWARDED
            made.append({"hop": row["hop"], "attempt": row["attempt"], "seq": row["seq"], "worker": row["worker"],
                         "worker_peer": row["peer"],
                         "worker_protocol": row["protocol"], "worker_principal": row["principal"],
                         "ended": row["time"], "ending": row["event"],
                         "service": "" if forwarded else row["service"]})  # fmt: skip
        requeued = any(
            row["event"] == schema.REQUEUED and (row["hop"], row["attempt"]) == (part["hops"], part["attempts"])
            for row in ends
        )
        if part["attempts"] and not requeued:
            made.append({"hop": part["hops"], "attempt": part["attempts"], "seq": part["seq"], "worker": part["worker"],
                         "worker_peer": part["worker_peer"], "worker_protocol": part["worker_protocol"],
                         "worker_principal": part["worker_principal"], "ended": part["time"],
                         "ending": "final" if part["outcome"] == "ok" else "failed", "service": part["last_service"]})  # fmt: skip
        made.sort(key=lambda turn: (turn["hop"], turn["attempt"], turn["seq"]))
        before = None
        for turn in made:
            start = starts.get((turn["hop"], turn["attempt"]))
            is_first = turn["hop"] == 0 and turn["attempt"] == 1
            if turn["ending"] in ("final", "failed"):
                began = part["dispatched"]
            elif start is not None:
                began = start["time"]
            elif is_first and part["first_dispatched"] is not None:
                began = part["first_dispatched"]
            else:
                began = part["dispatched"] if turn is made[-1] else None
            service = turn["service"] or (start["service"] if start is not None else "") or targets.get(turn["hop"], "")
            service = service or (part["service"] if turn["hop"] == 0 else "")
            turn |= {"service": service, "began": began, "arrived": part["accepted"] if is_first or before is None else before,
                     "run": part["run"], "broker": part["broker"], "number": part["number"], "principal": part["principal"]}  # fmt: skip
            turn["run_us"] = None if began is None else us(turn["ended"]) - us(began)
            turn["wait_us"] = None if began is None else us(began) - us(turn["arrived"])
            before = turn["ended"]
        made.sort(key=lambda turn: (turn["began"] or turn["ended"], turn["hop"], turn["attempt"], turn["seq"]))
        return made

    def _fix(self) -> None:
        """Waits and service times of requests that had several turns, or ended in the queue."""
        for part in self.parts:
            turns = self.turns[id(part)]
            if not turns:
                continue
            last = turns[-1]
            for name in ("worker", "worker_peer", "worker_protocol", "worker_principal"):
                part[name] = last[name]
            if len(turns) == part["dispatches"]:
                part["run_us"] = last["run_us"] or 0
                queued = us(part["time"]) - max(us(turn["ended"]) for turn in turns)
                part["wait_us"] = sum(turn["wait_us"] or 0 for turn in turns) + max(0, queued)
            for name in ("wait", "run"):
                part[f"{name}_bucket"] = bucket(part[f"{name}_us"])

    def _root(self, part: Row, by_id: Mapping[str, Row]) -> Row:
        found = part
        for _ in range(8):
            above = by_id.get(found["parent"]) if found["parent"] else None
            if above is None or abs(hour_of(above["time"]) - hour_of(part["time"])) > 1:
                break
            found = above
        return found

    def _requests_and_hops(self) -> None:
        by_id = {part["request"]: part for part in self.parts}
        self.whole: dict[str, list[Row]] = defaultdict(list)
        for part in self.parts:
            self.whole[self._root(part, by_id)["request"]].append(part)
        requests, hops = [], []
        for request, parts in self.whole.items():
            root = by_id[request]
            under = [part for part in parts if part is not root]

            far = max(under, key=lambda part: (_deep(part, by_id), part["request"]), default=None)
            requests.append({**root, "ended": root["time"], "bridged": len(under), "far_broker": far["broker"] if far else "",
                             "far_protocol": far["worker_protocol"] if far else ""})  # fmt: skip
            turns = [turn for part in parts for turn in self.turns[id(part)]]
            if under:
                turns.sort(
                    key=lambda turn: (
                        turn["began"] or turn["ended"],
                        turn["run"],
                        turn["hop"],
                        turn["attempt"],
                        turn["seq"],
                    )
                )
            for position, turn in enumerate(turns, 1):
                hops.append({**turn, "request": request, "position": position})
        self.tables["requests"] = requests
        self.tables["hops"] = hops

    # --- figures -----------------------------------------------------------------------------------------------------------------

    def _services(self) -> None:
        cells: dict[tuple[int, int, str, str], list[Row]] = defaultdict(list)
        queues: dict[tuple[int, int, str, str], list[Row]] = defaultdict(list)
        for seconds in (10, 60, 3600):
            for part in self.parts:
                cells[us(part["time"]) // (seconds * 10**6) * seconds, seconds, part["broker"], part["service"]].append(
                    part
                )
            for row in self.messages:
                if row["event"] in (schema.QUEUED, schema.REQUEUED, schema.FORWARDED):
                    queues[
                        us(row["time"]) // (seconds * 10**6) * seconds, seconds, row["broker"], row["service"]
                    ].append(row)
        made = []
        for key, parts in cells.items():
            at, seconds, broker, service = key
            waits, totals = (Counter(part[name] for part in parts) for name in ("wait_bucket", "total_bucket"))
            waiting = queues.get(key, [])
            made.append({
                "window": moment(at * 10**6), "seconds": seconds, "broker": broker, "service": service, "requests": len(parts),
                "ok": sum(part["outcome"] == "ok" for part in parts), "outcomes": Counter(part["outcome"] for part in parts),
                "retried": sum(part["dispatches"] > part["hops"] + 1 for part in parts),
                "passed_on": sum(part["hops"] > 0 for part in parts),
                **{name: sum(part[name] for part in parts) for name in ("request_bytes", "reply_bytes", "wait_us", "run_us", "total_us")},
                "run_us2": float(sum(part["run_us"] ** 2 for part in parts)), "worked": sum(part["dispatches"] > 0 for part in parts),
                "busy": sum(part["run_us"] for part in parts) / (seconds * 1e6), "queued": len(waiting),
                "queue_max": max((row["queue"] for row in waiting), default=0),
                "workers_max": max((row["workers"] for row in waiting), default=0),
                "wait_histogram": waits, "total_histogram": totals,
                "wait_p50_us": percentile(waits, 0.5), "wait_p99_us": percentile(waits, 0.99),
                **{f"total_p{name}_us": percentile(totals, share) for name, share in (("50", 0.5), ("90", 0.9),
                ("99", 0.99), ("999", 0.999))},
            })  # fmt: skip
        self.tables["services"] = made

    def _life(self) -> dict[int, tuple[int, int, str]]:
        """The first and last time of each run, and its broker."""
        made: dict[int, tuple[int, int, str]] = {}
        for row in self.rows:
            time = us(row["time"])
            first, last, _ = made.get(row["run"], (time, time, ""))
            made[row["run"]] = min(first, time), max(last, time), row["broker"]
        return made

    def _present(self) -> dict[tuple[int, int], Row]:
        """By run and worker, from when to when it was registered."""
        life = self._life()
        made: dict[tuple[int, int], Row] = {}
        for row in self.messages:
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

    def _workers(self) -> None:
        life = self._life()
        present = self._present()
        keys: dict[tuple[int, int, int], set[str]] = defaultdict(set)
        cells: dict[tuple[int, int, int, str], Row] = {}

        def cell(hour: int, run: int, worker: int, service: str) -> Row:
            keys[hour, run, worker].add(service)
            return cells.setdefault((hour, run, worker, service), {
                "turns": 0, "finals": 0, "given_back": 0, "run_us": 0, "histogram": Counter(), "peer": "", "protocol": "",
                "principal": ""})  # fmt: skip

        for turns in self.turns.values():
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
                    cell(hour, turn["run"], turn["worker"], turn["service"])["run_us"] += min(
                        end, (hour + 1) * HOUR
                    ) - max(begin, hour * HOUR)
        events: dict[tuple[int, int, int], Counter[str]] = defaultdict(Counter)
        for row in self.messages:
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
            able = sorted(row["run_p50_us"] for row in fellows if row["turns"] >= 20)
            middle = able[math.ceil(len(able) / 2) - 1] if able else 0.0
            for row in fellows:
                row |= {"fellows": len(fellows), "fellows_p50_us": middle, "outlier": ""}
                if len(able) >= 2 and row["turns"] >= 20:
                    if row["run_p50_us"] >= 2 * middle:
                        row["outlier"] = "slow"
                    elif row["given_back"] >= 3 and row["given_back"] >= 0.1 * row["turns"]:
                        row["outlier"] = "gives back"
        self.tables["workers"] = made

    def _topology(self) -> None:
        edges: dict[tuple[int, str, str, str, str], list[Row]] = defaultdict(list)
        known = {row["request"]: row for row in self.tables["requests"]}
        for row in known.values():
            hour = hour_of(row["ended"])
            edges[
                hour, "asks", row["broker"], f"{row['client_protocol']} {host(row['client_peer'])}", row["service"]
            ].append(row)
            if row["worker"]:
                edges[
                    hour,
                    "serves",
                    row["broker"],
                    row["last_service"],
                    f"{row['worker_protocol']} {host(row['worker_peer'])}",
                ].append(row)
            if row["bridged"]:
                edges[hour, "bridges", row["broker"], row["broker"], row["far_broker"]].append(row)
        places = {(hop["request"], hop["position"]): hop for hop in self.tables["hops"]}
        for (request, position), hop in places.items():
            then = places.get((request, position + 1))
            if hop["ending"] == schema.FORWARDED and then is not None:
                row = known[request]
                edges[hour_of(row["ended"]), "passes", row["broker"], hop["service"], then["service"]].append(row)
        made = []
        for (hour, kind, broker, source, target), rows in edges.items():
            counts = Counter(row["total_bucket"] for row in rows)
            made.append({"window": moment(hour * HOUR), "kind": kind, "broker": broker, "source": source, "target": target,
                         "requests": len(rows),
                         "failed": sum(row["outcome"] != "ok" for row in rows), "total_us": sum(row["total_us"] for row in rows),
                         "p50_us": percentile(counts, 0.5), "p99_us": percentile(counts, 0.99)})  # fmt: skip
        self.tables["topology"] = made

    def _capacity(self) -> None:
        asked = {
            (row["window"], row["broker"], row["service"]): row
            for row in self.tables["services"]
            if row["seconds"] == 3600
        }
        turns: dict[tuple[datetime, str, str], list[Row]] = defaultdict(list)
        for some in self.turns.values():
            for turn in some:
                turns[moment(hour_of(turn["ended"]) * HOUR), turn["broker"], turn["service"]].append(turn)
        arrivals: dict[tuple[datetime, str, str, int], list[int]] = defaultdict(list)
        for row in self.records:
            if row["job"] and row["client_protocol"] != "job":
                continue  # it waited for the outcome of a job, not in the queue
            arrivals[moment(hour_of(row["time"]) * HOUR), row["broker"], row["service"], row["run"]].append(
                us(row["accepted"])
            )
        for row in self.messages:
            if row["event"] in (schema.REQUEUED, schema.FORWARDED):
                arrivals[moment(hour_of(row["time"]) * HOUR), row["broker"], row["service"], row["run"]].append(
                    us(row["time"])
                )
        gaps: dict[tuple[datetime, str, str], list[int]] = defaultdict(list)
        for (window, broker, service, _), times in arrivals.items():
            times.sort()
            gaps[window, broker, service] += [b - a for a, b in pairwise(times) if b - a <= 10_000_000]
        keys = {*asked, *turns, *(key for key, some in gaps.items() if some)}
        self.tables["capacity"] = [
            self._bears(key, asked.get(key), turns.get(key, []), gaps.get(key, [])) for key in keys
        ]

    def _bears(self, key: tuple[datetime, str, str], asked: Row | None, turns: list[Row], gaps: list[int]) -> Row:
        window, broker, service = key
        workers = [
            row
            for row in self.tables["workers"]
            if (row["window"], row["broker"], row["service"]) == key and row["turns"]
        ]
        there = [row for row in workers if row["until"] > 0]
        crowd = 0
        if there:
            span = max(1, max(row["until"] for row in there) - min(row["since"] for row in there))
            crowd = max(1, math.floor(sum(row["until"] - row["since"] for row in there) / span + 0.5))
        elif workers:
            crowd = 1
        timed = [turn["run_us"] for turn in turns if turn["run_us"] is not None]
        waited = [turn["wait_us"] for turn in turns if turn["wait_us"] is not None]
        mean = sum(timed) / len(timed) if timed else 0.0
        scv = max(0.0, sum(t * t for t in timed) / len(timed) / (mean * mean) - 1) if mean else 0.0
        total = sum(gaps)
        gap = total / len(gaps) if gaps else 0.0
        arrival = max(0.0, sum(g * g for g in gaps) / len(gaps) / (gap * gap) - 1) if len(gaps) > 1 and gap else 1.0
        rate = len(gaps) / (total / 1e6) if total else 0.0
        objective = self.objectives.get(service, self.objectives.get("*", Objective()))
        limit = round(objective.seconds * 1e6)
        used = rate * mean / 1e6 / crowd if crowd else 0.0
        able = len(turns) >= 100 and crowd > 0 and mean > 0

        def wait(r: float) -> float:
            power: float = r ** (math.sqrt(2 * (crowd + 1)) - 1)
            return mean * (arrival + scv) / 2 * power / (crowd * (1 - r))

        best = max((i / 1000 for i in range(1, 1000) if wait(i / 1000) <= limit), default=None) if able else None
        requests = asked["requests"] if asked else 0
        within = 0
        if asked:
            within = max(
                0, sum(n for b, n in asked["total_histogram"].items() if b <= bucket(limit)) - (requests - asked["ok"])
            )
        capacity = best * crowd * 1e6 / mean if best is not None else None
        return {
            "window": window, "broker": broker, "service": service, "requests": requests, "turns": len(turns),
            "span_s": total / 1e6, "rate": rate,
            "workers": crowd, "service_us": mean, "service_scv": scv, "arrival_scv": arrival, "utilisation": used, "objective_us": limit,
            "target": objective.target, "measured_wait_us": sum(waited) / len(waited) if waited else None,
            "wait_us": wait(used) if able and used < 1 else None, "capacity": capacity,
            "headroom": capacity / rate if capacity and rate else None,
            "within": within, "budget_used": (requests - within) / (requests * (1 - objective.target)) if requests else None,
        }  # fmt: skip

    # --- the rest ----------------------------------------------------------------------------------------------------------------

    def _logs(self) -> None:
        ended: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for part in self.parts:
            ended[part["run"], part["number"]].append(part)
        made = []
        for row in self.messages:
            if row["event"] == schema.LOG:
                near = [
                    part
                    for part in ended[row["run"], row["number"]]
                    if 0 <= hour_of(part["time"]) - hour_of(row["time"]) <= 1
                ]
                found = near[0] if near and row["number"] else {"request": "", "outcome": ""}
                made.append(
                    {
                        **row,
                        "level": row["outcome"],
                        "message": row["reason"],
                        "request": found["request"],
                        "outcome": found["outcome"],
                    }
                )
        self.tables["logs"] = made

    def _values(self) -> None:
        published = [row for row in self.messages if row["event"] == schema.PUBLISHED]
        newest: dict[tuple[str, str, int], tuple[datetime, int]] = {}
        for row in published:
            key = row["broker"], row["topic"], hour_of(row["time"])
            newest[key] = max(newest.get(key, (row["time"], row["seq"])), (row["time"], row["seq"]))
        self.tables["values"] = [
            {**row, "last": newest[row["broker"], row["topic"], hour_of(row["time"])] == (row["time"], row["seq"])}
            for row in published
        ]

    def _jobs(self) -> None:
        events = [row for row in self.messages if row["event"] == schema.JOB]
        self.tables["job_events"] = [
            {**row, "event": row["outcome"], "outcome": row["code"], "wait_us": row["wait_us"] if row["outcome"] == "retry" else 0,
             "submitted": row["created"], "bytes": row["size"]}
            for row in events
        ]  # fmt: skip
        self.tables["jobs"] = [
            {**row, "submitted": row["created"], "ended": row["time"], "total_us": us(row["time"]) - us(row["created"]),
             "attempts": row["attempt"], "backoff_us": row["wait_us"], "state": row["outcome"], "outcome": row["code"],
             "result_bytes": row["size"]}
            for row in events if row["outcome"] in ("done", "dead", "cancelled")
        ]  # fmt: skip

    def _audit(self) -> None:
        by_seq: dict[tuple[int, int], Row] = {(row["run"], row["seq"]): row for row in self.rows}
        life = self._life()
        breaches = []
        for breach in audit(self.rows):
            seq = breach.proof[-1][1]
            rule = rules.BY_ID[breach.rule]
            row = by_seq.get((breach.run, seq))
            about = {
                "number": 0,
                "worker": 0,
                "connection": 0,
                "service": "",
                **{k: v for k, v in breach.about.items() if k != "run"},
            }
            if rule.shape == rules.EACH and row is not None:
                about |= {"number": row["number"], "worker": row["worker"]}
            time = moment(life[breach.run][1]) if rule.shape == rules.SEQUENCE or row is None else row["time"]
            breaches.append({"rule": breach.rule, "says": rule.says, "broker": life[breach.run][2], "run":
            breach.run, **about, "seq": seq, "time": time,
                             "proof": [seq for _, seq in breach.proof], "detail": breach.detail.removeprefix(": ")})  # fmt: skip
        self.tables["audit"] = breaches
        levels: dict[int, int] = defaultdict(lambda: 1)
        for row in self.messages:
            if row["level"] == schema.MESSAGES or row["event"] in schema.ONLY_MESSAGES:
                levels[row["run"]] = 2
        counts = Counter((row["run"], row["rule"]) for row in breaches)
        self.tables["audit_rules"] = [
            {"run": run, "broker": broker, "level": schema.LEVELS[levels[run]], "rule": rule.id, "says": rule.says,
             "checkable": rule in rules.checkable(schema.LEVELS[levels[run]]), "breaches": counts[run, rule.id]}
            for run, (_, _, broker) in life.items() for rule in rules.RULES if rule.shape != rules.ONCE
        ]  # fmt: skip
        if any(row["once"] for row in self.messages):
            self.tables["audit_rules"] += [
                {"run": 0, "broker": "", "level": schema.REQUESTS, "rule": rule.id, "says": rule.says, "checkable": True,
                 "breaches": sum(row["rule"] == rule.id for row in breaches)}
                for rule in rules.RULES if rule.shape == rules.ONCE
            ]  # fmt: skip


def host(peer: str) -> str:
    head, found, tail = peer.rpartition(":")
    return head if found and tail.isdigit() else peer


def _deep(part: Row, by_id: Mapping[str, Row]) -> int:
    """Over how many bridges it is from the request that a client made."""
    above = by_id.get(part["parent"]) if part["parent"] else None
    return 0 if above is None else 1 + _deep(above, by_id)
