"""Runs a program as `python app.py` does; then the workers that it has made at the top level and not run. The child of `polydomo dev`."""

import runpy
import sys
from pathlib import Path
from typing import Any

from polydomo.worker.aio import AsyncWorker
from polydomo.worker.blocking import Worker


def main(path: str, arguments: list[str]) -> None:
    used: set[int] = set()
    run = AsyncWorker.run

    async def noted(self: AsyncWorker) -> None:
        used.add(id(self))
        await run(self)

    AsyncWorker.run = noted  # type: ignore[method-assign]
    sys.argv = [path, *arguments]
    sys.path.insert(0, str(Path(path).resolve().parent))
    names = runpy.run_path(path, run_name="__main__")
    left = {id(value): value for value in names.values() if isinstance(value, Worker | AsyncWorker)}
    serve([worker for worker in left.values() if id(getattr(worker, "_worker", worker)) not in used])


def serve(workers: list[Any]) -> None:
    """Runs all of them until SIGTERM; those that are not the last in threads."""
    if not workers:
        return
    *others, last = [worker if isinstance(worker, Worker) else Blocking(worker) for worker in workers]
    for worker in others:
        worker.start()
    try:
        last.run()
    finally:
        for worker in others:
            worker.stop()


class Blocking(Worker):
    """An ``AsyncWorker`` on a loop of its own."""

    def __init__(self, worker: AsyncWorker) -> None:
        super().__init__()
        self._worker = worker


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
