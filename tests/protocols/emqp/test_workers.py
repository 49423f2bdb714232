"""eMQP/1.0: workers, schedulers and publishers at the broker."""

import pytest

from polydomo.limits import (
    EMQP_BEAT,
)
from polydomo.model.records import Publication
from polydomo.model.tuning import Tuning
from polydomo.protocols.emqp.session import EmqpSession
from polydomo.wire import frames
from polydomo.wire.close_reason import CloseCause
from tests.protocols.emqp_dbp_fakes import HEAD, JOB, EchoSession, Peer, Table, inform, only, request, worker_at

# --- a worker ---


def test_ready_is_one_slot_and_several_may_be_outstanding() -> None:
    table = Table()
    worker = worker_at(table, slots=2)
    client = table.join(EmqpSession)
    for number in range(3):
        request(client, msgid=b"%d" % number)
    first, _second = worker.hear()  # no more than it asked for
    worker.say(*HEAD, b"REPLY", b"x", b"done", first[3])
    assert worker.hear() == []  # a REPLY frees no slot, a READY does
    worker.say(*HEAD, b"READY", b"r")
    assert len(worker.hear()) == 1


def test_ready_slots_are_bounded() -> None:
    table = Table(Tuning(emqp_max_slots=2))
    worker = worker_at(table, slots=3)
    assert len(table.notes.violations) == 1
    client = table.join(EmqpSession)
    for _ in range(3):
        request(client)
    assert len(worker.hear()) == 2
    worker.say(*HEAD, b"READY", b"r")
    assert worker.hear() == [] and len(table.notes.violations) == 2


def test_a_five_frame_reply_is_matched_by_id_then_to_the_oldest() -> None:
    table = Table()
    worker = worker_at(table, slots=3, kind=None)
    client = table.join(EmqpSession)
    for number in (b"1", b"2", b"3"):
        request(client, msgid=number)
    jobs = worker.hear()
    worker.say(*HEAD, b"REPLY", jobs[1][3], b"by id")
    worker.say(*HEAD, b"REPLY", b"own", b"oldest")
    worker.say(*HEAD, b"REPLY", b"own", b"next")
    assert [reply[4:] for reply in client.hear()] == [[b"by id", b"2"], [b"oldest", b"1"], [b"next", b"3"]]


def test_a_late_five_frame_reply_is_not_taken_for_the_next_request_s() -> None:
    table = Table()
    worker = worker_at(table, slots=2, kind=None)
    client = table.join(EmqpSession)
    request(client, msgid=b"slow", headers=b"reply-requested,timeout:1")
    request(client, msgid=b"fast")
    table.wait(1.5)
    assert table.notes.outcomes == [("default", "timeout")]
    worker.say(*HEAD, b"REPLY", b"own", b"for slow")
    assert client.hear() == []
    worker.say(*HEAD, b"REPLY", b"own", b"for fast")
    assert only(client.hear())[4:] == [b"for fast", b"fast"]


def test_a_reply_to_another_workers_request_is_dropped() -> None:
    table = Table()
    holder, thief = worker_at(table), worker_at(table, b"other")
    client = table.join(EmqpSession)
    request(client)
    job = only(holder.hear())
    thief.say(*HEAD, b"REPLY", b"x", b"forged", job[3])
    assert client.hear() == [] and table.notes.stales == ["final"]
    holder.say(*HEAD, b"REPLY", b"x", b"real", job[3])
    holder.say(*HEAD, b"REPLY", b"x", b"again", job[3])
    assert only(client.hear())[4] == b"real" and len(table.notes.stales) == 2


def test_a_lost_workers_request_is_requeued_with_a_new_id() -> None:
    table = Table()
    first, second = worker_at(table), worker_at(table)
    client = table.join(EmqpSession)
    request(client)
    lost = only(first.hear())
    first.close()
    again = only(second.hear())
    assert again[6] == b"hello" and again[3] != lost[3]
    second.say(*HEAD, b"REPLY", b"x", b"late", lost[3])  # the first attempt's id counts no more
    assert client.hear() == []
    second.say(*HEAD, b"REPLY", b"x", b"done", again[3])
    assert only(client.hear())[4] == b"done"


@pytest.mark.parametrize("word", [b"KBYE", b"DISCONNECT"])
def test_both_goodbye_messages_requeue_the_requests(word: bytes) -> None:
    table = Table()
    first, second = worker_at(table), worker_at(table)
    request(table.join(EmqpSession))
    first.hear()
    first.say(*HEAD, word, b"bye")
    assert len(second.hear()) == 1
    first.say(*HEAD, b"HEARTBEAT", b"h")
    table.wait(EMQP_BEAT * 2)
    assert first.hear() == []  # nothing is sent to a peer that has left
    reason = first.link.close_reason
    assert reason is not None and reason.cause is CloseCause.AFTER_DISCONNECT and reason.orderly


