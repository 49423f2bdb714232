"""Clients of ``sim.durable`` that follow a job, and what they may see."""

from typing import TYPE_CHECKING, Any

from polydomo.broker.jobs import job as states
from polydomo.model.jobs.messages import read_answer, write_message
from polydomo.wire.frames import frame, split
from sim.durable_store import Breach

if TYPE_CHECKING:
    from sim.durable import World


class Follower:
    """Asks for the next parts of a job, of whichever broker, until it has ended."""

    def __init__(self, world: "World", id: str, body: bytes) -> None:
        self.world = world
        self.id = id
        self.body = body
        self.after = ""
        self.place = (0, 0)  # of the last part that it has
        self.seen: list[bytes] = []  # parts of the current attempt
        self.waits = 0.0

    def ask(self) -> None:
        header = {"job": self.id, "after": self.after, "wait_us": 10_000_000}
        self.world.ask("polydomo.stream", write_message(header), self.answered)

    def answered(self, reply: list[bytes], code: str, text: str) -> None:
        found, frames = read_answer(reply) if reply else ({"error": code}, [])
        row: dict[str, Any] = dict(found)
        if row.get("error") is not None:
            if row["error"] == "not-found":
                raise Breach(f"job {self.id} was acknowledged and cannot be followed")
            self.world.later(2.0, self.ask)
            return
        damaged = self.id in self.world.database.flipped
        for one in row["parts"]:
            count = one["frames"]
            self.take(one["attempt"], one["number"], b"".join(frames[:count]))
            del frames[:count]
        self.after = str(row["next"])
        if "final" in row:
            self.end(row["final"]["attempt"], frames, damaged)
        elif "outcome" in row:
            self.world.streams += 1
            if row["state"] == states.DONE:
                raise Breach(f"the stream of job {self.id} has no end, although the client does not have it")
        else:
            self.world.later(0.0, self.ask)

    def take(self, attempt: int, number: int, text: bytes) -> None:
        stored = self.world.database.tables.parts.get(self.id, {})
        newest = max(stored, default=(0, 0))
        if (attempt, number) not in stored and newest[0] <= attempt:
            raise Breach(f"a client saw part {attempt}.{number} of job {self.id}, which is not in the store")
        if (attempt, number) <= self.place:
            raise Breach(f"part {attempt}.{number} of job {self.id} came after {self.place}")
        if attempt != self.place[0]:
            self.seen = []
        if number != len(self.seen) + 1:
            raise Breach(f"part {attempt}.{number} of job {self.id} came after {len(self.seen)} parts of its attempt")
        run = text.split(b" run ")[-1].split()[0]
        if self.seen and self.seen[0].split(b" run ")[-1].split()[0] != run:
            raise Breach(f"attempt {attempt} of job {self.id} has parts of two runs: {self.seen[0]!r} and {text!r}")
        if not text.startswith(self.body):
            raise Breach(f"job {self.id} of {self.body!r} has the part {text!r}")
        self.seen.append(text)
        self.place = (attempt, number)

    def end(self, attempt: int, frames: list[bytes], damaged: bool) -> None:
        """The rest of the result: with the parts of its attempt, it is the whole."""
        self.world.streams += 1
        seen = self.seen if attempt == self.place[0] else []
        job = self.world.database.tables.jobs[self.id]
        whole = [part for part in [*seen, *frames] if part]
        if whole != split(job.result) and not damaged:
            raise Breach(f"a client has {whole!r} of job {self.id}, whose result is {split(job.result)!r}")


def result_fits(result: bytes, body: bytes) -> bool:
    """Whether a stored result is that of one run: its parts, and then the answer."""
    if result == frame(body.upper(), False):
        return True
    frames = split(result) if result else []
    runs = {part.split(b" run ")[-1].split()[0] for part in frames[:-1]}
    return bool(frames) and frames[-1] == body.upper() and len(runs) <= 1
