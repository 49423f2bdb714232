"""Makes polydomo importable in the tasks of a session that was not built by ``polydomo.pipeline.session``."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polydomo.errors import SettingError
from polydomo.spark.shipping import zipped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PYTHON = "spark.pyspark.python"
_prepared: set[str] = set()  # applications of Spark


def prepare(spark: "SparkSession") -> None:
    """Call it once for a session of your own, before ``format("polydomo")``; ``through`` and ``register`` call it themselves.

    Tasks on this machine use this interpreter, unless PYSPARK_PYTHON or ``spark.pyspark.python`` names one. Executors elsewhere get
    polydomo's code, if they lack it. Raises SettingError if they lack its dependencies.
    """
    connected = not hasattr(spark, "_jsparkSession")  # Spark Connect
    application = str(spark.session_id if connected else spark.sparkContext.applicationId)  # type: ignore[attr-defined]
    if application in _prepared:
        return
    master = "" if connected else str(spark.sparkContext.master)
    if master.startswith("local") and not master.startswith("local-cluster"):
        if not os.environ.get("PYSPARK_PYTHON") and not spark.conf.get(PYTHON, ""):
            spark.sparkContext.pythonExec = sys.executable  # otherwise the first python3 on the path
            _register_format(spark)
        if spark.sparkContext.pythonExec == sys.executable:
            _prepared.add(application)
            return
    elif "polydomo" in missing(spark):
        package = Path(__file__).resolve().parent.parent
        code = zipped(package, package.with_name("pyspark_polydomo"))
        if connected:
            spark.addArtifacts(str(code), pyfile=True)
        else:
            spark.sparkContext.addPyFile(str(code))
    if names := missing(spark):
        raise SettingError(
            f"Spark's tasks cannot import {', '.join(names)}: install 'polydomo[spark]' for the Python of the executors, or set"
            f" PYSPARK_PYTHON to an interpreter that has it before the session is created"
        )
    _prepared.add(application)


def missing(spark: "SparkSession") -> list[str]:
    """Modules that a task cannot import."""
    from pyspark.sql.functions import udf

    def look(number: int) -> str:  # a local function: executors get its code
        import importlib.util

        needed = ("polydomo", "pyarrow", "msgspec")
        return " ".join(name for name in needed if importlib.util.find_spec(name) is None)

    found: Any = spark.range(1).select(udf(look, "string", useArrow=False)("id")).head()
    return str(found[0]).split()


def _register_format(spark: "SparkSession") -> None:
    """Spark looks for formats with its default interpreter, which may be another one."""
    from pyspark_polydomo import DefaultSource

    spark.dataSource.register(DefaultSource)
