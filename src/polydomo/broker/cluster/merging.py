"""Merging: the answers of several processes of one broker become one answer, of the same form.

Counts add up. A service that several processes offer is one row. Times since a start are those of the process that has run longest.
"""

import json
from collections.abc import Callable
from typing import Final

from polydomo.limits import LARGEST_PEERS, MAX_LISTED, MONITOR_SHOWN

Row = dict[str, object]

MAX_OF: Final = frozenset(
    ("uptime_us", "span_us", "oldest_wait_us", "p50_us", "p99_us", "max_us", "mean_us", "state_us", "queued_us")
)
# Process 0's, or of the one that was asked.
FIRST_OF: Final = frozenset(("address", "time", "directory", "level", "limits"))
WORST: Final = (
    "lost",
    "left",
    "late",
    "registering",
    "ready",
    "busy",
    "drained",
    "paused",
)  # a service is in the best state that it has anywhere


def merge(how: "Callable[[list[object]], object] | None", answers: "list[bytes]") -> bytes:
    """``how``: one of the functions below. ``answers``: of the process that was asked first. A part that cannot be read is left out."""
    if len(answers) == 1 and how is None:
        return answers[0]
    parts: list[object] = []
    for answer in answers:
        try:
            parts.append(json.loads(answer))
        except (ValueError, RecursionError):
            continue
    return json.dumps(how(parts) if how is not None else parts[0]).encode() if parts else b"null"


def first(parts: "list[object]") -> object:
    return parts[0]


def lists(parts: "list[object]") -> object:
    return [row for part in parts if isinstance(part, list) for row in part]


def limited(parts: "list[object]") -> object:
    """Requests: at most as many as one process would list."""
    found = lists(parts)
    assert isinstance(found, list)
    return found[:MAX_LISTED]


def by_name(parts: "list[object]") -> object:
    """Rows of services: one for each name."""
    found: dict[object, list[Row]] = {}
    for part in parts:
        for row in part if isinstance(part, list) else ():
            if isinstance(row, dict):
                found.setdefault(row.get("name"), []).append(row)
    return [rows[0] if len(rows) == 1 else service(rows) for rows in found.values()]


def service(rows: "list[Row]") -> Row:
    """One service as several processes see it."""
    offered = [row for row in rows if row.get("workers")]
    best = max(offered or rows, key=lambda row: WORST.index(str(row.get("state"))) if row.get("state") in WORST else 0)
    merged = add(rows)
    for key in ("state", "state_since", "cause"):
        if key in best:
            merged[key] = best[key]
    own = {protocol for row in offered for protocol in _texts(row.get("protocols")) if protocol != "bridge"}
    everything = {protocol for row in rows for protocol in _texts(row.get("protocols"))}
    merged["protocols"] = sorted(own or everything)
    return merged


def _texts(value: object) -> "list[str]":
    return [str(item) for item in value] if isinstance(value, list) else []


def add(rows: "list[Row]") -> Row:
    """Objects with the same keys: numbers add up, objects are merged, and of everything else the first counts."""
    merged: Row = {}
    for key in rows[0]:
        values = [row[key] for row in rows if row.get(key) is not None]
        merged[key] = _value(key, values) if values else None
    return merged


def _value(key: str, values: "list[object]") -> object:
    value = values[0]
    if key in FIRST_OF:
        return value
    if isinstance(value, bool):
        return any(values)
    if isinstance(value, (int, float)):
        # Counts stay whole: compiled, a list of both kinds of numbers would be one of floats.
        counts = [number for number in values if isinstance(number, int)]
        if len(counts) == len(values):
            return max(counts) if key in MAX_OF else sum(counts)
        numbers = [float(number) for number in values if isinstance(number, (int, float))]
        return max(numbers) if key in MAX_OF else round(sum(numbers), 6)
    if isinstance(value, dict):
        rows = [row for row in values if isinstance(row, dict)]
        keys = dict.fromkeys(name for row in rows for name in row)
        return {name: _value(name, [row[name] for row in rows if row.get(name) is not None] or [None]) for name in keys}
    if key == "started":
        return min(str(text) for text in values)
    return value


def status(parts: "list[object]") -> object:
    rows = [part for part in parts if isinstance(part, dict)]
    merged = add(rows)
    names: set[str] = set()
    for row in rows:
        names.update(_texts(row.pop("service_names", [])))
    merged.pop("service_names", None)
    if names:
        merged["services"] = len(names)
    largest = [peer for row in rows for peer in _rows(row.get("largest_peers"))]
    merged["largest_peers"] = sorted(largest, key=_held_bytes, reverse=True)[:LARGEST_PEERS]
    shown = ("process", "pid", "uptime_us", "connections", "workers", "open_requests")
    merged["processes"] = sorted(
        ({key: row.get(key) for key in shown} for row in rows), key=lambda row: str(row["process"]).zfill(4)
    )
    for key in ("process", "pid"):
        merged.pop(key, None)
    return merged


