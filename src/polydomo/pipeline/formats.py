"""Publishes staged tables: as plain Parquet with the pipeline's own commit, or through Delta or Iceberg.

Delta and Iceberg need their jar in the Spark session (``--conf spark.jars.packages=...``, or a cluster that has
it). They have commits of their own: each table changes at once, the tables one after the other.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polydomo.errors import PolydomoError, SettingError
from polydomo.pipeline.commit import BY_RUN, FILE, PARQUET, Store
from polydomo.pipeline.tables import TABLES

if TYPE_CHECKING:
    from polydomo.pipeline.session import Session

FORMATS = (PARQUET, "delta", "iceberg")
JARS = {"delta": "io.delta:delta-spark", "iceberg": "org.apache.iceberg:iceberg-spark-runtime"}


class NoFormat(PolydomoError):
    """The Spark session has no jar for this table format."""


class Format:
    def __init__(self, name: str) -> None:
        if name not in FORMATS:
            raise SettingError(f"--format: must be one of {', '.join(FORMATS)}, not {name!r}")
        self.name = name

    def check(self, session: "Session") -> None:
        """Raises NoFormat, before any work is done, if the format cannot be written."""
        if self.name == PARQUET:
            return
        spark = session.get()
        try:
            spark.read.format(self.name).load("/polydomo/no/such/table")
        except Exception as error:  # of many classes; without the jar, the session reports an unknown data source
            text = str(error)
            if "DATA_SOURCE_NOT_FOUND" in text or "ClassNotFound" in text or "Failed to find" in text:
                jar = JARS[self.name]
                raise NoFormat(
                    f"--format {self.name}: the Spark session has no {self.name} jar; add --conf spark.jars.packages={jar}_SCALA:VERSION"
                ) from None

    def publish(
        self,
        session: "Session",
        store: Store,
        units: dict[str, dict[str, Any]],
        removes: list[str],
        sums: Sequence[str] = (),
    ) -> None:
        """Publishes the staged files of these units and, for the tables that are computed from sums, of the units ``sums``."""
        if self.name != PARQUET:
            self._write(session.get(), store, units)
            for path in store.staged():
                if not path.removeprefix(f"{store.staging}/").startswith("_"):
                    store.storage.remove(path)
            store.replace(
                [[path, f"{store.own}/{path.removeprefix(store.staging + '/_')}"] for path in store.staged()],
                [path for path in removes if path.startswith(store.own)],
                units,
            )
            return
        store.commit(units, removes, sums=sums)

    def _write(self, spark: Any, store: Store, units: dict[str, dict[str, Any]]) -> None:
        """Replaces the recomputed hours; in the audit tables, the audited runs."""
        hours = " OR ".join(f"(date = '{unit.split('/')[0]}' AND hour = {int(unit.split('/')[1])})" for unit in units)
        staged = {match[1] for path in store.staged() if (match := FILE.search(path)) is not None}
        for name, table in TABLES.items():
            frame = (
                spark.read.schema(table.ddl).parquet(f"{store.staging}/{name}")
                if name in staged
                else spark.createDataFrame([], table.ddl)
            )
            condition = hours
            if name in BY_RUN:
                runs = [str(row.run) for row in frame.select("run").distinct().collect()]
                condition = f"run IN ({', '.join(runs)})" if runs else "false"
            target = store.path(name)
            if not store.storage.exists(target):
                frame.write.format(self.name).partitionBy("date", "hour").save(target)
            elif self.name == "delta":
                frame.write.format("delta").mode("overwrite").option("replaceWhere", condition).save(target)
            else:
                from pyspark.sql.functions import expr

                frame.writeTo(target).using("iceberg").overwrite(expr(condition))
