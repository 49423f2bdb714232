"""Data directories to damage, and what an undamaged one returns."""

import os
import random
import shutil
from pathlib import Path

from polydomo.broker.jobs import job as states
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import Finish, Fire, Insert, Op, Progress, PutPause, PutSchedule, ScheduleRow
from polydomo.model.jobs.messages import make_id
from polydomo.protocols.memo.node import node_cid
from polydomo.stores.memo import MemoStore
from polydomo.stores.sqlite import SqliteBackend
from polydomo.wire.frames import frame

JOBS = 120
VALUES = 60
NOW = 1_794_724_735.0


class Content:
    """What was stored."""

    def __init__(self) -> None:
        self.jobs: dict[str, tuple[bytes, bytes, bytes, str]] = {}  # id -> service, body, result, state
        self.schedules = {"one", "two", "three"}
        self.nodes = {node_cid(b"node %04d " % n * 30) for n in range(VALUES)}
        self.replies = {b"key %04d" % n: b"reply %04d " % n * (1 + n % 40) for n in range(VALUES)}
        self.heads = {f"head {n}": node_cid(b"node %04d " % n * 30)[0] for n in range(10)}


def make_jobs(path: Path, content: Content, dice: random.Random, close: bool) -> None:
    """A store with jobs in every state; ``close``: the broker was stopped, not killed."""
    store = SqliteBackend(path)
    store.open()
    epoch = store.acquire("a", "tcp://a", 60.0).epoch
    for n in range(JOBS):
        job = Job(
            make_id(NOW + n, dice.randbytes(10)), b"service%d" % (n % 3), frame(b"body %04d " % n * 9, False), NOW + n
        )
        job.key = f"key {n}" if n % 4 == 0 else ""
        job.headers = '{"n":"1"}' if n % 5 == 0 else ""
        ops: list[Op] = [Insert(job)]
        store.apply(ops, epoch)
        body, result = job.body, b""
        if n % 3:
            job.attempts, job.story = 1, [{"attempt": 1, "reason": "no luck"}]
            store.apply([Progress(job)], epoch)
        if n % 2:
            job.state = states.DEAD if n % 7 == 0 else states.DONE
            result = frame(b"result %04d " % n * 11, False) if job.state == states.DONE else b""
            job.result, job.outcome, job.ended, job.keep = result, "ok", NOW + 500 + n, NOW + 1e6
            store.apply([Finish(job)], epoch)
        content.jobs[job.id] = (job.service, body, result, job.state)
    for name in sorted(content.schedules):
        row = ScheduleRow(name, b"service1", frame(b"body", False), "every 5s", "UTC", NOW)
        row.next = NOW + 5
        store.apply([PutSchedule(row)], epoch)
        store.apply([Fire(row, NOW + 5, NOW + 10, None)], epoch)
    store.apply([PutPause(b"service2", True)], epoch)
    _leave(store, path, close)


def make_memo(path: Path, content: Content, close: bool) -> None:
    store = MemoStore(path, lambda: NOW)
    for cid, data in content.nodes:
        store.put_node(cid, data)
    for key, body in content.replies.items():
        store.put_reply(key, "resize", "1", body)
    for name, cid in content.heads.items():
        store.set_head(name, cid)
        store.set_call("f", [cid], cid)
    _leave(store, path, close)


def _leave(store: SqliteBackend | MemoStore, path: Path, close: bool) -> None:
    if close:
        store.close()
        return
    for suffix in ("", "-wal"):  # as a killed process leaves them
        shutil.copyfile(f"{path}{suffix}", f"{path}{suffix}.killed")
    store.close()
    for suffix in ("", "-wal"):
        os.replace(f"{path}{suffix}.killed", f"{path}{suffix}")


def damage(path: Path, dice: random.Random) -> str:
    """Flips one or eight bits, or cuts the file. Returns what was done."""
    data = bytearray(path.read_bytes())
    kind = dice.choice(("one bit", "one bit", "eight bits", "eight bits", "cut"))
    if kind == "cut":
        del data[dice.randrange(len(data)) :]
    else:
        for _ in range(1 if kind == "one bit" else 8):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    path.write_bytes(data)
    return kind
