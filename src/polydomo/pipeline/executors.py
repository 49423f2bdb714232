"""Where the tasks of a batch run: in this process, or on Spark."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from polydomo import limits
from polydomo.pipeline.engine.plan import Plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Executor(Protocol):
    @property
    def where(self) -> str:
        """Where the tasks run, for progress messages."""
        ...

    def run(self, plan: Plan) -> list[dict[str, Any]]: ...

    def session(self) -> "SparkSession | None":
        """The Spark session, started on demand; None if tasks run in this process."""
        ...


class InProcess:
    where = "this process"

    def run(self, plan: Plan) -> list[dict[str, Any]]:
        from polydomo.pipeline.engine.execute import in_process

        return in_process(plan)

    def session(self) -> None:
        return None


class OnSpark:
    """Runs tasks on Spark. ``start`` creates the session; it is called for the first plan."""

    def __init__(self, start: "Callable[[], SparkSession]") -> None:
        self._start = start
        self._session: SparkSession | None = None

    @property
    def where(self) -> str:
        if self._session is None:
            return "Spark"
        master = self._session.conf.get("spark.master", None) or "a Spark Connect server"
        return f"Spark ({master})"

    @property
    def started(self) -> "SparkSession | None":
        return self._session

    def session(self) -> "SparkSession":
        if self._session is None:
            self._session = self._start()
        return self._session

    def run(self, plan: Plan) -> list[dict[str, Any]]:
        from polydomo.pipeline.engine.execute import on_spark

        return on_spark(plan, self.session())


class BySize:
    """Runs small plans in this process, without a JVM, and large ones on Spark. Once Spark was started, everything runs there."""

    def __init__(self, spark: OnSpark, most_rows: int = limits.PIPELINE_IN_PROCESS_ROWS) -> None:
        self.spark = spark
        self.local = InProcess()
        self.most_rows = most_rows
        self._last: InProcess | OnSpark = self.local

    @property
    def where(self) -> str:
        return self._last.where

    def session(self) -> "SparkSession":
        return self.spark.session()

    def run(self, plan: Plan) -> list[dict[str, Any]]:
        self._last = self.local if self.spark.started is None and rows_of(plan) <= self.most_rows else self.spark
        return self._last.run(plan)


def rows_of(plan: Plan) -> int:
    """The maximum number of journal rows that a plan reads, from the names of the segments."""
    from polydomo.pipeline.segments import parse

    paths = {path for item in plan.hours for path in item.messages} | {
        path for run in plan.runs.values() for path in run.messages
    }
    return sum(segment.rows for path in paths if (segment := parse(path)) is not None)
