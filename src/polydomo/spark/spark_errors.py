"""Errors of Spark as one line, and the end of its JVM."""

import re
import subprocess
from typing import TYPE_CHECKING, Any

from polydomo.limits import SQL_LAST_WORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDED = "Spark's JVM has ended, probably because a query needed more memory than it has, or could not be cancelled; the service restarts it"
_CODE = re.compile(r"^\[[A-Z_.]+\] ")


def jvm_process() -> "subprocess.Popen[bytes] | None":
    """The JVM that this process started for Spark."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    return process


def has_ended(wait: float = 0.0) -> bool:
    """Whether the JVM has ended. ``wait``: seconds that it may need for that after its connections have closed."""
    process = jvm_process()
    if process is None:
        return False
    try:
        process.wait(wait)
    except subprocess.TimeoutExpired:
        return False
    return True


def failure(spark: "SparkSession", error: Exception) -> tuple[str, str]:
    """The code and the text for the client of a query that failed."""
    from py4j.protocol import Py4JError, Py4JJavaError

    lost = isinstance(error, OSError | EOFError) or (
        isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    )
    if lost and has_ended(SQL_LAST_WORDS):
        return "spark-ended", ENDED
    return "bad-query", said(error)


def said(error: Exception) -> str:
    """The first line of Spark's error message, without codes. For an exception of the JVM, the message of its first cause."""
    from py4j.protocol import Py4JJavaError

    text = getattr(error, "desc", None) or str(error)
    if isinstance(error, Py4JJavaError):
        text = _first_cause(error) or text
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    last = lines[-1].split(" SQLSTATE:")[0].strip() or (lines[-2] if len(lines) > 1 else lines[-1])
    line = last if "PYTHON_EXCEPTION" in lines[0] else lines[0]
    return _CODE.sub("", line.split(" SQLSTATE:")[0]).strip()


def _first_cause(error: Any) -> str:
    """Its message, or the name of its class if it has none."""
    try:
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return str(cause.getMessage() or cause.getClass().getSimpleName())
    except Exception:  # the JVM has ended
        return ""
