"""The worker library: ``AsyncWorker`` for asyncio, ``Worker`` for blocking code."""

from polydomo.worker.aio import AsyncWorker
from polydomo.worker.blocking import Worker
from polydomo.worker.call import Call

__all__ = ["AsyncWorker", "Call", "Worker"]
