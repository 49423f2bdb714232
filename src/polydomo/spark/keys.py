"""Keys of the requests of a task: the same when Spark repeats the task, runs a second copy of it, or gives it its rows in another order."""

from collections import Counter
from hashlib import blake2b


class RequestKeys:
    """One per task. A key is the task's prefix, a digest of the body, and how often the task had this body before."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._seen: Counter[bytes] = Counter()

    def key_of(self, frames: "list[bytes]") -> str:
        """The key of the next request. Without a prefix it is empty.

        >>> keys = RequestKeys("a/0")
        >>> keys.key_of([b"x"]) == keys.key_of([b"x"])
        False
        >>> RequestKeys("a/0").key_of([b"x"]) == RequestKeys("a/0").key_of([b"x"])
        True
        """
        if not self._prefix:
            return ""
        digest = blake2b(b"\0".join(frames), digest_size=12)
        self._seen[digest.digest()] += 1
        return f"{self._prefix}/{digest.hexdigest()}/{self._seen[digest.digest()]}"


def job_prefix(name: str) -> str:
    """On an executor: what the keys of this task's durable jobs have in common. ``name`` is that of the write or of the DataFrame.

    In a stream, query and batch take the place of the name: they are the same when Spark repeats a batch, even after a restart.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return f"{name}/0"
    return f"{_batch(task) or name}/{task.partitionId()}"


def run_prefix(name: str) -> str:
    """On an executor: what the keys of this task's plain requests have in common; empty outside of a task.

    The stage tells several evaluations of one DataFrame apart. Attempts and copies of a task have the same stage.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return ""
    return f"{_batch(task) or f'{name}/{task.stageId()}'}/{task.partitionId()}"


def _batch(task: object) -> str:
    """Query and batch of a task of a stream; otherwise empty."""
    query, batch = (
        task.getLocalProperty(key)  # type: ignore[attr-defined]
        for key in ("sql.streaming.queryId", "streaming.sql.batchId")
    )
    return f"{query}/{batch}" if query and batch else ""
