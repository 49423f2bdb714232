"""Computes the tables of a batch on Spark: silver (``requests``) first, then everything else from it and from the journal.

A table is written to the staging directory, partitioned by date and hour, and read back by the tables that need it. Two threads write
tables side by side.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError
from polydomo.journal import schema
from polydomo.model.objective import Objective
from polydomo.pipeline import bronze, turns
from polydomo.pipeline import sums as summing
from polydomo.pipeline.audit.facts import PRESENT, hours_present
from polydomo.pipeline.sql import context_of, describe, gathered, hour_of, sql
from polydomo.pipeline.tables import TABLES, requests
from polydomo.pipeline.tables.table import BY_RUN, UNIT, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

THREADS = 2  # that write tables side by side
BROADCAST_ROWS = 2_000_000  # journal rows about requests with several turns, up to which they are sent to every task
PARTS = "_parts"  # the staged silver table, with the parts of bridged requests at other brokers
SEVERAL = "_several"
SUMS = "_sums"
# When a table has rows at all: a count of ``bronze.probe``
NEEDED_BY = {"logs": "logs", "values": "published", "jobs": "jobs", "job_events": "jobs"}

_TURN = (
    "ARRAY<STRUCT<at: TIMESTAMP, run: BIGINT, hop: INT, attempt: INT, seq: BIGINT, broker: STRING, number: BIGINT, service: STRING, "
    "worker: INT, worker_peer: STRING, worker_protocol: STRING, principal: STRING, worker_principal: STRING, arrived: TIMESTAMP, "
    "began: TIMESTAMP, ended: TIMESTAMP, ending: STRING>>"
)
_SEVERAL_DDL = (
    f"request STRING, run BIGINT, number BIGINT, seq BIGINT, broker STRING, parent STRING, h BIGINT, turns {_TURN}, dispatches INT, "
    "worker INT, worker_peer STRING, worker_protocol STRING, worker_principal STRING, run_us BIGINT, wait_us BIGINT"
)
_BRIDGED_DDL = f"request STRING, bridged INT, far_broker STRING, far_protocol STRING, turns {_TURN}, part STRING"
_SHARED_DDL = "run BIGINT, number BIGINT, memo STRING, keyed STRING, key STRING"


@dataclass
class Inputs:
    """The segments of a batch, by kind."""

    journal: bronze.JournalFrames
    dirty: dict[str, list[str]]  # of the hours to recompute
    near: dict[str, list[str]]  # of those, the hours around them, and earlier hours of requests that ended in them


@dataclass
class Computation:
    spark: "SparkSession"
    staging: str
    inputs: Inputs
    hours: list[int]  # to recompute, counted from 1970
    counts: dict[str, int]  # of ``bronze.probe``, over these hours
    brokers: int  # maximum number of brokers that have parts of one request
    objectives: dict[str, Objective] = field(default_factory=dict)
    tables: Sequence[Table] = ()  # of the user

    def frame(self, kind: str, paths: Iterable[str]) -> "DataFrame":
        return self.inputs.journal.frame(kind, list(paths))

    @cached_property
    def messages(self) -> "DataFrame":
        return self.frame(schema.MESSAGES, self.inputs.dirty[schema.MESSAGES])

    @cached_property
    def records(self) -> "DataFrame":
        return self.frame(schema.REQUESTS, self.inputs.dirty[schema.REQUESTS])

    @cached_property
    def near_messages(self) -> "DataFrame":
        same = self.inputs.near[schema.MESSAGES] == self.inputs.dirty[schema.MESSAGES]
        return self.messages if same else self.frame(schema.MESSAGES, self.inputs.near[schema.MESSAGES])

    @cached_property
    def near_records(self) -> "DataFrame":
        same = self.inputs.near[schema.REQUESTS] == self.inputs.dirty[schema.REQUESTS]
        return self.records if same else self.frame(schema.REQUESTS, self.inputs.near[schema.REQUESTS])

    def tables_of_requests(self) -> None:
        """Writes silver, and the tables that follow from it and from the journal."""
        self.silver()
        self.gold()

    # --- silver ---------------------------------------------------------------------------------------------------------------

    def silver(self) -> None:
        """Writes ``requests``, and the parts of bridged requests."""
        counts, spark = self.counts, self.spark
        describe(spark, "requests")
        small = counts["steps"] <= BROADCAST_ROWS and counts["shared"] <= BROADCAST_ROWS
        several = bridged = shared = None
        crossed = counts["parts"] or counts["bridges"] or counts["bridge_steps"]
        if counts["steps"] or crossed:
            made = turns.several(self.near_messages, self.near_records, small)
            made.write.mode("overwrite").parquet(f"{self.staging}/{SEVERAL}")
            several = gathered(spark.read.schema(_SEVERAL_DDL).parquet(f"{self.staging}/{SEVERAL}"))
            if crossed:
                bridged = turns.bridged(several, self.brokers)
        if counts["shared"]:
            shared = sql(requests.SHARED, messages=self.near_messages)
        made = requests.silver(
            self.records,
            sql(requests.REPEATED, records=self.records),
            several if several is not None else bronze.empty(spark, _SEVERAL_DDL),
            bridged if bridged is not None else bronze.empty(spark, _BRIDGED_DDL),
            shared if shared is not None else bronze.empty(spark, _SHARED_DDL),
            small,
        )
        names = [f"CAST({column.name} AS {column.type}) AS {column.name}" for column in TABLES["requests"].stored]
        made = made.selectExpr("part", *names, "date", "lpad(string(hour), 2, '0') AS hour")
        made.write.mode("overwrite").partitionBy("part", "date", "hour").parquet(f"{self.staging}/{PARTS}")

    @cached_property
    def parts(self) -> "DataFrame":
        ddl = f"{TABLES['requests'].ddl}, part STRING"
        return gathered(self.spark.read.schema(ddl).parquet(f"{self.staging}/{PARTS}"))

    # --- gold -----------------------------------------------------------------------------------------------------------------

    def read(self, name: str) -> "DataFrame":
        """A frame that tables read: the journal, an internal one, or a staged table."""
        if name in ("messages", "near_messages", "records", "parts"):
            found: DataFrame = getattr(self, name)
            return found
        if name == "requests":
            return self.parts.where("part = 'requests'").drop("part")
        if name == "ended":
            return self._ended()
        if name == "objectives":
            known = {"*": Objective(), **self.objectives}
            rows = [(service, one.seconds, one.target) for service, one in known.items()]
            return bronze.local(self.spark, "service STRING, seconds DOUBLE, target DOUBLE", rows)
        if name in self.ready:
            return self.ready[name]
        raise PolydomoError(f"no table {name!r}: a table can read {', '.join([*TABLES, 'messages', 'records'])}")

    @cached_property
    def ready(self) -> "dict[str, DataFrame]":
        """``sums`` and ``present``, and the tables that were written."""
        return {}

    def _ended(self) -> "DataFrame":
        """The requests that ended in the recomputed hours, and those of the hours after them."""
        chosen = "run, number, seq, {time} AS h, request, outcome"
        mine = sql(f"SELECT {chosen.format(time=hour_of('ended'))} FROM {{parts}}", parts=self.parts)
        known = ", ".join(map(str, self.hours))
        later = (
            f"SELECT {chosen.format(time=hour_of('time'))} FROM {{records}} WHERE {hour_of('time')} NOT IN ({known})"
        )
        if self.near_records is self.records:
            return mine
        return gathered(mine.unionAll(sql(later, records=self.near_records)))

    def write(self, table: Table, hours: Iterable[int] | None = None) -> None:
        """Stages the rows of a table."""
        describe(self.spark, table.name)
        made = table(*(self.read(name) for name in table.reads))
        if table.columns:
            names = [f"CAST(`{column.name}` AS {column.type}) AS `{column.name}`" for column in table.stored]
        else:
            if missing := {column.name for column in UNIT} - set(made.columns):
                raise PolydomoError(
                    f"table {table.name}: its rows have no column {' and '.join(sorted(missing))}: keep them from the tables it reads"
                )
            names = [f"`{name}`" for name in made.columns if name not in ("date", "hour")]
        made = made.selectExpr(*names, "date", "lpad(string(hour), 2, '0') AS hour")
        made.write.mode("overwrite").partitionBy("date", "hour").parquet(f"{self.staging}/{table.name}")

    def gold(self) -> None:
        """Writes the tables that follow from silver and from the journal alone, and the sums. What takes long begins first."""
        names = [
            name
            for name in ("topology", "hops", "logs", "values", "jobs", "job_events")
            if name not in NEEDED_BY or self.counts[NEEDED_BY[name]]
        ]
        flows = [self._flows] if self.counts["flows"] else []
        services = partial(self.write, TABLES["services"])
        together([services, self._sums, *flows, *(partial(self.write, TABLES[name]) for name in names)], self.spark)

    def _flows(self) -> None:
        """Writes the nodes of flows that have ended, and then the flows."""
        self.write(TABLES["flow_nodes"])
        nodes = self.spark.read.schema(TABLES["flow_nodes"].ddl).parquet(f"{self.staging}/flow_nodes")
        self.ready["flow_nodes"] = gathered(nodes)
        self.write(TABLES["flows"])

    def _sums(self) -> None:
        describe(self.spark, "sums for workers and capacity")
        made = summing.sums(self.parts, self.messages, self.records)
        made.write.mode("overwrite").partitionBy("source").parquet(f"{self.staging}/{SUMS}")

    def platinum(self, saved: Sequence[str], hours: Sequence[int], stays: Sequence[tuple[Any, ...]]) -> None:
        """Writes the tables that follow from the sums, of these hours. ``saved`` are the files of sums of other hours."""
        ddl = summing.DDL
        chosen = f"h IN ({', '.join(map(str, hours))})"
        sums = self.spark.read.schema(ddl).parquet(f"{self.staging}/{SUMS}")
        if saved:
            names = [part.split(" ")[0] for part in ddl.split(", ")][:-1]
            more = self.spark.read.schema(ddl.rsplit(", ", 1)[0]).parquet(*saved).selectExpr(*names, "'' AS source")
            sums = sums.select(*names, "source").unionAll(more)
        self.ready["sums"] = sums.where(chosen).coalesce(1)  # few rows: in one partition, nothing is shuffled
        self.ready["present"] = bronze.local(self.spark, PRESENT, hours_present(stays, hours))
        together([partial(self.write, TABLES[name]) for name in ("workers", "capacity")], self.spark)

    def users(self, staged: Callable[[str], bool]) -> None:
        """Writes the tables of the user, each after those that it reads."""
        for table in self.tables:
            for name in table.reads:
                known = TABLES.get(name)
                if known is not None and name not in ("requests",) and name not in self.ready:
                    if known.by == BY_RUN:
                        raise PolydomoError(f"table {table.name}: reads {name}, which is not computed hour by hour")
                    path = f"{self.staging}/{name}"
                    self.ready[name] = (
                        self.spark.read.schema(known.ddl).parquet(path)
                        if staged(name)
                        else bronze.empty(self.spark, known.ddl)
                    )
            self.write(table)
            self.ready[table.name] = (
                self.spark.read.parquet(f"{self.staging}/{table.name}")
                if staged(table.name)
                else table(*(self.read(name) for name in table.reads)).limit(0)
            )


def together(work: Sequence[Callable[[], None]], spark: "SparkSession") -> None:
    """Runs functions side by side. Each thread has a pool of Spark's scheduler."""

    def run(place: int) -> None:
        context = context_of(spark)
        if context is not None:
            context.setLocalProperty("spark.scheduler.pool", str(place))
        work[place]()

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(run, place) for place in range(len(work))]:
            done.result()
