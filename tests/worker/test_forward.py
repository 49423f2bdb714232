"""Chains of services over DCP: ``call.forward`` and ``call.metadata``."""

from collections.abc import Generator

import pytest
import zmq

from polydomo import Call, CallFailed, Client, SettingError, Worker, testing
from polydomo.protocols import registry

WAIT = 60.0
HEADER = [b"", b"DGBX\x01"]


def chain(url: str, seen: list[list[bytes]], metadata: list[str] | None = None) -> Worker:
    worker = Worker(url, "dcp", concurrency=2)

    @worker.service("first")
    def first(call: Call) -> object:
        seen.append(call.metadata)
        return call.forward("second", call.text + "1", metadata=metadata)

    @worker.service("second")
    async def second(call: Call) -> str:
        seen.append(call.metadata)
        return call.text + "2"

    return worker


@pytest.mark.parametrize("protocol", registry.names())
def test_the_reply_of_the_last_service_goes_to_a_caller_of_any_protocol(broker: testing.Broker, protocol: str) -> None:
    with chain(broker.url, []), Client(broker.url, protocol) as client:
        broker.wait_for("second", 2)
        assert client.call("first", "0", timeout=WAIT).text == "012"


@pytest.mark.parametrize("changed", [None, ["trace", "two"]])
def test_metadata_of_a_client_of_the_document(broker: testing.Broker, changed: list[str] | None) -> None:
    """The client gets its own metadata back; the second worker sees what the first one sent."""
    seen: list[list[bytes]] = []
    with chain(broker.url, seen, changed), zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        broker.wait_for("first", 2)
        socket.connect(broker.url)
        socket.setsockopt(zmq.RCVTIMEO, 60_000)
        socket.send_multipart([*HEADER, b"\x04", b"first", b"", b"mine", b"", b"0"])
        reply = socket.recv_multipart()
    assert reply[:3] == [*HEADER, b"\x05"]
    assert reply[4:] == [b"", b"mine", b"", b"012"]
    assert seen == [[b"mine"], [b"mine"] if changed is None else [b"trace", b"two"]]


def test_a_typed_function_forwards(broker: testing.Broker) -> None:
    worker = Worker(broker.url, "dcp")

    @worker.service("add")
    def add(call: Call, a: int, b: int) -> int:
        return call.forward("double", str(a + b))  # type: ignore[return-value]

    @worker.service("double")
    def double(call: Call) -> str:
        return str(2 * int(call.text))

    with worker, Client(broker.url) as client:
        assert client.call("add", a=1, b=2, timeout=WAIT).json() == 6


def test_a_client_without_extensions_of_ours_forwards_to_a_service_of_another_protocol(broker: testing.Broker) -> None:
    worker = Worker(broker.url)
    worker.add("second", lambda call: call.text + "2")
    first = Worker(broker.url, "dcp")
    first.add("first", lambda call: call.forward("second", call.text + "1"))
    with worker, first, Client(broker.url) as client:
        assert client.call("first", "0", timeout=WAIT).text == "012"


@pytest.mark.parametrize("protocol", [name for name in registry.names() if name != "dcp"])
def test_other_protocols_cannot_forward(broker: testing.Broker, protocol: str) -> None:
    raised: list[Exception] = []
    worker = Worker(broker.url, protocol)

    @worker.service("first")
    def first(call: Call) -> object:
        assert call.metadata == []
        try:
            return call.forward("second")
        except SettingError as error:
            raised.append(error)
            return "no"

    with worker, Client(broker.url) as client:
        assert client.call("first", timeout=WAIT).text == "no"
    assert "only DCP" in str(raised[0])


def test_what_cannot_be_forwarded(broker: testing.Broker) -> None:
    worker = Worker(broker.url, "dcp")
    problems: list[str] = []

    @worker.service("first")
    def first(call: Call) -> str:
        for name, metadata in (("x" * 256, None), ("second", [""])):
            with pytest.raises(SettingError) as caught:
                call.forward(name, metadata=metadata)
            problems.append(str(caught.value))
        return "done"

    with worker, Client(broker.url) as client:
        assert client.call("first", timeout=WAIT).text == "done"
    assert "256 bytes" in problems[0]
    assert "metadata is empty" in problems[1]


def test_not_after_a_partial_reply() -> None:
    """DCP sends partial replies joined with the final one, which a forwarded call does not have."""
    with testing.broker(settings={"attempts": 1}) as broker:
        worker = Worker(broker.url, "dcp")

        @worker.service("first")
        def first(call: Call) -> Generator[str, None, object]:
            yield "part"
            return call.forward("second")

        with worker, Client(broker.url) as client, pytest.raises(CallFailed, match="gave-up"):
            client.call("first", timeout=WAIT)
