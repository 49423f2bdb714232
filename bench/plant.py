"""Breaks every rule of the journal on purpose, each time in a way that breaks no other."""

from typing import Any

import numpy as np

from bench.life import (
    CLIENTS,
    EV,
    FINISHED,
    O_AFTER,
    O_EXTRA,
    O_LOST,
    O_PARTIAL,
    SERVICES,
    Array,
    Blocks,
    Changes,
    Life,
    Planted,
    spare,
    visitor,
)
from polydomo.journal import schema
from polydomo.journal.reading.rules import FLOWS, ONCE, RULES

# These journals have no access control.
ABOUT_ACCESS = frozenset(
    (
        "called-with-the-right",
        "given-with-the-right",
        "origin-known",
        "forwarded-with-the-right",
        "job-with-the-right",
        "registered-with-the-right",
        "no-call-of-built-in",
    )
)


def plant(
    life: Life,
    rows: Blocks,
    records: Blocks,
    facts: dict[str, Array],
    masks: dict[str, Array],
    next_number: int,
    dice: np.random.Generator,
) -> tuple[Planted, Changes]:
    """Breaks every rule ``life.breaches`` times, each in a way that breaks no other. ``flow_lives`` and ``durable_lives`` break the rules
    over all runs."""
    run = life.run
    planted: Planted = []
    pools = {name: iter(dice.permutation(np.flatnonzero(mask))) for name, mask in masks.items()}
    changes = Changes()
    for _ in range(life.breaches):
        for rule in (rule.id for rule in RULES if rule.shape not in (ONCE, FLOWS) and rule.id not in ABOUT_ACCESS):
            pool = {
                "some-outcome": "chained",
                "no-hole": "partial",
                "silence-acted-on": "lost",
                "not-given-up-early": "lost",
                "nothing-after-goodbye": "lost",
                "nothing-after-closing": "lost",
                "given-back-first": "lost",
            }.get(rule, "usual")
            at = next(pools[pool], None)
            if at is None:
                raise ValueError(
                    f"{masks[pool].sum()} of the {life.requests} requests of {life.name} can be used to break {rule} and other "
                    f"rules ({pool}), which is not enough; generate more rows or fewer breaches, or use another seed"
                )
            fact = {name: int(values[at]) for name, values in facts.items()}
            number, stop, worker = fact["number"], fact["stopped"], fact["worker"]
            mine = {"number": number, "service": fact["service"], "client": fact["client"]}
            request: dict[str, Any] = {"run": run, "number": number}
            if rule == "one-outcome":
                rows.add(
                    t=stop,
                    event=EV[schema.FAILED],
                    order=O_AFTER,
                    connection=fact["client"],
                    attempt=1,
                    outcome=5,
                    **mine,
                )
            elif rule == "one-record":
                rows.add(t=stop, event=FINISHED, order=O_AFTER, number=number)
            elif rule == "some-outcome":
                changes.drop += [(number, EV[schema.FINAL]), (number, FINISHED)]
            elif rule == "outcome-recorded":
                changes.drop.append((number, FINISHED))
            elif rule == "nothing-after-outcome":
                rows.add(
                    t=stop,
                    event=EV[schema.QUEUED],
                    order=O_AFTER,
                    connection=fact["client"],
                    attempt=1,
                    queue=1,
                    **mine,
                )
            elif rule == "one-holder":
                other = int(spare(fact["service"]))
                rows.add(
                    t=fact["began"],
                    event=EV[schema.DISPATCHED],
                    order=O_EXTRA,
                    connection=other + CLIENTS,
                    worker=other,
                    attempt=1,
                    **mine,
                )
            elif rule == "fenced":
                other = int(spare(fact["service"]))
                rows.add(
                    t=fact["began"] + 9,
                    event=EV[schema.PARTIAL],
                    order=O_PARTIAL,
                    connection=other + CLIENTS,
                    worker=other,
                    attempt=1,
                    **mine,
                )
            elif rule == "to-the-asker":
                changes.set.append((number, EV[schema.FINAL], "client", fact["client"] % CLIENTS + 1))
            elif rule == "attempts-bounded":
                request = {"run": run}
                changes.record.append((number, "attempts", 4))
            elif rule == "answered-by-a-worker":
                request = {"run": run}
                changes.record.append((number, "worker", 0))
            elif rule == "times-in-order":
                request = {"run": run}
                changes.record.append((number, "wrong_total", 1))
            elif rule == "no-more-than-asked":
                visitor(rows, records, next_number, fact["service"], fact["began"] + 3, stop - 3, worker=worker)
                request = {"run": run, "worker": worker}
                next_number += 1
            elif rule == "nothing-after-goodbye":
                rows.add(t=stop + 7, event=EV[schema.REGISTERED], worker=worker, service=fact["service"], auto=1)
                request = {"run": run, "worker": worker}
            elif rule == "nothing-after-closing":
                visitor(rows, records, next_number, fact["service"], stop + 7, stop + 90, client=fact["connection"])
                request = {"run": run, "connection": fact["connection"]}
                next_number += 1
            elif rule == "given-back-first":
                visitor(rows, records, next_number, fact["service"], stop, stop + 90, began=stop, order=O_LOST + 2)
                request = {"run": run, "service": SERVICES[fact["service"]]}
                next_number += 1
            elif rule in ("silence-acted-on", "not-given-up-early"):
                changes.set.append(
                    (-worker, EV[schema.LOST], "silence", 30_000_000 if rule == "silence-acted-on" else 1_000_000)
                )
                request = {"run": run}
            elif rule == "no-hole":
                (changes.hole if len(changes.hole) <= len(changes.twice) else changes.twice).append(number)
                request = {"run": run}
            else:
                raise AssertionError(f"no way is known to break {rule}")
            planted.append((rule, run, request))
    return planted, changes
