"""memo01 as our clients and workers speak it, through links, against the real broker."""

import pytest

from polydomo.errors import CallFailed, NoSuchService, ProtocolViolation
from polydomo.protocols.ends import ClientEnd, Delivery, Dismissed, Event, Reply, WorkerEnd
from polydomo.protocols.memo import messages
from polydomo.protocols.memo.ends import MemoClientEnd, MemoWorkerEnd
from polydomo.wire import sp
from tests.protocols.memo.fakes import Peer, World


class Plug:
    """An end on a connection to the broker of a world."""

    def __init__(self, world: World, end: ClientEnd | WorkerEnd) -> None:
        self.end = end
        self.peer = Peer(world)

    def pump(self) -> list[Event]:
        """Carries messages both ways until nothing is left to carry."""
        events: list[Event] = []
        while True:
            for rid, body in self.end.out:
                self.peer.link.receive(sp.message(rid, body))
            self.end.out.clear()
            data = b"".join(bytes(piece) for piece in self.peer.link.out)
            self.peer.link.out.clear()
            position = 0
            while position < len(data):
                start = position + 8
                position = start + int.from_bytes(data[position:start], "big")
                events += self.end.receive(sp.split(data, start, position))
            if not self.end.out:
                return events


class Both:
    """One client and one worker connection."""

    def __init__(self, slots: int = 1) -> None:
        self.world = World()
        self.client = MemoClientEnd()
        self.worker = MemoWorkerEnd()
        self.at_client = Plug(self.world, self.client)
        self.at_worker = Plug(self.world, self.worker)
        self.worker.open([b"echo", b"up"], slots)
        assert self.at_worker.pump() == []

    def jobs(self) -> list[Delivery]:
        events = self.at_worker.pump()
        jobs = [event for event in events if isinstance(event, Delivery)]
        assert len(jobs) == len(events)
        return jobs


def test_a_call_and_its_reply() -> None:
    both = Both()
    both.client.request(7, b"echo", [b"hel", b"lo"], 2.5)
    assert both.at_client.pump() == []
    [job] = both.jobs()
    assert (job.service, job.body, job.timeout) == (b"echo", [b"hello"], 2.5)
    both.worker.partial(job, [b"a", b"b"])
    both.worker.final(job, [b"c"])
    assert both.jobs() == []
    assert both.at_client.pump() == [Reply(7, [b"abc"])]


def test_many_calls_at_once_over_one_connection_in_any_order() -> None:
    both = Both(slots=50)
    for key in range(50):
        both.client.request(key, b"echo", [b"%d" % key])
    both.at_client.pump()
    jobs = both.jobs()
    assert {job.timeout for job in jobs} == {900.0}
    for job in reversed(jobs):
        both.worker.final(job, job.body)
    both.jobs()
    replies = both.at_client.pump()
    assert replies == [Reply(key, [b"%d" % key]) for key in reversed(range(50))]
    assert len(both.world.broker.workers) == 50


def test_the_reply_to_a_forgotten_call_is_dropped() -> None:
    both = Both()
    both.client.request(1, b"echo", [b"x"])
    both.at_client.pump()
    both.client.forget(1)
    both.client.forget(2)
    [job] = both.jobs()
    both.worker.final(job, [b"y"])
    both.jobs()
    assert both.at_client.pump() == []


@pytest.mark.parametrize("name", [b"\xff", b""])
def test_a_name_that_memo01_cannot_say(name: bytes) -> None:
    with pytest.raises(NoSuchService):
        MemoClientEnd().request(1, name, [])
    with pytest.raises(ValueError):
        MemoWorkerEnd().open([b"fine", name])


def test_messages_that_a_client_must_not_receive() -> None:
    end = MemoClientEnd()
    rid = bytes.fromhex("80000000")
    for body in (
        messages.disconnect(b""),
        messages.heartbeat(b""),
        messages.result(b"id"),
        messages.job(b"", b"x", 1),
        b"",
        b"x",
    ):
        with pytest.raises(ProtocolViolation):
            end.receive([rid, body])
    with pytest.raises(ProtocolViolation):
        end.receive([rid])
    assert end.receive([rid, messages.result(b"") + b"late"]) == []


def test_a_client_puts_an_empty_id_in_its_requests() -> None:
    end = MemoClientEnd()
    end.request(1, b"echo", [b"a", b"b"], 5.0)
    end.request(2, b"echo", [], 0.0001)
    (first, body), (second, other) = end.out
    assert first != second
    assert body == bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563686f 19 1388") + b"ab"
    assert other == bytes.fromhex("85 66 6d656d6f3031 02 40 64 6563686f 01")


def test_ready_lists_services_sorted_by_length_then_bytes_and_once() -> None:
    end = MemoWorkerEnd()
    end.open([b"echo", b"add", b"abc", b"echo"])
    [[rid, body]] = end.out
    assert rid == bytes.fromhex("80000000")
    assert body == bytes.fromhex("84 66 6d656d6f3031 01 40 83 63 616263 63 616464 64 6563686f")


