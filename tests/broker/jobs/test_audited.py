"""The audit finds nothing in the journal of a broker that repeats, requeues and shares requests as it should."""

from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.broker.jobs.job import Job
from polydomo.journal import schema
from polydomo.journal.levels import Levels
from polydomo.journal.reading.audit import audit
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.model.name_patterns import chosen
from polydomo.stores.memory import MemoryBackend
from tests.broker.jobs.kept import keep_jobs
from tests.broker.rig import World

KEY = b"invoice-7, sixteen"


def recorded() -> tuple[World, JournalRecorder]:
    world = World()
    recorder = JournalRecorder(Run("b", 1, 1.7e9), Levels(schema.MESSAGES))
    recorder.attach(world.broker)
    world.broker.record_to(recorder)
    recorder.begin("started")
    return world, recorder


def breaches(recorder: JournalRecorder) -> list[str]:
    return [str(breach) for breach in audit(recorder.rows())]


def test_a_durable_request_that_is_repeated_after_its_end_is_answered_by_its_job() -> None:
    world, recorder = recorded()
    store = keep_jobs(world.broker, chosen(["first"]), MemoryBackend())
    client, worker = world.client(), world.worker(b"first", silence=1000)

    def settle() -> None:
        for _ in range(3):
            store.sync()
            world.wait(1.0)

    for times in (1, 2):
        client.ask_with_key(KEY, service=b"first")
        settle()
        if worker.jobs:
            worker.answer(b"done")
        settle()
        assert len(client.finals) == times
    assert worker.me.done == 1
    assert breaches(recorder) == []


def test_a_request_with_a_key_waits_beside_a_requeued_one() -> None:
    world, recorder = recorded()
    client, lost = world.client(), world.worker()
    client.ask()
    lost.link.lost()
    client.ask_with_key(KEY)
    worker = world.worker()
    worker.answer(b"requeued")
    worker.answer(b"keyed")
    assert client.finals == [[b"requeued"], [b"keyed"]]
    assert breaches(recorder) == []


def test_a_right_that_is_revoked_while_a_job_is_being_stored() -> None:
    """The job was submitted with the right. One that is submitted without it is found, whatever the store does."""
    allowed = AccessRules(["alice"], [AccessRule(1, ["alice"], {"call": ["first"]})])
    world, recorder = recorded()
    store = keep_jobs(world.broker, chosen(["first"]), MemoryBackend())
    world.broker.access.replace(allowed)
    client = world.client()
    client.principal = client.link.principal = "alice"
    client.ask(service=b"first")
    world.broker.access.replace(AccessRules(["alice"], []))
    store.sync()
    world.wait(1.0)
    assert [row["allowed"] for row in recorder.rows() if row.get("event") == schema.JOB and row["principal"]] == [1]
    assert breaches(recorder) == []
    durable = world.broker.durable
    assert durable is not None
    job = Job("01JOB", b"first", b"", world.broker.now)
    job.principal = "alice"
    durable.submit(job, lambda found, error: None)
    store.sync()
    world.wait(1.0)
    (breach,) = breaches(recorder)
    assert breach.startswith("job-with-the-right")
