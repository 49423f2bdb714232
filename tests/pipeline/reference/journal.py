"""The journal as the tables see it: each request once, with its turns, waits and service times."""

from collections import defaultdict
from collections.abc import Iterable

from polydomo.journal import schema
from polydomo.journal.histogram import bucket
from polydomo.journal.reading.audit import kind_of
from tests.pipeline.reference.basics import Row, hour_of, us

SHARING = (schema.MEMO, schema.KEYED)
STEPS = (schema.DISPATCHED, schema.REQUEUED, schema.FORWARDED, *SHARING)


class Journal:
    """``parts`` are the requests of each run; ``turns`` are the dispatches of each part that ended, by the part's ``id()``."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: (row["run"], row["seq"]))
        self.messages = [row for row in self.rows if kind_of(row) == schema.MESSAGES]
        self.records = [row for row in self.rows if kind_of(row) == schema.REQUESTS]
        self._steps: dict[tuple[int, int], list[Row]] = defaultdict(list)
        for row in self.messages:
            if row["event"] in STEPS:
                self._steps[row["run"], row["number"]].append(row)
        self.parts = self._parts()
        self.turns = {id(part): self._turns(part) for part in self.parts}
        self._fix()
        self.life = self._life()

    def _steps_of(self, part: Row) -> list[Row]:
        """The request's events from the hour in which it was accepted to the hour in which it ended."""
        begun, here = hour_of(part["accepted"]), hour_of(part["time"])
        return [row for row in self._steps[part["run"], part["number"]] if begun <= hour_of(row["time"]) <= here]

    def _parts(self) -> list[Row]:
        """Each request of a run and hour once: its first record counts."""
        seen: set[tuple[int, int, int]] = set()
        found = []
        for row in self.records:
            key = (row["run"], row["number"], hour_of(row["time"]))
            if key not in seen:
                seen.add(key)
                found.append({**row, **self._shared(row)})
        return found

    def _shared(self, part: Row) -> Row:
        """How the request shared a run, by its first events: memoised services and idempotency keys."""
        found: Row = {"memo": "", "keyed": "", "key": ""}
        for row in reversed(self._steps_of(part)):
            if row["event"] == schema.MEMO:
                found["memo"] = row["outcome"]
            elif row["event"] == schema.KEYED:
                found |= {"keyed": row["outcome"], "key": row["key"]}
        return found

    def _turns(self, part: Row) -> list[Row]:
        """The dispatches of a request, in the order in which they began."""
        if not part["dispatches"]:
            return []
        steps = [row for row in self._steps_of(part) if row["event"] not in SHARING]
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
        if part["attempts"] and part["dispatched"] is not None and not requeued:
            made.append({"hop": part["hops"], "attempt": part["attempts"], "seq": part["seq"], "worker": part["worker"],
                         "worker_peer": part["worker_peer"], "worker_protocol": part["worker_protocol"],
                         "worker_principal": part["worker_principal"], "ended": part["time"],
                         "ending": "final" if part["outcome"] == "ok" else "failed", "service": part["last_service"]})  # fmt: skip
        made.sort(key=lambda turn: (turn["hop"], turn["attempt"], turn["seq"]))
        before = None
        for turn in made:
            start = starts.get((turn["hop"], turn["attempt"]))
            is_first = turn["hop"] == 0 and turn["attempt"] == 1
            # A job counts its attempts over several requests.
            is_first |= turn is made[0] and part["client_protocol"] == "job"
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
            part["total_us"] = us(part["time"]) - us(part["accepted"])
            part["total_bucket"] = bucket(part["total_us"])
            if part["client_protocol"] == "job":  # the journal counts over all attempts of the job
                part["dispatches"] = len(turns)
            if not part["dispatches"]:
                part["wait_us"] = part["total_us"]
                part["wait_bucket"] = part["total_bucket"]
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

    def _life(self) -> dict[int, tuple[int, int, str]]:
        """The first and last time of each run, and its broker."""
        made: dict[int, tuple[int, int, str]] = {}
        for row in self.rows:
            time = us(row["time"])
            first, last, _ = made.get(row["run"], (time, time, ""))
            made[row["run"]] = min(first, time), max(last, time), row["broker"]
        return made