def test_a_heartbeat_is_answered_at_once() -> None:
    both = Both(slots=3)
    for _ in range(20):
        both.world.wait(5)
        assert both.jobs() == []
    assert len(both.world.broker.workers) == 3 and not both.world.notes.departures


def test_a_slot_whose_job_failed_gives_it_back_and_the_others_work_on() -> None:
    both = Both(slots=2)
    both.client.request(1, b"echo", [b"one"])
    both.client.request(2, b"echo", [b"two"])
    both.at_client.pump()
    one, two = both.jobs()
    assert both.worker.fail(one, "failed", "no") is False
    [again] = both.jobs()  # both slots were busy: the new worker of the failed slot gets it
    assert again.body == [b"one"] and again is not one
    both.worker.final(one, [b"from the dead"])
    both.worker.partial(one, [b"from the dead"])
    both.worker.final(two, [b"TWO"])
    both.worker.final(again, [b"ONE"])
    assert both.jobs() == []
    assert both.at_client.pump() == [Reply(2, [b"TWO"]), Reply(1, [b"ONE"])]
    assert both.world.notes.outcomes == ["ok", "ok"]


def test_a_job_that_always_fails_uses_up_its_attempts_and_the_worker_stays() -> None:
    both = Both()
    both.client.request(1, b"echo", [b"x"])
    both.at_client.pump()
    tries = 0
    jobs = both.jobs()
    while jobs:
        tries += 1
        both.worker.fail(jobs[0], "failed", "no")
        jobs = both.jobs()
    assert tries == 3 and both.world.notes.outcomes == ["gave-up"]
    assert both.at_client.pump() == []
    both.client.request(2, b"up", [b"y"])
    both.at_client.pump()
    assert [job.body for job in both.jobs()] == [[b"y"]]


def test_a_broker_that_knows_none_of_the_slots_dismisses_the_connection() -> None:
    both = Both(slots=3)
    for worker in list(both.world.broker.workers):
        worker.session.dismiss(worker)
        both.world.broker.worker_left(worker, "thrown out")
    assert both.at_worker.pump() == [Dismissed()]


def test_a_slot_out_of_sync_registers_again() -> None:
    both = Both(slots=3)
    worker = next(iter(both.world.broker.workers))
    worker.session.dismiss(worker)
    both.world.broker.worker_left(worker, "thrown out")
    assert both.at_worker.pump() == []
    assert len(both.world.broker.workers) == 3


def test_a_ready_answered_with_disconnect_twice_does_not_go_on_for_ever() -> None:
    end = MemoWorkerEnd()
    end.open([b"echo"], 2)
    first, second = (message[0] for message in end.out)
    end.out.clear()
    assert end.receive([first, messages.disconnect(b"")]) == []
    [[third, _]] = end.out
    assert end.receive([third, messages.disconnect(b"")]) == [Dismissed()]
    assert end.receive([second, messages.heartbeat(b"id")]) == []


def test_closing_makes_results_the_last_and_takes_no_more_jobs() -> None:
    both = Both(slots=2)
    both.client.request(1, b"echo", [b"x"])
    both.at_client.pump()
    [job] = both.jobs()
    both.worker.close()
    both.client.request(2, b"echo", [b"y"])
    both.at_client.pump()
    both.worker.final(job, [b"X"])
    [[_, body]] = both.worker.out
    assert messages.parse(body, 0, len(body)).disconnecting
    assert both.jobs() == []
    assert both.at_client.pump() == [Reply(1, [b"X"])]
    both.at_worker.peer.close()
    both.world.wait(2)
    other = Plug(both.world, MemoWorkerEnd())
    assert isinstance(other.end, MemoWorkerEnd)
    other.end.open([b"echo"])
    [again] = other.pump()
    assert isinstance(again, Delivery) and again.body == [b"y"]


def test_partials_past_the_message_bound_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polydomo.protocols.ends.MAX_BODY", 10)
    both = Both()
    both.client.request(1, b"echo", [b"x"])
    both.at_client.pump()
    [job] = both.jobs()
    both.worker.partial(job, [b"12345", b"67890"])
    with pytest.raises(CallFailed):
        both.worker.partial(job, [b"1"])


def test_messages_that_a_worker_must_not_receive() -> None:
    for body in (messages.result(b"id"), messages.ready([b"x"]), b"\x80", b"x"):
        end = MemoWorkerEnd()
        end.open([b"echo"])
        with pytest.raises(ProtocolViolation):
            end.receive([end.out[0][0], body])
    end = MemoWorkerEnd()
    end.open([b"echo"])
    end.receive([end.out[0][0], messages.heartbeat(b"one")])
    with pytest.raises(ProtocolViolation, match="changed the id"):
        end.receive([end.out[1][0], messages.heartbeat(b"two")])