def test_both_sides_beat_and_a_silent_worker_is_lost() -> None:
    table = Table()
    worker = worker_at(table, slots=0)
    for _ in range(5):
        table.wait(EMQP_BEAT)
        assert only(worker.hear())[2] == b"HEARTBEAT"
        worker.say(*HEAD, b"HEARTBEAT", b"h", b"1.0")
    table.wait(EMQP_BEAT * 5 + 1)
    assert table.notes.departures[0][0] == "lost"
    assert {message[2] for message in worker.hear()} == {b"HEARTBEAT"}
    table.wait(60.0)
    assert worker.hear() == []  # "it should stop sending it a message of any type"


def test_no_heartbeat_while_other_commands_are_sent() -> None:
    table = Table()
    worker = worker_at(table, slots=100)
    client = table.join(EmqpSession)
    for _ in range(10):
        table.wait(EMQP_BEAT / 2)
        worker.say(*HEAD, b"HEARTBEAT", b"h")
        request(client)
    assert {message[2] for message in worker.hear()} == {b"REQUEST"}


@pytest.mark.parametrize("last", [b"READY", b"REPLY", b"REQUEST", b"PUBLISH", b"HEARTBEAT"])
def test_any_command_acts_as_a_heartbeat(last: bytes) -> None:
    table = Table()
    worker = worker_at(table, slots=1)
    rest = {b"REPLY": [b"x"], b"REQUEST": [b"q", b"", b"x"], b"PUBLISH": [b"t", b"x"]}.get(last, [])
    if last == b"REPLY":
        request(table.join(EmqpSession))
    for _ in range(4):
        table.wait(EMQP_BEAT * 4)
        worker.say(*HEAD, last, b"i", *rest)
    assert table.notes.departures == []


def test_heartbeats_have_the_form_of_the_peer() -> None:
    """Four frames in the document; EventMQ's have the time as a fifth."""
    table = Table()
    peer = table.join(EmqpSession)
    peer.say(*HEAD, b"INFORM", b"i1", b"echo")
    _, beat = peer.hear()
    assert beat[:3] == [*HEAD, b"HEARTBEAT"] and len(beat) == 4
    table.wait(3.1)
    assert len(only(peer.hear())) == 4
    eventmq = worker_at(table)
    table.wait(3.1)
    assert len(only(eventmq.hear())) == 5
    eventmq.say(*HEAD, b"HEARTBEAT", b"h")  # a worker that names its type as EventMQ does, and beats as in the document
    table.wait(3.1)
    assert len(only(eventmq.hear())) == 4


def test_the_broker_sends_the_goodbye_of_the_peers_dialect() -> None:
    table = Table()
    eventmq, document = worker_at(table), worker_at(table, b"other", kind=None)
    scheduler = table.join(EmqpSession)
    inform(scheduler, b"", b"scheduler")
    table.broker.shutdown()
    assert only(eventmq.hear())[2] == b"KBYE"  # DISCONNECT would end EventMQ's process; it comes back after this
    assert only(document.hear())[2] == b"DISCONNECT"
    assert only(scheduler.hear())[2] == b"KBYE"


def test_a_heavier_queue_is_served_first_and_a_heavier_worker_is_chosen_first() -> None:
    table = Table()
    client = table.join(EmqpSession)
    request(client, queue=b"low", body=b"low")
    request(client, queue=b"high", body=b"high")
    worker = worker_at(table, b'[[5, "low"], [20, "high"]]', slots=2)
    assert [job[6] for job in worker.hear()] == [b"high", b"low"]
    light, heavy = worker_at(table, b'[[1, "q"]]', slots=2), worker_at(table, b'[[9, "q"]]', slots=2)
    for _ in range(3):
        request(client, queue=b"q")
    assert (len(heavy.hear()), len(light.hear())) == (2, 1)


def test_least_recently_used_within_a_weight() -> None:
    table = Table()
    workers = [worker_at(table, b'[[15, "q"]]') for _ in range(3)]
    client = table.join(EmqpSession)
    served = []
    for _ in range(6):
        request(client, queue=b"q")
        for number, worker in enumerate(workers):
            for job in worker.hear():
                served.append(number)
                worker.say(*HEAD, b"REPLY", b"x", b"", job[3])
                worker.say(*HEAD, b"READY", b"r")
    assert served == [0, 1, 2, 0, 1, 2]


