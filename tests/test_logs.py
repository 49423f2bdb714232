"""The logging handler and the worker library, against a real broker: every record arrives, with the request it belongs to."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

import polydomo
import polydomo.logs
import polydomo.testing
from polydomo.broker.requests.request_ids import is_id
from polydomo.client.publisher import Publisher
from polydomo.client.subscriber import AsyncSubscriber
from polydomo.limits import MAX_LOG_RECORD
from polydomo.protocols import registry


@pytest.fixture
def log(broker: polydomo.testing.Broker) -> Iterator[logging.Logger]:
    handler = polydomo.logs.Handler(broker.url, service="program")
    log = logging.getLogger("test.program")
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    yield log
    log.removeHandler(handler)
    handler.close()


def records(broker: polydomo.testing.Broker, count: int, **wanted: object) -> list[dict[str, object]]:
    """Waits for this many records."""
    broker.wait_until(lambda server: server.broker.publishing.log_records.taken >= count)
    with polydomo.Client(broker.url) as client:
        found = client.call("polydomo.logs", json.dumps(wanted)).json()
    assert isinstance(found, list)
    return found


def test_a_record_arrives_with_all_it_has(broker: polydomo.testing.Broker, log: logging.Logger) -> None:
    began = time.time()
    log.warning("%d of %d", 1, 2, extra={"size": 7, "odd": {1, 2}, "nan": float("nan")})
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("it failed")
    first, second = records(broker, 2)
    assert (first["message"], first["level"], first["service"], first["request"]) == (
        "1 of 2",
        "warning",
        "program",
        None,
    )
    assert first["fields"] == {"size": 7, "odd": "{1, 2}", "nan": "nan", "logger": "test.program"}
    assert str(first["time"]).endswith("Z")
    assert began - 0.001 <= datetime.fromisoformat(str(first["time"])).timestamp() <= time.time()
    fields = second["fields"]
    assert isinstance(fields, dict) and "ValueError: broken" in fields["exception"]


@pytest.mark.parametrize("protocol", registry.names())
def test_records_of_a_function_carry_its_request(
    broker: polydomo.testing.Broker, log: logging.Logger, protocol: str
) -> None:
    """Of a plain function in its thread, of a coroutine, of a generator, and of tasks that a coroutine starts."""
    worker = polydomo.Worker(broker.url, protocol, concurrency=2)

    async def deeper() -> None:
        log.info("deeper")

    @worker.service("plain")
    def plain(call: polydomo.Call) -> str:
        log.info("plain")
        return call.request

    @worker.service("coroutine")
    async def coroutine(call: polydomo.Call) -> str:
        await asyncio.sleep(0)
        log.info("coroutine")
        await asyncio.create_task(deeper())
        return call.request

    @worker.service("generator")
    def generator(call: polydomo.Call) -> Iterator[str]:
        log.info("generator")
        yield call.request

    with worker, polydomo.Client(broker.url) as client:
        names = ["plain", "coroutine", "generator"]
        for name in names:
            broker.wait_for(name, workers=2)
        ids = {name: client.call(name, "x").text for name in names}
        log.info("outside")
        found = {str(row["message"]): row for row in records(broker, 5)}
    assert found["outside"]["request"] is None and found["outside"]["service"] == "program"
    requests = {name: found[name]["request"] for name in names}
    assert found["deeper"]["request"] == requests["coroutine"]
    for name in names:
        assert found[name]["service"] == name and (found[name]["attempt"] or "") == ids[name]
    if protocol == "memo":  # its JOB names the worker, and nothing that leads to the request
        assert {*requests.values()} == {None} and {*ids.values()} == {""}
    else:
        assert len({*requests.values()}) == 3 and all(is_id(request) for request in requests.values())


def test_logging_does_not_wait_for_a_missing_broker(broker: polydomo.testing.Broker) -> None:
    broker.stop()
    handler = polydomo.logs.Handler(broker.url, service="patient", max_records=10)
    try:
        log = logging.getLogger("test.patient")
        log.propagate = False
        log.addHandler(handler)
        for n in range(1000):
            log.warning("number %d", n)
        assert handler.dropped >= 980  # ten wait in line; a few more may be on their way
        broker.start()
        handler.flush()
        broker.wait_until(lambda server: server.broker.publishing.log_records.taken >= 10)
        log.warning("again")
        found = [str(row["message"]) for row in records(broker, 12)]
        assert found[0] == "number 0" and "again" in found
        assert found[-1] == f"{handler.dropped} log records were dropped"
    finally:
        log.removeHandler(handler)
        handler.close()
        handler.close()


def test_a_record_that_is_too_long_is_cut(broker: polydomo.testing.Broker, log: logging.Logger) -> None:
    log.warning("x" * 100_000, extra={"more": "y" * 100_000})
    log.warning("\x00" * 100_000)
    for row in records(broker, 2):
        assert len(json.dumps(row)) <= MAX_LOG_RECORD and isinstance(row["fields"], dict) and "cut" in row["fields"]


def test_a_publisher_from_many_threads(broker: polydomo.testing.Broker) -> None:
    with Publisher(broker.url) as publisher:

        def publish(name: str) -> None:
            for n in range(50):
                assert publisher.publish(f"count.{name}", str(n))

        threads = [threading.Thread(target=publish, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert publisher.flush(60.0)
    assert not publisher.publish("count.a", "closed") and publisher.dropped == 1
    broker.wait_until(lambda server: len(server.broker.publishing.last_values) == 4)

    async def late() -> dict[str, str]:
        async with AsyncSubscriber(broker.url, "count.") as subscriber:
            return {topic: message.text for topic, message in [await subscriber.next() for _ in range(4)]}

    assert asyncio.run(late()) == {f"count.{name}": "49" for name in "abcd"}


def test_a_subscriber_learns_that_the_broker_is_gone(broker: polydomo.testing.Broker) -> None:
    async def lose() -> None:
        async with AsyncSubscriber(broker.url, "x") as subscriber:
            await asyncio.get_running_loop().run_in_executor(None, broker.stop)
            for _ in range(2):
                with pytest.raises(polydomo.ConnectionLost):
                    await asyncio.wait_for(subscriber.next(), 10)

    asyncio.run(lose())


SHORT = """
import logging, sys
import polydomo.logs