def _held_bytes(row: Row) -> int:
    held = row.get("held_bytes")
    return held if isinstance(held, int) else 0


def figures(parts: "list[object]") -> object:
    rows = [part for part in parts if isinstance(part, dict)]
    merged = add(rows)
    merged["services"] = by_name([row.get("services") for row in rows])
    events = [event for row in rows for event in _rows(row.get("events"))]
    merged["events"] = sorted(events, key=lambda event: str(event.get("time")))[-MONITOR_SHOWN:]
    return merged


def _rows(value: object) -> "list[Row]":
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def gone(parts: "list[object]") -> object:
    rows = [part for part in parts if isinstance(part, dict)]
    kinds = dict.fromkeys(kind for row in rows for kind in row)
    return {kind: [item for row in rows for item in _rows(row.get(kind))] for kind in kinds}


def events(parts: "list[object]") -> object:
    """In the order of time."""
    return sorted((row for part in parts for row in _rows(part)), key=lambda event: str(event.get("time")))


def errors(parts: "list[object]") -> object:
    """Groups of failed requests: those with the same reason are one, with the newest example."""
    found: dict[tuple[str, str, str], Row] = {}
    for part in parts:
        for row in _rows(part):
            key = (str(row.get("service")), str(row.get("outcome")), str(row.get("reason")))
            known = found.get(key)
            if known is None:
                found[key] = row
                continue
            newest = max(known, row, key=lambda one: str(one.get("last")))
            first = min(str(known.get("first")), str(row.get("first")))
            found[key] = {**newest, "first": first, "count": _count(known) + _count(row)}
    return sorted(found.values(), key=lambda row: -_count(row))


def _count(row: Row) -> int:
    count = row.get("count")
    return count if isinstance(count, int) else 0


def detail(parts: "list[object]") -> object:
    """One service as all processes see it."""
    rows = [part for part in parts if isinstance(part, dict)]
    known = [row["service"] for row in rows if isinstance(row.get("service"), dict)]
    merged = dict(rows[0]) if rows else {}
    merged["service"] = service(known) if len(known) > 1 else known[0] if known else None
    waiting = [row for row in rows if row.get("why")]
    merged["why"] = max(waiting, key=_oldest_wait)["why"] if waiting else ""
    merged["waiting_jobs"] = sum(int(row.get("waiting_jobs") or 0) for row in rows)
    merged["open_per_worker"] = open_per_worker(merged["service"], merged["waiting_jobs"])
    merged["typed"] = any(row.get("typed") for row in rows)
    return merged


def _oldest_wait(row: Row) -> int:
    service = row.get("service")
    return int(service.get("oldest_wait_us") or 0) if isinstance(service, dict) else 0


def open_per_worker(row: object, waiting: int) -> float:
    """The open requests of a service, jobs that wait included, for each of its workers, by which they can be scaled. With no worker, all of
    them."""
    requests = workers = 0
    if isinstance(row, dict):
        requests, workers = int(row.get("open_requests") or 0), int(row.get("workers") or 0)
    return round((requests + waiting) / max(workers, 1), 3)


def journal(parts: "list[object]") -> object:
    """Each process writes its own run; ``rows`` and ``safe`` are those of all."""
    rows = [part for part in parts if isinstance(part, dict) and part]
    if not rows:
        return first(parts)
    merged = add(rows)
    merged["run"] = rows[0].get("run")
    merged["runs"] = [row.get("run") for row in rows]
    merged["trouble"] = next((row["trouble"] for row in rows if row.get("trouble")), rows[0].get("trouble"))
    return merged


def window(parts: "list[object]") -> object:
    return sum(part for part in parts if isinstance(part, int))


def orders(parts: "list[object]") -> object:
    """Orders: what any process could do counts; the same error from all is that error."""
    rows = [part for part in parts if isinstance(part, dict)]
    done = [row for row in rows if "error" not in row]
    if not done:
        return rows[0] if rows else None
    if "workers" in done[0]:
        return {"workers": [worker for row in done for worker in _rows(row.get("workers"))]}
    if "service" in done[0]:
        merged = dict(done[0])
        for key in ("queued", "running"):
            merged[key] = sum(count for row in done if isinstance(count := row.get(key), int))
        return merged
    return done[0]
