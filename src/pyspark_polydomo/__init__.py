"""The format ``polydomo`` of Spark. Spark finds it by the name of this module.

* ``spark.read`` and ``spark.readStream``: the journal of brokers (``polydomo.pipeline.source``);
* ``spark.readStream`` with the option ``subscribe``, ``jobs`` or ``logs``: publications, results of durable jobs or log records of a live
  broker (``polydomo.spark.live_source``);
* ``df.write`` and ``df.writeStream``: rows as requests or publications (``polydomo.spark.sink``).
"""

import time
import warnings
from typing import Any

from polydomo.errors import PolydomoError
from polydomo.pipeline.source import JournalSource

FLUSH_TIME = 30.0  # seconds that a broker may take to flush its journal


def journal_of(url: str) -> str:
    """The directory of the journal of the broker at ``url``, after everything recorded so far has been written."""
    from polydomo import Client

    with Client(url, "mdp1", timeout=FLUSH_TIME) as client:
        end = time.monotonic() + FLUSH_TIME
        wanted = 0
        while True:
            status: Any = client.call("polydomo.journal", b"flush").json()
            if not isinstance(status, dict) or "directory" not in status:
                raise PolydomoError(
                    f"the broker at {url} keeps no journal; start it with --journal requests or messages"
                )
            wanted = wanted or status.get("rows", 0)
            if status.get("safe", 0) >= wanted or status.get("trouble"):
                return str(status["directory"])
            if time.monotonic() >= end:
                said = f"the broker at {url} has not written its journal within {FLUSH_TIME:g} s; the newest rows may be missing"
                warnings.warn(said, stacklevel=2)
                return str(status["directory"])
            time.sleep(0.05)


class DefaultSource(JournalSource):
    def schema(self) -> str:
        kind = self._live()
        if kind:
            from polydomo.spark.live_source import SCHEMAS

            return SCHEMAS[kind]
        return super().schema()

    def streamReader(self, schema: Any) -> Any:
        if self._live():
            from polydomo.spark.live_source import LiveReader, Wanted

            return LiveReader(Wanted.of(self.options))
        return super().streamReader(schema)

    def _live(self) -> str:
        """The live option that is set; "" if none."""
        from polydomo.spark.live_source import kind_of

        return kind_of(self.options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        from polydomo.spark.sink import BatchWriter, Sink

        return BatchWriter(Sink.of(self.options, [field.name for field in schema]))

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:
        from polydomo.spark.sink import Sink, StreamWriter

        return StreamWriter(Sink.of(self.options, [field.name for field in schema]))

    def find(self) -> list[str]:
        broker = self.options.get("broker")
        return [journal_of(broker)] if broker else super().find()


__all__ = ["DefaultSource", "journal_of"]
