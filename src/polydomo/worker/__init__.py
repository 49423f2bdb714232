"""The worker library: ``AsyncWorker`` for asyncio, ``Worker`` for everybody else."""

from polydomo.worker.aio import AsyncWorker
from polydomo.worker.blocking import Worker
from polydomo.worker.call import Call

__all__ = ["AsyncWorker", "Call", "Worker"]