handler = polydomo.logs.Handler(sys.argv[1], service="short")
logging.getLogger().addHandler(handler)
for number in range(3):
    logging.warning("warning %d", number)
"""


@pytest.mark.parametrize("ending", ["", "sys.exit(0)", "raise SystemExit"])
def test_the_records_of_a_short_program_arrive(broker: polydomo.testing.Broker, ending: str) -> None:
    """It ends at once, without closing the handler."""
    patient = "import polydomo.client.publisher\npolydomo.client.publisher.CLOSE_TIME = 60.0\n"  # of a slow machine
    ended = subprocess.run([sys.executable, "-c", patient + SHORT + ending, broker.url], capture_output=True)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert [row["message"] for row in records(broker, 3)] == ["warning 0", "warning 1", "warning 2"]


def test_a_program_whose_broker_is_gone_ends_and_counts_its_records_as_dropped() -> None:
    report = "import atexit; atexit.register(lambda: print(handler.dropped))"
    program = SHORT.replace("handler = ", "handler = None\n" + report + "\nhandler = ")
    ended = subprocess.run([sys.executable, "-c", program, "tcp://127.0.0.1:9"], capture_output=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"3\n", b"")


@pytest.mark.long
def test_all_publishers_together_hold_the_exit_up_for_one_second() -> None:
    program = """
import time, atexit
from polydomo.broker.requests.request_ids import is_id
from polydomo.client.publisher import Publisher
atexit.register(lambda: print(time.monotonic() - ended))
publishers = [Publisher("tcp://127.0.0.1:9") for _ in range(8)]
for publisher in publishers:
    publisher.publish("topic", "x")
ended = time.monotonic()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert done.returncode == 0 and float(done.stdout) < 6, "each alone takes a second"
