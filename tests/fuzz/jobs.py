"""What a client may send to the services of durable jobs, schedules and Titanic."""

from polydomo.broker.builtin.service import PROCESSES
from polydomo.model.jobs.messages import make_id, write_message
from polydomo.model.name_patterns import chosen
from polydomo.stores.memory import MemoryBackend
from polydomo.wire import frames
from tests.broker.jobs.kept import keep_jobs
from tests.fuzz.targets import Room, target

SERVICES = Room().broker.builtin.by_name.values()
NAMES = sorted(service.name for service in SERVICES if service.job is not None and service.right != PROCESSES)


class Asking(Room):
    """A broker that keeps jobs, and a client of MDX."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = MemoryBackend()
        self.store = keep_jobs(self.broker, chosen(["kept"]), self.disk)
        self.client = self.zmtp()
        self.asked = 0

    def ask(self, name: bytes, body: bytes) -> None:
        """``body`` is the frames of the message, as they are on the wire."""
        self.asked += 1
        head = frames.more([b"MDXC01", b"\x01", name])
        self.client.receive(head + frames.frame(self.asked.to_bytes(8, "big"), bool(body)) + body)
        self.turn()
        self.store.sync()
        self.turn()


@target
def job_requests(data: bytes) -> None:
    """The first byte chooses the service; two requests after it show whether the jobs are still served."""
    room = Asking()
    name = NAMES[data[0] % len(NAMES)] if data else b"kept"
    room.ask(name, frames.join([data[1:]]))
    room.ask(name, frames.join([data[1:].partition(b"\n")[0] + b"\n", b"body", data[-3:]]))
    id = make_id(1.0, bytes(10))
    (line,) = write_message({"service": "kept", "id": id})
    room.ask(b"polydomo.submit", frames.join([line, b"body"]))
    assert id in room.disk.tables.jobs
    room.broker.check_invariants()
    durable = room.broker.durable
    assert durable is not None
    room.client.lost()
    room.wait(30.0)
    room.store.sync()
    assert not durable.parked and not room.broker.open_requests
    room.broker.check_invariants()


def honest() -> "dict[str, list[bytes]]":
    """A good message for each service."""
    id = make_id(2.0, bytes(10))
    headers: dict[bytes, dict[str, object]] = {
        b"polydomo.submit": {
            "service": "kept",
            "key": "k",
            "delay_us": 5,
            "priority": 2,
            "ttl_us": 10**6,
            "retries": {"attempts": 2},
        },
        b"polydomo.submit.many": {"service": "kept", "jobs": [{"id": id, "sizes": [1, 2]}, {"key": "k", "sizes": [1]}]},
        b"polydomo.schedule": {"name": "n", "service": "kept", "when": "*/5 * * * *", "zone": "UTC", "missed": "skip"},
        b"polydomo.jobs": {"state": "dead", "limit": 10},
        b"polydomo.drop": {"all": True},
    }
    made = []
    for i, name in enumerate(NAMES):
        if name.startswith(b"titanic."):
            made.append(bytes((i,)) + id.encode())
        else:
            usual: dict[str, object] = {"name": "n"} if b"schedul" in name else {"job": id, "wait_us": 1}
            header = headers.get(name, usual)
            made.append(bytes((i,)) + write_message(header)[0] + b"body")
    return {"job_requests": made}
