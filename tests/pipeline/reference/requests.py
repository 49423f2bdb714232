"""``requests`` and ``hops``: the parts of a bridged request belong to the request that its client sent."""

from collections import defaultdict
from collections.abc import Mapping

from tests.pipeline.reference.basics import Row, hour_of
from tests.pipeline.reference.journal import Journal


def requests_and_hops(journal: Journal) -> tuple[list[Row], list[Row]]:
    by_id = {part["request"]: part for part in journal.parts}
    whole: dict[str, list[Row]] = defaultdict(list)
    for part in journal.parts:
        whole[_root(part, by_id)["request"]].append(part)
    requests, hops = [], []
    for request, parts in whole.items():
        root = by_id[request]
        under = [part for part in parts if part is not root]

        far = max(under, key=lambda part: (_deep(part, by_id), part["request"]), default=None)
        requests.append({**root, "ended": root["time"], "bridged": len(under), "far_broker": far["broker"] if far else "",
                         "far_protocol": far["worker_protocol"] if far else ""})  # fmt: skip
        turns = [turn for part in parts for turn in journal.turns[id(part)]]
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
    return requests, hops


def _root(part: Row, by_id: Mapping[str, Row]) -> Row:
    found = part
    for _ in range(8):
        above = by_id.get(found["parent"]) if found["parent"] else None
        if above is None or abs(hour_of(above["time"]) - hour_of(part["time"])) > 1:
            break
        found = above
    return found


def _deep(part: Row, by_id: Mapping[str, Row]) -> int:
    """The number of bridges between a part and the request that its client sent."""
    above = by_id.get(part["parent"]) if part["parent"] else None
    return 0 if above is None else 1 + _deep(above, by_id)
