"""``through`` sends a DataFrame through a service.

Rows travel as Arrow batches, one request per batch, or one request per row if ``body`` names one or more columns. Each
task of Spark has one connection and keeps many requests open on it.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from polydomo.client.blocking import Client
from polydomo.client.message import Result
from polydomo.errors import CallError, PolydomoError, SettingError
from polydomo.limits import SPARK_BATCH_ROWS, SPARK_CALL_TIME, SPARK_OUTSTANDING, SPARK_RETRIES
from polydomo.model.service_limits import GROUP, SERVICE
from polydomo.spark import row_bodies
from polydomo.spark.concurrent_calls import ConcurrentCalls, Target, caller
from polydomo.spark.durable import submitter
from polydomo.spark.executors import prepare
from polydomo.spark.row_bodies import ARROW, BYTES, JSON, BadReply
from polydomo.spark.typed_service import TypedService

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

RAISE, NULL, COLLECT = "raise", "null", "collect"
REASON = "reason"
INPUT = "_input"
OnError = Literal["raise", "null", "collect"]


class ServiceFailed(PolydomoError):
    """A request of a DataFrame failed, and ``on_error`` is ``raise``."""


@dataclass(frozen=True)
class ThroughPlan:
    """The work of a task. It is sent to executors, so it has only plain values."""

    target: Target
    service: str
    body: tuple[str, ...] | None  # columns of one request per row; None: a batch per request
    batch_rows: int
    on_error: str
    keep: tuple[str, ...]  # columns of the input in the result
    reply: str
    schema: Any  # of the reply, Arrow's
    output: Any  # of the result, Arrow's
    name: str  # of this DataFrame, in the keys of its requests
    durable: bool = False  # every request is a durable job
    as_object: bool = False  # the body of a row is a JSON object, also of one column
    group: str = ""  # of every request

    def calls(self) -> "ConcurrentCalls[Any]":
        if self.durable:
            return ConcurrentCalls(self.target, submitter(self.service, self.name, self.target.timeout, self.group))
        return ConcurrentCalls(self.target, caller(self.service, self.name, self.group))


def through(
    df: "DataFrame",
    service: str,
    *,
    to: str,
    schema: "StructType | str | None" = None,
    body: str | Sequence[str] | None = None,
    batch_rows: int = SPARK_BATCH_ROWS,
    outstanding: int = SPARK_OUTSTANDING,
    retries: int = SPARK_RETRIES,
    timeout: float = SPARK_CALL_TIME,
    on_error: OnError = "raise",
    keep: Sequence[str] | None = None,
    reply: Literal["arrow", "json", "bytes"] | None = None,
    durable: bool = False,
    protocol: str = "mdx",
    group: str = "",
    rate: str = "",
    **client: Any,
) -> Any:
    """Sends the rows of ``df`` through ``service`` at the broker ``to`` and returns the replies as a DataFrame. ``df`` may be a batch or a
    streaming DataFrame.

    Without ``body``, a request carries up to ``batch_rows`` rows as an Arrow IPC stream, and the reply is one or more such
    streams with the columns of ``schema``. With ``body``, every row is a request: one text or binary column unchanged, anything else as
    JSON. The reply is then JSON, or plain bytes if ``schema`` is a single text or binary column; ``reply`` overrides that.

    Without ``schema``, the schema is read from the broker, and the service must be typed: columns of ``df`` with the names of its
    arguments are sent, and the result has a column for each field of the reply, or one column ``result``.

    ``keep`` names columns of ``df`` that come before those of ``schema`` in the result. The default is all columns with ``body``, and none
    without. Without ``body``, it needs a reply with one row for every row of the request.

    A call is repeated up to ``retries`` times if its connection or its worker is lost, and Spark repeats tasks, so the service must be
    safe to call again. A request that is repeated while the first one is open joins it, so it does not run twice at a time. ``on_error``
    decides what happens if a request fails: ``raise`` fails the job; ``null`` returns rows of nulls and adds a column ``reason``;
    ``collect`` returns two DataFrames: the results, and the failed rows of ``df`` with their ``reason``.

    With ``durable``, every request is a durable job of the broker. A repeated task finds the jobs of the first one, so each runs to
    completion once.

    ``group`` is the group of every request. ``rate``, such as ``"90/10s"``, limits the starts of the service's requests in any such window,
    of all tasks together, and of each group alone if there is a ``group``. It sets the limit of the service as ``polydomo limit`` does,
    which needs the right ``admin``. The limit stays until it is changed or removed.

    Further arguments are those of ``polydomo.Client``: ``key``, ``server_key``, ``security``, ...
    """
    from pyspark.sql.types import StringType, StructField, StructType

    if on_error not in (RAISE, NULL, COLLECT):
        raise SettingError(f"on_error: must be raise, null or collect, not {on_error!r}")
    for name, number in (("batch_rows", batch_rows), ("outstanding", outstanding)):
        if number < 1:
            raise SettingError(f"{name}: {number} must be 1 or more")
    prepare(df.sparkSession)
    target = Target(to, protocol, timeout, retries, outstanding, client)
    if rate:
        limit_rate(target, service, rate, group)
    columns = (body,) if isinstance(body, str) else tuple(body) if body is not None else None
    typed = TypedService.ask(target, service) if schema is None else None
    if typed is not None:
        columns = typed.body(columns, df.columns)
    wanted: Any = typed.columns if typed is not None else schema
    if isinstance(wanted, str):
        wanted = StructType.fromDDL(wanted)
    kept = tuple(keep) if keep is not None else tuple(df.columns) if columns is not None else ()
    for name in (*(columns or ()), *kept):
        if name not in df.columns:
            raise SettingError(f"there is no column {name!r} in the DataFrame; it has {', '.join(df.columns)}")
    fields = [StructField(name, df.schema[name].dataType, True) for name in kept]
    fields += [StructField(f.name, f.dataType, True) for f in wanted.fields]
    if on_error != RAISE:
        fields.append(StructField(REASON, StringType(), True))
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise SettingError(f"the result would have two columns {twice!r}; rename one, or leave it out with keep=")
    if on_error == COLLECT:
        fields.append(StructField(INPUT, StructType([StructField(f.name, f.dataType, True) for f in df.schema]), True))
    kind = reply or (typed.reply if typed is not None else _kind_of_reply(columns, wanted))
    if kind not in row_bodies.REPLIES and (typed is None or reply):
        raise SettingError(f"reply: must be one of {', '.join(row_bodies.REPLIES)}, not {kind!r}")
    if kind == BYTES and len(wanted.fields) != 1:
        raise SettingError("reply='bytes' needs a schema of one column")
    output = StructType(fields)
    plan = ThroughPlan(
        target,
        service,
        columns,
        batch_rows,
        on_error,
        kept,
        kind,
        _arrow(wanted, nullable=True),
        _arrow(output),
        uuid.uuid4().hex,
        durable,
        typed is not None and typed.is_object,
        group,
    )
    made = df.mapInArrow(_task(plan), output)
    if on_error != COLLECT:
        return made
    made = made.persist()  # otherwise the service would be called for each of the two
    good = made.where(f"{REASON} IS NULL").drop(REASON, INPUT)
    bad = made.where(f"{REASON} IS NOT NULL").selectExpr(f"{INPUT}.*", REASON)
    return good, bad


def limit_rate(target: Target, service: str, rate: str, group: str) -> None:
    """Sets the limit of the service. Raises SettingError if the broker refuses it."""
    order = {"service": service, "rate": rate, "per": GROUP if group else SERVICE}
    try:
        with Client(target.to, target.protocol, timeout=target.timeout, **target.options) as client:
            answer = client.call("polydomo.limit", json.dumps(order)).json()
    except (PolydomoError, ValueError) as error:
        raise SettingError(f"rate: the broker did not limit {service!r}: {error}") from None
    if "error" in answer:
        raise SettingError(f"rate: the broker did not limit {service!r}: {answer.get('text', answer['error'])}")


def _kind_of_reply(columns: "tuple[str, ...] | None", wanted: "StructType") -> str:
    from pyspark.sql.types import BinaryType, StringType

    if columns is None:
        return ARROW
    single = len(wanted.fields) == 1 and isinstance(wanted.fields[0].dataType, BinaryType | StringType)
    return BYTES if single else JSON


def _arrow(wanted: "StructType", nullable: bool = False) -> Any:
    from pyspark.sql.pandas.types import to_arrow_schema

    made = to_arrow_schema(wanted, timezone="UTC")
    return pa.schema([field.with_nullable(True) for field in made]) if nullable else made


def _task(plan: ThroughPlan) -> "Callable[[Iterable[Any]], Iterator[Any]]":
    def task(batches: "Iterable[Any]") -> "Iterator[Any]":
        from polydomo.spark.through import run_task  # by name, so that executors use their installed version

        return run_task(plan, batches)

    return task


# --- on an executor -------------------------------------------------------------------------------------------------------


def run_task(plan: ThroughPlan, batches: Iterable[Any]) -> Iterator[Any]:
    return _by_rows(plan, batches) if plan.body is not None else _by_batches(plan, batches)


def _by_batches(plan: ThroughPlan, batches: Iterable[Any]) -> Iterator[Any]:
    for done in plan.calls().run((row_bodies.arrow_body(piece), piece) for piece in _pieces(batches, plan.batch_rows)):
        for piece, reply in done:
            reason, rows = _reason(plan, reply), None
            if isinstance(reply, Result):
                try:
                    rows = row_bodies.arrow_rows(reply, plan.schema)
                    if plan.keep and rows.num_rows != piece.num_rows:
                        raise BadReply(f"the reply has {rows.num_rows} rows for {piece.num_rows}; keep= needs as many")
                except BadReply as error:
                    reason, rows = str(error), None
            if rows is None and plan.on_error == RAISE:
                raise ServiceFailed(f"a request to `{plan.service}` with {piece.num_rows} rows failed: {reason}")
            if rows is not None:
                kept = [_named(piece, name) for name in plan.keep]
                yield from _output(plan, kept, rows.columns, rows.num_rows, None, None)
            else:
                kept = [_named(piece, name) for name in plan.keep]
                yield from _output(plan, kept, None, piece.num_rows, reason, piece)


def _pieces(batches: Iterable[Any], rows: int) -> Iterator[Any]:
    """Yields batches of at most that many rows. Small ones are joined, so that a request carries enough rows."""
    held: list[Any] = []
    count = 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            piece = batch.slice(at, rows - count)
            held.append(piece)
            at += piece.num_rows
            count += piece.num_rows
            if count == rows:
                yield _joined(held)
                held, count = [], 0
    if held:
        yield _joined(held)


def _joined(held: Sequence[Any]) -> Any:
    if len(held) == 1:
        return held[0]
    return pa.Table.from_batches(held).combine_chunks().to_batches()[0]


def _by_rows(plan: ThroughPlan, batches: Iterable[Any]) -> Iterator[Any]:
    assert plan.body is not None
    calls: ConcurrentCalls[tuple[Any, int]] = plan.calls()

    def requests() -> "Iterator[tuple[bytes, tuple[Any, int]]]":
        for batch in batches:
            for i, body in enumerate(row_bodies.row_bodies(batch, plan.body or (), plan.as_object)):
                yield body, (batch, i)

    at: Any = None  # the batch whose replies are gathered
    first = 0
    replies: list[Result | CallError] = []
    for done in calls.run(requests()):
        for (batch, i), reply in done:
            if batch is not at or len(replies) >= plan.batch_rows:
                if replies:
                    yield from _rows(plan, at.slice(first, len(replies)), replies)
                at, first, replies = batch, i, []
            replies.append(reply)
    if replies:
        yield from _rows(plan, at.slice(first, len(replies)), replies)


def _rows(plan: ThroughPlan, piece: Any, replies: "Sequence[Result | CallError]") -> Iterator[Any]:
    """The replies to the rows of ``piece``, in order."""
    values: list[list[Any] | None] = []
    reasons: list[str | None] = []
    for reply in replies:
        reason, found = _reason(plan, reply), None
        if isinstance(reply, Result):
            try:
                found = _row(plan, reply)
            except BadReply as error:
                reason = str(error)
        values.append(found)
        reasons.append(reason)
    try:
        columns = _columns(plan, values)
    except BadReply:  # find which
        for i, found in enumerate(values):
            try:
                _columns(plan, [found])
            except BadReply as error:
                values[i], reasons[i] = None, str(error)
        columns = _columns(plan, values)
    if plan.on_error == RAISE and any(reason is not None for reason in reasons):
        reason = next(reason for reason in reasons if reason is not None)
        raise ServiceFailed(f"a request to `{plan.service}` failed: {reason}")
    kept = [_named(piece, name) for name in plan.keep]
    yield from _output(plan, kept, columns, piece.num_rows, reasons, piece)


def _row(plan: ThroughPlan, reply: Result) -> list[Any]:
    if plan.reply != ARROW:
        return row_bodies.values_of(reply.body, plan.reply, plan.schema)
    rows = row_bodies.arrow_rows(reply, plan.schema)
    if rows.num_rows != 1:
        raise BadReply(f"the reply has {rows.num_rows} rows; one is expected for a request of one row")
    return [column[0].as_py() for column in rows.columns]


def _columns(plan: ThroughPlan, values: "Sequence[list[Any] | None]") -> list[Any]:
    return [
        row_bodies.column([row[i] if row is not None else None for row in values], field.type)
        for i, field in enumerate(plan.schema)
    ]


def _reason(plan: ThroughPlan, reply: "Result | CallError") -> str | None:
    return f"{type(reply).__name__}: {reply}" if isinstance(reply, CallError) else None


def _named(batch: Any, name: str) -> Any:
    return batch.column(batch.schema.get_field_index(name))


def _output(
    plan: ThroughPlan,
    kept: "list[Any]",
    columns: "Sequence[Any] | None",
    rows: int,
    reasons: "str | Sequence[str | None] | None",
    piece: Any,
) -> Iterator[Any]:
    """Record batches of the result. ``columns`` are None, and ``reasons`` one text, if all rows of ``piece`` failed together."""
    made = list(columns) if columns is not None else [pa.nulls(rows, field.type) for field in plan.schema]
    if plan.on_error != RAISE:
        all_reasons = [reasons] * rows if reasons is None or isinstance(reasons, str) else list(reasons)
        made.append(pa.array(all_reasons, pa.string()))
        if plan.on_error == COLLECT:
            field = plan.output.field(INPUT)
            if piece is None or not any(reason is not None for reason in all_reasons):
                made.append(pa.nulls(rows, field.type))
            else:
                whole = pa.StructArray.from_arrays(piece.columns, fields=list(piece.schema))
                mask = pa.array([reason is None for reason in all_reasons])
                made.append(pc.if_else(mask, pa.scalar(None, whole.type), whole).cast(field.type))
    table = pa.table([*kept, *made], names=plan.output.names).cast(plan.output)
    yield from table.to_batches()
