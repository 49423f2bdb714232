"""Runs the three stages: in this process for small batches, on Spark for large ones. Both give the same tables."""

import os
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from polydomo.errors import PolydomoError
from polydomo.pipeline.engine.bridges import bridges
from polydomo.pipeline.engine.hour import hour
from polydomo.pipeline.engine.messages import DRIVER, ONCE, Message, packed, unpacked
from polydomo.pipeline.engine.once import once
from polydomo.pipeline.engine.payloads import typed
from polydomo.pipeline.engine.plan import Plan
from polydomo.pipeline.engine.run import run
from polydomo.pipeline.engine.unit import unit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Note = dict[str, Any]
FIELDS = "stage INT, slot INT, address STRING, name STRING, content BINARY"
_SCHEMA = pa.schema(
    [
        ("stage", pa.int32()),
        ("slot", pa.int32()),
        ("address", pa.string()),
        ("name", pa.string()),
        ("content", pa.binary()),
    ]
)


def first(plan: Plan, place: int) -> Iterator[Message]:
    return hour(plan, plan.hours[place])


def later(plan: Plan, address: str, inbox: list[Message]) -> Iterator[Message]:
    """Runs a task of stage 2 or 3."""
    kind, _, rest = address.partition(":")
    if kind == "bridges":
        return bridges(plan, rest, inbox)
    if kind == "payload":
        return typed(plan, rest, inbox)
    if address == ONCE:
        return once(plan, inbox)
    if kind == "unit":
        return unit(plan, rest, inbox)
    return run(plan, address, inbox) if inbox and inbox[0].stage == 2 else iter(())


def notes_of(messages: list[Message]) -> list[Note]:
    return [row for message in messages for row in message.table.to_pylist()]


# --- in this process ----------------------------------------------------------------------------------------------------


def in_process(plan: Plan) -> list[Note]:
    """Runs one task after the other. DuckDB uses all cores."""
    plan.threads = os.cpu_count() or 1
    boxes: dict[tuple[int, str], list[Message]] = {}

    def deliver(messages: Iterator[Message]) -> None:
        for message in messages:
            address = message.address
            if message.stage and address not in plan.addresses(message.stage):
                address = plan.addresses(message.stage)[plan.slot(message.stage, address)]
            boxes.setdefault((message.stage, address), []).append(message)

    for place in range(len(plan.hours)):
        deliver(first(plan, place))
    for stage in (2, 3):
        for address in plan.addresses(stage):
            deliver(later(plan, address, boxes.pop((stage, address), [])))
    return notes_of(boxes.get((0, DRIVER), []))


# --- on Spark -------------------------------------------------------------------------------------------------------------


def on_spark(plan: Plan, spark: "SparkSession") -> list[Note]:
    """Runs one Spark job of three stages. Spark moves the messages between them, as rows with one Arrow table each."""
    plan.addresses(2)
    plan.addresses(3)
    frame: DataFrame = spark.range(0, len(plan.hours), 1, len(plan.hours)).mapInArrow(_first_task(plan), FIELDS)
    for stage in (2, 3):
        frame = frame.repartitionById(len(plan.addresses(stage)), "slot").mapInArrow(_later_task(plan, stage), FIELDS)
    try:
        rows = frame.select("content").collect()
    except Exception as error:  # errors of py4j, pyspark and gRPC have no common class
        raise failure(error) from error
    found = [unpacked(bytes(row.content)) for row in rows]
    return [row for table in found for row in table.to_pylist()]


def failure(error: Exception) -> PolydomoError:
    """The reason why a job failed, in one line."""
    text = str(error)
    missing = re.search(r"ModuleNotFoundError: No module named '(\w+)", text)
    if missing:
        return PolydomoError(
            f"the Python of Spark's executors has no {missing[1]}: install polydomo[spark] there, or ship an environment with "
            "--conf spark.archives (see docs/pipeline.md)"
        )
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*[\w.]*(Error|Exception)\b.*: ", line)]
    return PolydomoError(
        f"a task of the Spark job failed: {lines[-1] if lines else text.splitlines()[0] if text else type(error).__name__}"
    )


def _first_task(plan: Plan) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                yield from _rows(plan, 2, first(plan, place))

    return task


def _later_task(plan: Plan, stage: int) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def task(batches: Iterator[Any]) -> Iterator[Any]:
        boxes: dict[str, list[Message]] = {}
        for batch in batches:
            for row in batch.to_pylist():
                if row["stage"] != stage:  # it is for a later stage
                    yield _passed_on(plan, stage + 1, row)
                else:
                    address = plan.addresses(stage)[plan.slot(stage, row["address"])]
                    message = Message(stage, row["address"], row["name"], unpacked(row["content"]))
                    boxes.setdefault(address, []).append(message)
        for address, inbox in boxes.items():
            yield from _rows(plan, stage + 1, later(plan, address, inbox))

    return task


def _slot(plan: Plan, next_stage: int, stage: int, address: str) -> int:
    """The number of the task of the next stage that handles a message or forwards it to a later stage."""
    if next_stage > 3 or not stage:
        return 0
    return plan.slot(stage, address) % len(plan.addresses(next_stage))


def _rows(plan: Plan, next_stage: int, messages: Iterator[Message]) -> Iterator[Any]:
    for message in messages:
        slot = _slot(plan, next_stage, message.stage, message.address)
        row = {
            "stage": message.stage,
            "slot": slot,
            "address": message.address,
            "name": message.name,
            "content": packed(message.table),
        }
        yield pa.RecordBatch.from_pylist([row], _SCHEMA)


def _passed_on(plan: Plan, next_stage: int, row: dict[str, Any]) -> Any:
    return pa.RecordBatch.from_pylist([{**row, "slot": _slot(plan, next_stage, row["stage"], row["address"])}], _SCHEMA)
