"""``spark.readStream.format("polydomo").option("subscribe", "sensors.*")``: publications of a broker as a stream.

The driver subscribes and writes what it hears to a spool on its disk (``spool.py``). Spark's offsets are numbers of rows
there, so a batch can be repeated after a restart. The broker does not keep publications, except the last value of each topic:
whenever the stream was not connected, a row with ``gap`` says so, and the last values are read again.
"""

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from polydomo.client.subscriber import AsyncSubscriber
from polydomo.errors import PolydomoError, SettingError
from polydomo.limits import SPARK_HEARD, SPARK_RECONNECT
from polydomo.spark.spool import Heard, Spool

SCHEMA = "n BIGINT, time TIMESTAMP, topic STRING, body BINARY, gap STRING"
ARROW = pa.schema(
    [
        ("n", pa.int64()),
        ("time", pa.timestamp("us", "UTC")),
        ("topic", pa.string()),
        ("body", pa.binary()),
        ("gap", pa.string()),
    ]
)


@dataclass(frozen=True)
class Wanted:
    to: str
    prefixes: tuple[str, ...]
    spool: str
    max_rows: int
    options: dict[str, Any]

    @staticmethod
    def of(options: Mapping[str, str]) -> "Wanted":
        to = options.get("to") or options.get("broker") or ""
        if not to:
            raise SettingError("format polydomo: option subscribe needs the broker's address in option to")
        if not options.get("spool"):
            raise SettingError(
                "format polydomo: option subscribe needs option spool: a directory of the driver, for rows that are not processed yet"
            )
        prefixes = tuple(sorted(name.strip().removesuffix("*") for name in options["subscribe"].split(",")))
        most = int(options.get("max_rows", SPARK_HEARD))
        client = {name: options[name] for name in ("key", "server_key", "context") if name in options}
        return Wanted(to, prefixes, options["spool"], most, client)

    @property
    def name(self) -> str:
        return f"{', '.join(self.prefixes) or 'every topic'} of {self.to}"


@dataclass
class Rows(InputPartition):
    """The rows of one batch. They travel with the task, since the spool is on the driver."""

    rows: list[Heard]


class SubscriptionReader(DataSourceStreamReader):
    """In a process of the driver, as long as the query runs. An offset is the number of the last row that was read."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted = wanted
        self._spool: Spool | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"wanted": self.wanted, "_spool": None}

    def _listening(self) -> Spool:
        if self._spool is None:
            self._spool = Spool(self.wanted.spool, self.wanted.name)
            Listener(self.wanted).start()
        return self._spool

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"n": min(self._listening().last(), int(start["n"]) + self.wanted.max_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> "list[Rows]":
        found = self._listening().between(int(start["n"]), int(end["n"]))
        return [Rows(found)] if found else []

    def read(self, partition: Any) -> "Iterator[Any]":
        columns = list(zip(*partition.rows, strict=True))
        yield pa.RecordBatch.from_arrays(
            [pa.array(values, field.type) for values, field in zip(columns, ARROW, strict=True)], schema=ARROW
        )

    def commit(self, end: dict[str, int]) -> None:
        self._listening().forget(int(end["n"]))


class Listener(threading.Thread):
    """Subscribes, and writes to the spool what it hears. It connects again whenever it has to."""

    def __init__(self, wanted: Wanted) -> None:
        super().__init__(name="polydomo-subscription", daemon=True)
        self.wanted = wanted

    def run(self) -> None:
        asyncio.run(self._listen())

    async def _listen(self) -> None:
        spool = Spool(self.wanted.spool, self.wanted.name)  # SQLite wants a connection of its own for each thread
        while True:
            try:
                async with AsyncSubscriber(self.wanted.to, *self.wanted.prefixes, **self.wanted.options) as subscriber:
                    self._connected(spool)
                    await self._hear(subscriber, spool)
            except PolydomoError:
                await asyncio.sleep(SPARK_RECONNECT)

    def _connected(self, spool: Spool) -> None:
        before = spool.state("connected")
        if before is not None:
            seconds = max(0.0, time.time() - float(before))
            spool.add_gap(
                f"not connected for up to {seconds:.1f} s: publications of that time are missing, last values aside"
            )
        spool.set_state("connected", repr(time.time()))

    async def _hear(self, subscriber: AsyncSubscriber, spool: Spool) -> None:
        """Until the connection is lost. What is there is written together."""
        fresh: set[str] = set()
        while True:
            heard = [await subscriber.next()]
            lost: PolydomoError | None = None
            while len(heard) < SPARK_HEARD:
                try:
                    heard.append(await asyncio.wait_for(subscriber.next(), 0.01))
                except TimeoutError:
                    break
                except PolydomoError as error:
                    lost = error
                    break
            spool.add(((topic, message.body) for topic, message in heard), fresh)
            if lost is not None:
                raise lost
