"""``capacity``: load, forecast and objective by hour, broker and service."""

import math
from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise

from polydomo.journal import schema
from polydomo.journal.histogram import bucket
from polydomo.model.objective import Objective
from tests.pipeline.reference.basics import OWN, Row, us, window_of
from tests.pipeline.reference.journal import Journal

Key = tuple[datetime, str, str]  # window, broker, service


def capacity(journal: Journal, workers: list[Row], objectives: Mapping[str, Objective]) -> list[Row]:
    asked: dict[Key, list[Row]] = defaultdict(list)
    for part in journal.parts:
        if part["client_protocol"] not in ("job", *OWN):  # the broker sent the others itself
            asked[window_of(part["time"]), part["broker"], part["service"]].append(part)
    turns: dict[Key, list[Row]] = defaultdict(list)
    for some in journal.turns.values():
        for turn in some:
            if turn["worker_protocol"] not in OWN:
                turns[window_of(turn["ended"]), turn["broker"], turn["service"]].append(turn)
    arrivals: dict[tuple[datetime, str, str, int], list[int]] = defaultdict(list)
    for row in journal.records:
        if (row["job"] and row["client_protocol"] != "job") or row["worker_protocol"] in OWN:
            continue  # it waited for the outcome of a job or for a shared run, not in the queue
        arrivals[window_of(row["time"]), row["broker"], row["service"], row["run"]].append(us(row["accepted"]))
    for row in journal.messages:
        if row["event"] in (schema.REQUEUED, schema.FORWARDED):
            arrivals[window_of(row["time"]), row["broker"], row["service"], row["run"]].append(us(row["time"]))
    gaps: dict[Key, list[int]] = defaultdict(list)
    for (window, broker, service, _), times in arrivals.items():
        times.sort()
        gaps[window, broker, service] += [b - a for a, b in pairwise(times) if b - a <= 10_000_000]
    keys = {*asked, *turns, *(key for key, some in gaps.items() if some)}
    made = []
    for key in keys:
        there = [row for row in workers if (row["window"], row["broker"], row["service"]) == key and row["turns"]]
        there = [row for row in there if row["protocol"] not in OWN]
        objective = objectives.get(key[2], objectives.get("*", Objective()))
        made.append(_capacity(key, asked.get(key, []), turns.get(key, []), gaps.get(key, []), there, objective))
    return made


def _capacity(
    key: Key, asked: list[Row], turns: list[Row], gaps: list[int], workers: list[Row], objective: Objective
) -> Row:
    window, broker, service = key
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
    scv = max(0.0, round(sum(t * t for t in timed) / len(timed) / (mean * mean) - 1, 9)) if mean else 0.0
    total = sum(gaps)
    gap = total / len(gaps) if gaps else 0.0
    arrival = (
        max(0.0, round(sum(g * g for g in gaps) / len(gaps) / (gap * gap) - 1, 9)) if len(gaps) > 1 and gap else 1.0
    )
    rate = len(gaps) / (total / 1e6) if total else 0.0
    limit = round(objective.seconds * 1e6)
    used = rate * mean / 1e6 / crowd if crowd else 0.0
    able = len(turns) >= 100 and crowd > 0 and mean > 0

    def wait(r: float) -> float:
        power: float = r ** (math.sqrt(2 * (crowd + 1)) - 1)
        return mean * (arrival + scv) / 2 * power / (crowd * (1 - r))

    best = max((i / 1000 for i in range(1, 1000) if wait(i / 1000) <= limit), default=None) if able else None
    requests = len(asked)
    within = sum(part["outcome"] == "ok" and part["total_bucket"] <= bucket(limit) for part in asked)
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
