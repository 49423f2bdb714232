"""Reads data of a live broker into a spool: publications, results of durable jobs, log records.

Each feed runs in a thread of the driver.
"""

import asyncio
import json
import logging
import threading
import time
from datetime import datetime
from typing import Any

from polydomo.client.aio import AsyncClient
from polydomo.client.subscriber import AsyncSubscriber
from polydomo.errors import CallFailed, NoSuchJob, PolydomoError
from polydomo.limits import SPARK_HEARD, SPARK_LOOK, SPARK_OUTSTANDING, SPARK_RECONNECT, SPARK_REWIND
from polydomo.spark.spool import Spool

log = logging.getLogger("polydomo.spark")

Row = dict[str, Any]
FORGET_SEEN = 3600.0  # seconds; much longer than the time that is read again


class Feed(threading.Thread):
    """Reads until the process ends, and reconnects when necessary."""

    def __init__(self, to: str, prefixes: tuple[str, ...], spool: str, of: str, options: "dict[str, Any]") -> None:
        super().__init__(name="polydomo-feed", daemon=True)
        self.to, self.prefixes, self.options = to, prefixes, options
        self._place = (spool, of)
        self.spool: Spool

    def run(self) -> None:
        self.spool = Spool(*self._place)  # a SQLite connection belongs to one thread
        asyncio.run(self._read_on())

    async def _read_on(self) -> None:
        complained = ""
        while True:
            try:
                await self.read()
            except (PolydomoError, ValueError, KeyError, TypeError) as error:
                if str(error) != complained:
                    complained = str(error)
                    log.warning("cannot read the stream of %s: %s; trying again", self._place[1], error)
                await asyncio.sleep(SPARK_RECONNECT)

    async def read(self) -> None:
        """Reads until the connection is lost. Raises PolydomoError."""
        raise NotImplementedError

    def wanted(self, name: str) -> bool:
        return name.startswith(self.prefixes)


class Publications(Feed):
    """Publications. The broker keeps the last value of each topic: after a lost connection, a gap is recorded and last values are read
    again."""

    async def read(self) -> None:
        async with AsyncSubscriber(self.to, *self.prefixes, **self.options) as subscriber:
            before = self.spool.state("connected")
            if before is not None:
                seconds = max(0.0, time.time() - float(before))
                self.spool.add_gap(
                    f"not connected for up to {seconds:.1f} s: publications of that time are missing, except last values"
                )
            self.spool.set_state("connected", repr(time.time()))
            await self._hear(subscriber)

    async def _hear(self, subscriber: AsyncSubscriber) -> None:
        """Writes everything that has arrived in one transaction."""
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
            self.spool.add_publications(((topic, message.body) for topic, message in heard), fresh)
            if lost is not None:
                raise lost


class PagedFeed(Feed):
    """Reads page by page, and waits if there is nothing new."""

    async def read(self) -> None:
        async with AsyncClient(self.to, **self.options) as client:
            while True:
                if not await self.page(client):
                    await asyncio.sleep(SPARK_LOOK)

    async def page(self, client: AsyncClient) -> bool:
        """Reads the next page. Returns False if there is nothing more."""
        raise NotImplementedError


class JobFeed(PagedFeed):
    """Durable jobs in the order in which they ended. The broker keeps them for ``durable.keep``; jobs that it removed before are a gap."""

    async def page(self, client: AsyncClient) -> bool:
        spool = self.spool
        after = spool.state("after") or ""
        page = await client.jobs.ended(after)
        epoch = str(page["epoch"])
        known = spool.state("epoch")
        if known is not None and known != epoch:  # another broker is the leader, and its clock may be behind
            position = float(after.partition("/")[0] or 0) - SPARK_REWIND
            with spool.transaction():
                spool.set_state("epoch", epoch)
                spool.set_state("after", f"{position!r}/" if position > 0 else "")
            return True
        rows = [row for row in page["jobs"] if self.wanted(row["service"])]
        bodies = await self._results(client, rows)
        keep = page["keep_us"] / 1e6
        read = float(spool.state("read") or 0)
        with spool.transaction():
            if read and keep and page["now"] - read > keep:
                spool.add_gap(
                    f"not read for {page['now'] - read:.0f} s: results are kept for {keep:.0f} s (`durable.keep`)"
                )
            for row, body in zip(rows, bodies, strict=True):
                ended = datetime.fromisoformat(row["ended"]).timestamp()
                if not spool.is_new(f"{row['job']} {row['ended']}", ended):
                    continue
                if body is None and row["state"] == "done":
                    spool.add_gap(f"the result of job {row['job']} was removed before it was read")
                names = ("job", "key", "state", "outcome", "reason", "attempts")
                spool.add(ended, row["service"], body, {name: row[name] for name in names})
            spool.set_state("after", page["next"])
            spool.set_state("epoch", epoch)
            spool.set_state("read", repr(float(page["now"])))
            spool.forget_seen(page["now"] - FORGET_SEEN)
        return bool(page["jobs"])

    async def _results(self, client: AsyncClient, rows: "list[Row]") -> "list[bytes | None]":
        room = asyncio.Semaphore(SPARK_OUTSTANDING)

        async def result(row: Row) -> bytes | None:
            if row["state"] != "done":
                return None
            async with room:
                try:
                    return (await client.result(row["job"])).body
                except (NoSuchJob, CallFailed):
                    return None  # removed meanwhile

        return list(await asyncio.gather(*map(result, rows)))


class Logs(PagedFeed):
    """Log records that the broker has collected. Their numbers are consecutive: a missing number is a gap, and so is a restart of the
    broker."""

    async def page(self, client: AsyncClient) -> bool:
        spool = self.spool
        started = str((await client.call("polydomo.status")).json()["started"])
        known = spool.state("started")
        after = int(spool.state("record") or 0)
        if known is not None and known != started:
            with spool.transaction():
                spool.add_gap("the broker was restarted: records that were not read before are missing")
                spool.set_state("started", started)
                spool.set_state("record", "0")
            return True
        query = json.dumps({"after": after, "oldest": True})
        records = (await client.call("polydomo.logs", query)).json()
        if not isinstance(records, list):
            raise CallFailed("bad-answer", str(records))
        with spool.transaction():
            for record in records:
                missing = record["record"] - after - 1
                # The first read starts with the oldest record that the broker still has.
                if missing > 0 and known is not None:
                    spool.add_gap(f"{missing} log records are missing: the broker keeps only the newest ones")
                after = record["record"]
                known = started
                if not self.wanted(record["service"]):
                    continue
                more = {name: record.get(name) for name in ("level", "message", "request", "record", "broker")}
                fields = record.get("fields")
                at = datetime.fromisoformat(record["time"]).timestamp()
                spool.add(at, record["service"], None, {**more, "fields": json.dumps(fields) if fields else None})
            spool.set_state("record", str(after))
            spool.set_state("started", started)
        return bool(records)