def test_a_worker_may_also_ask() -> None:
    table = Table()
    worker, other = worker_at(table), worker_at(table, b"other")
    request(worker, queue=b"other")
    job = only(other.hear())
    other.say(*HEAD, b"REPLY", b"x", b"yes", job[3])
    assert only(worker.hear())[4:] == [b"yes", b"m1"]


# --- schedules and publishing ---


def schedule(peer: Peer, command: bytes = b"SCHEDULE", interval: bytes = b"60", cron: bytes = b"") -> list[bytes]:
    message = [*HEAD, command, b"s1", b"default", b"guarantee", interval, JOB, cron]
    peer.say(*message)
    return message


def test_schedules_reach_one_scheduler_and_unschedules_all() -> None:
    table = Table()
    one, two = table.join(EmqpSession), table.join(EmqpSession)
    inform(one, b"", b"scheduler")
    inform(two, b"", b"scheduler")
    client = table.join(EmqpSession)
    message = schedule(client)
    assert one.hear() == [message] and two.hear() == []
    message = schedule(client, interval=b"-1", cron=b"* * * * *")
    assert one.hear() == [message] and two.hear() == []  # the same one: a schedule sent again replaces the first
    message = schedule(client, b"UNSCHEDULE", b"-1")
    assert one.hear() == [message] == two.hear()
    one.say(*HEAD, b"KBYE", b"k")
    message = schedule(client)
    assert two.hear() == [message]
    two.close()
    schedule(client)
    assert table.notes.violations == ["SCHEDULE while no scheduler is connected and there is no job store"]


@pytest.mark.parametrize("command", [b"REQUEST", b"SCHEDULE", b"PUBLISH", b"HEARTBEAT"])
def test_any_command_of_a_scheduler_acts_as_a_heartbeat(command: bytes) -> None:
    table = Table()
    scheduler = table.join(EmqpSession)
    inform(scheduler, b"", b"scheduler")
    for _ in range(4):
        table.wait(EMQP_BEAT * 4)
        if command == b"SCHEDULE":
            schedule(scheduler)
        else:
            rest = {b"REQUEST": [b"q", b"", b"x"], b"PUBLISH": [b"t", b"x"]}.get(command, [])
            scheduler.say(*HEAD, command, b"i", *rest)
    assert len(table.broker.schedulers) == 1


def test_a_scheduler_asks_like_a_client_and_beats_like_a_worker() -> None:
    table = Table()
    worker = worker_at(table)
    scheduler = table.join(EmqpSession)
    inform(scheduler, b"", b"scheduler")
    request(scheduler)
    job = only(worker.hear())
    worker.say(*HEAD, b"REPLY", b"x", b"ran", job[3])
    assert only(scheduler.hear())[4] == b"ran"
    table.wait(EMQP_BEAT)
    assert only(scheduler.hear())[2] == b"HEARTBEAT"
    table.wait(EMQP_BEAT * 5)
    scheduler.hear()
    schedule(table.join(EmqpSession))
    assert scheduler.hear() == []  # silent for too long
    assert table.notes.violations == ["SCHEDULE while no scheduler is connected and there is no job store"]


@pytest.mark.parametrize(("interval", "cron"), [(b"soon", b""), (b"-1", b""), (b"", b""), (b"60", b"\xff")])
def test_a_schedule_that_would_end_eventmq_s_scheduler_is_not_passed_on(interval: bytes, cron: bytes) -> None:
    table = Table()
    scheduler = table.join(EmqpSession)
    inform(scheduler, b"", b"scheduler")
    schedule(table.join(EmqpSession), interval=interval, cron=cron)
    assert scheduler.hear() == [] and len(table.notes.violations) == 1


class Listener(EchoSession):
    def send_publication(self, publication: Publication) -> None:
        self.finals.append(publication.message)


def test_published_messages_reach_subscribers_as_topic_and_message() -> None:
    table = Table()
    session = table.join(Listener).session
    assert isinstance(session, Listener)
    table.broker.subscribe(session, b"news")
    client = table.join(EmqpSession)
    client.say(*HEAD, b"PUBLISH", b"p1", b"news.today", b'"hello"')
    client.say(*HEAD, b"PUBLISH", b"p2", b"other", b'"no"')
    assert [frames.split(body) for body in session.finals] == [[b"news.today", b'"hello"']]
    assert client.hear() == []
