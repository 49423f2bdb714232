"""``spark.read.format("polydomo")`` and ``spark.readStream.format("polydomo")``: the journal of brokers as a DataFrame.

Spark finds a source by the name of its module, so this one stands beside the package. What it does is in
``polydomo.pipeline.source``; here it learns to ask a broker where its journal is.
"""

import time
from typing import Any

from polydomo.errors import PolydomoError
from polydomo.pipeline.source import JournalSource

FLUSH_TIME = 5.0  # seconds that a broker may take to put its memory to the disk


def journal_of(url: str) -> str:
    """Where the broker at ``url`` keeps its journal, once all that has happened until now is in it."""
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
            if status.get("safe", 0) >= wanted or status.get("trouble") or time.monotonic() >= end:
                return str(status["directory"])
            time.sleep(0.05)


class DefaultSource(JournalSource):
    def find(self) -> list[str]:
        broker = self.options.get("broker")
        return [journal_of(broker)] if broker else super().find()


__all__ = ["DefaultSource", "journal_of"]
