"""``df.write.format("polydomo")`` and ``writeStream``: rows as requests to a service, as flows, or as publications.

Each row is one request, or starts one flow (``row_flows``). The task ends when every request has been answered; a failed request fails the
task. Spark repeats failed tasks and, in a stream, whole batches, so a row can be sent more than once. Durable jobs and flows have a key of
query, batch, partition and row, so that a repeated row finds the job or flow of the first one. Plain requests have such a key too: one that
is repeated while the first is open joins it.
"""

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from polydomo.client.message import Result
from polydomo.client.publisher import Publisher
from polydomo.errors import PolydomoError, SettingError
from polydomo.limits import SPARK_CALL_TIME, SPARK_OUTSTANDING, SPARK_RETRIES
from polydomo.spark.concurrent_calls import ConcurrentCalls, Target, caller
from polydomo.spark.durable import submitter
from polydomo.spark.row_bodies import row_bodies, to_json
from polydomo.spark.row_flows import RowFlow, starter
from polydomo.spark.through import ServiceFailed


@dataclass(frozen=True)
class Sink:
    """The destination of the rows. It is sent to executors, so it has only plain values."""

    target: Target
    service: str  # or ...
    topic: str  # ... the topic of all rows, or ...
    topic_column: str  # ... the column that contains it
    body: tuple[str, ...]
    name: str  # of this write, in the keys of its requests
    durable: bool = False  # rows are durable jobs
    flow: RowFlow | None = None  # or each row starts this flow

    @staticmethod
    def of(options: Mapping[str, str], columns: list[str]) -> "Sink":
        to = options.get("to") or options.get("broker") or ""
        if not to:
            raise SettingError("format polydomo: set option to to the broker's address")
        chosen = [name for name in ("service", "flow", "topic", "topic_column") if options.get(name)]
        if len(chosen) != 1:
            raise SettingError("format polydomo: set exactly one of the options service, flow, topic and topic_column")
        topic_column = options.get("topic_column", "")
        body = tuple(name.strip() for name in options.get("body", "").split(",") if name.strip())
        body = body or tuple(name for name in columns if name != topic_column)
        for name in (*body, *([topic_column] if topic_column else [])):
            if name not in columns:
                raise SettingError(f"format polydomo: unknown column {name!r}; the columns are {', '.join(columns)}")
        client = {name: options[name] for name in ("key", "server_key", "context") if name in options}
        target = Target(
            to,
            options.get("protocol", "mdx"),
            float(options.get("timeout", SPARK_CALL_TIME)),
            int(options.get("retries", SPARK_RETRIES)),
            int(options.get("outstanding", SPARK_OUTSTANDING)),
            client,
        )
        durable = options.get("durable", "false").lower() == "true"
        if durable and not options.get("service"):
            raise SettingError("format polydomo: option durable needs option service, because it is for requests")
        flow = RowFlow.of(options["flow"], columns) if options.get("flow") else None
        if flow is not None and options.get("body"):
            raise SettingError("format polydomo: option body is for requests; the flow names the columns that it uses")
        name = options.get("job_name") or uuid.uuid4().hex
        service, topic = options.get("service", ""), options.get("topic", "")
        return Sink(target, service, topic, topic_column, body, name, durable, flow)

    def write(self, batches: Iterator[Any]) -> int:
        """On an executor. Returns the number of rows sent."""
        if self.flow is not None:
            return self._start(self.flow, batches)
        return self._call(batches) if self.service else self._publish(batches)

    def _start(self, flow: RowFlow, batches: Iterator[Any]) -> int:
        begin = starter(flow, self.name, self.target.timeout)
        calls: ConcurrentCalls[dict[str, Any]] = ConcurrentCalls(self.target, begin)
        sent = 0
        for done in calls.run((to_json(row), row) for batch in batches for row in flow.rows(batch)):
            for row, run in done:
                if not isinstance(run, Result):
                    text = f"{type(run).__name__}: {run}"
                    raise ServiceFailed(f"flow {flow.where} was not started for the row {to_json(row)[:200]!r}: {text}")
                sent += 1
        return sent

    def _call(self, batches: Iterator[Any]) -> int:
        begin = (submitter if self.durable else caller)(self.service, self.name)
        calls: ConcurrentCalls[None] = ConcurrentCalls(self.target, begin)
        sent = 0
        for done in calls.run((body, None) for batch in batches for body in row_bodies(batch, self.body)):
            for _, reply in done:
                if not isinstance(reply, Result):
                    raise ServiceFailed(f"a request to `{self.service}` failed: {type(reply).__name__}: {reply}")
                sent += 1
        return sent

    def _publish(self, batches: Iterator[Any]) -> int:
        sent = 0
        with Publisher(self.target.to, **self.target.options) as publisher:
            for batch in batches:
                topics = self._topics(batch)
                for topic, body in zip(topics, row_bodies(batch, self.body), strict=True):
                    while not publisher.publish(topic, body):
                        if not publisher.flush(self.target.timeout):
                            raise PolydomoError(
                                f"the broker at {self.target.to} does not accept publications: {sent} were sent"
                            )
                    sent += 1
            if not publisher.flush(self.target.timeout):
                raise PolydomoError(
                    f"the broker at {self.target.to} does not accept publications: fewer than {sent} were sent"
                )
        return sent

    def _topics(self, batch: Any) -> list[str]:
        if not self.topic_column:
            return [self.topic] * batch.num_rows
        return [str(value) for value in batch.column(batch.schema.get_field_index(self.topic_column)).to_pylist()]


@dataclass
class Sent(WriterCommitMessage):
    rows: int


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Sent(self.sink.write(iterator))


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, sink: Sink) -> None:
        self.sink = sink

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return Sent(self.sink.write(iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Does nothing: every request of the batch has been answered."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Does nothing: requests cannot be undone, and Spark repeats the batch."""
