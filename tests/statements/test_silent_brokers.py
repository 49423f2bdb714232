"""What the documents ask of a worker or service whose broker is silent or sends DISCONNECT: our own, with a broker that is a raw ROUTER
socket."""

import asyncio
import contextlib
import json
from collections.abc import Callable

import pytest
import zmq

from polydomo import Worker
from polydomo.client.catalog import AsyncCatalog, RegistrationObserver, stay_registered
from tests.client.zmq_broker import Router

Confirm = Callable[[list[bytes]], list[list[bytes]]]  # the first message of a worker -> the broker's answers
E = (b"", b"eMQP/1.0")


def is_first(frames: list[bytes]) -> bool:
    return frames[1:2] == [b"\x01"] or frames[2:3] in ([b"\x01"], [b"INFORM"], [b"\x01\0\0\0"])


CONFIRMS: dict[str, Confirm] = {
    "mdx": lambda first: [],  # "There is no response to a READY."
    "dcp": lambda first: [first],
    "emqp": lambda first: [[*E, b"ACK", b"1", first[3]], [*E, b"HEARTBEAT", b"2"]],
}
DISCONNECTS = {"mdx": [b"MDPW02", b"\x06"], "emqp": [*E, b"DISCONNECT", b"3"]}


def send_if_connected(router: Router, peer: bytes, *frames: bytes) -> None:
    with contextlib.suppress(zmq.ZMQError):
        router.send(peer, *frames)


def registers(router: Router) -> tuple[bytes, list[bytes]]:
    while True:
        peer, frames = router.expect()
        if is_first(frames):
            return peer, frames


@pytest.mark.parametrize("protocol", CONFIRMS)
def test_our_worker_restarts_the_conversation_with_a_silent_broker(router: Router, protocol: str) -> None:
    worker = Worker(router.url, protocol, beat=0.05)
    worker.add("echo", lambda call: call.body)
    with worker:
        beating: set[bytes] = set()  # a worker that is late may give up a connection before its first beat
        while True:
            peer, frames = router.expect()
            if not is_first(frames):
                beating.add(peer)  # and nothing comes back
            elif beating:
                break
            else:
                for message in CONFIRMS[protocol](frames):
                    send_if_connected(router, peer, *message)
        assert peer not in beating and frames[-1] != b""


@pytest.mark.parametrize("protocol", DISCONNECTS)
def test_our_worker_connects_again_after_disconnect(router: Router, protocol: str) -> None:
    worker = Worker(router.url, protocol)
    worker.add("echo", lambda call: call.body)
    with worker:
        first, frames = registers(router)
        for message in [*CONFIRMS[protocol](frames), DISCONNECTS[protocol]]:
            router.send(first, *message)
        assert registers(router)[0] != first


def test_our_dcp_worker_registers_again_after_reconnect(router: Router) -> None:
    worker = Worker(router.url, "dcp")
    worker.add("echo", lambda call: call.body)
    with worker:
        first, frames = registers(router)
        router.send(first, *frames)
        router.send(first, *frames[:2], b"\x06")
        assert registers(router) == (first, frames)


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "disconnect"])
def test_our_service_registers_again_on_a_new_socket(router: Router, silent: bool) -> None:
    information: dict[str, object] = {"name": "camera", "heartbeat": 0.05}

    def play() -> tuple[bytes, bytes, list[bytes]]:
        first = b""  # one that beats
        while True:
            peer, frames = router.expect()
            if frames[1] == b"<3":
                first = peer
                if not silent:
                    send_if_connected(router, first, b"", b"</3", frames[2], b"")
            elif first:
                return first, peer, frames
            else:  # the first time, or this thread answered too late
                assert frames[:2] == [b"", b"UwU"] and json.loads(frames[3])["name"] == "camera"
                send_if_connected(router, peer, b"", b"OwO", frames[2], b'{"heartbeat": 0.05}')

    async def run() -> None:
        catalog = AsyncCatalog(router.url, timeout=60)

        class Impatient(RegistrationObserver):
            def registered(self, interval: float) -> None:
                if silent:
                    catalog.timeout = 0.5

        staying = asyncio.ensure_future(stay_registered(catalog, information, Impatient()))
        first, second, frames = await asyncio.to_thread(play)
        staying.cancel()
        await asyncio.wait([staying])
        await catalog.close()
        assert second != first and frames[:2] == [b"", b"UwU"]

    asyncio.run(run())
