"""Checks what a broker tells people about itself, at the end of its run: the history and the groups of errors agree with the requests that
its journal has, take no more room than they may, and the list of problems can be shown."""

import json
from typing import TYPE_CHECKING

from polydomo.broker.observe import problems
from polydomo.broker.observe.history.history import BROKER
from polydomo.broker.observe.history.series import Series
from polydomo.limits import (
    COST_ERROR_GROUP,
    ERROR_GROUPS,
    FAILING_LEAST,
    HISTORY_STEPS,
    MAX_ERROR_GROUPS,
    MAX_PROBLEMS,
)
from sim.checker import Breach

if TYPE_CHECKING:
    from sim.brokers import BrokerNode

RULE = "figures"


def check_figures(node: "BrokerNode") -> "list[Breach]":
    found: list[Breach] = []
    _history(node, found)
    _errors(node, found)
    _problems(node, found)
    return found


def _sums(series: Series) -> "tuple[int, int]":
    samples = [sample for _, sample in series.fine.samples()]
    return sum([sample.requests for sample in samples]), sum([sample.failed for sample in samples])


def _history(node: "BrokerNode", found: "list[Breach]") -> None:
    history = node.broker.history
    history.fold()
    history.sample(history.step)
    history.finish()
    history.check_invariants()
    if history.bytes > history.max_bytes or len(history.series) > history.max_services:
        text = f"{node.run_name}: the history has {history.bytes} bytes of {len(history.series)} services"
        found.append(Breach(RULE, text))
    if history.step - node.first_step >= HISTORY_STEPS or node.world.faults.get("clock jump"):
        return  # more than an hour, because the broker was suspended: the first samples are gone; or the clock was set back
    finished = node.recorder.finished
    ended = sum(finished.values())
    failed = sum([count for (_, ok), count in finished.items() if not ok])
    if _sums(history.broker) != (ended, failed):
        text = f"the history has {_sums(history.broker)} requests and failures, the journal {(ended, failed)}"
        found.append(Breach(RULE, f"{node.run_name}: {text}"))
    for (name, ok), count in finished.items():
        if ok and name in history.series:
            requests, failures = _sums(history.series[name])
            if requests - failures != count:
                text = f"the history of {name!r} has {requests - failures} answered requests, the journal {count}"
                found.append(Breach(RULE, f"{node.run_name}: {text}"))
    for name, series in history.series.items():
        if name == BROKER:
            continue
        requests, failures = _sums(series)
        # Requests for a name that was never answered are counted together, so the history may have fewer.
        if failures > finished[name, False] or requests > finished[name, False] + finished[name, True]:
            journal = (finished[name, False] + finished[name, True], finished[name, False])
            text = f"the history of {name!r} has {(requests, failures)}, the journal {journal}"
            found.append(Breach(RULE, f"{node.run_name}: {text}"))


def _errors(node: "BrokerNode", found: "list[Breach]") -> None:
    errors = node.broker.errors
    groups = [len(by_reason) for by_reason in errors.services.values()]
    if sum(groups) != errors.count or errors.count > MAX_ERROR_GROUPS or max(groups, default=0) > ERROR_GROUPS:
        found.append(Breach(RULE, f"{node.run_name}: {groups} groups of errors, counted as {errors.count}"))
    if errors.memory() != COST_ERROR_GROUP * sum(groups):
        found.append(Breach(RULE, f"{node.run_name}: the groups of errors are booked as {errors.memory()} bytes"))
    for name, by_reason in errors.services.items():
        count = sum([group.count for group in by_reason.values()])
        failed = node.recorder.finished[name, False]
        if count > failed or (count < failed and len(by_reason) < ERROR_GROUPS and len(errors.services) == 1):
            text = f"groups of errors of {name!r} have {count} requests, the journal {failed}"
            found.append(Breach(RULE, f"{node.run_name}: {text}"))


def _problems(node: "BrokerNode", found: "list[Breach]") -> None:
    answer = problems.answer(node.broker.parts)
    json.dumps(answer)
    rows = answer["problems"]
    assert isinstance(rows, list)
    if len(rows) > MAX_PROBLEMS:
        found.append(Breach(RULE, f"{node.run_name}: {len(rows)} problems"))
    for row in rows:
        name = str(row["service"]).encode()
        if row["kind"] == problems.FAILING and node.recorder.finished[name, False] < FAILING_LEAST:
            found.append(Breach(RULE, f"{node.run_name}: {row['text']}, but few of its requests failed"))
