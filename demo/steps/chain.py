"""DCP: a worker passes a request on."""

import contextlib

from demo.peers.clients import DcpPeer
from demo.stage import Stage

TITLE = "A request travels through a chain of workers"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """In DCP a worker may do part of the work and pass the request on to another service on the client's behalf.
        Here `scan` passes on to `read`, which is offered by a worker of another protocol; its answer goes straight
        to the client, with the client's own metadata untouched."""
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(stage.worker("emqp", "read", "greet", "Ida"))
        scanner = DcpPeer(stage.url)
        stack.callback(scanner.close)
        known = stage.known()
        scanner.register("scan")
        stage.registered("scan", known)
        client = DcpPeer(stage.url)
        stack.callback(client.close)
        metadata = [b"order 4711", b"urgent"]
        client.request("scan", metadata, "page 1")
        address, given, text = scanner.job()
        show.event(f"scan: got {text!r} with metadata {b', '.join(given).decode()!r}, passes it on to read")
        scanner.pass_on("read", address, given, f"scanned {text}")
        returned, reply = client.reply()
        show.event(f"client: {reply!r} with metadata {b', '.join(returned).decode()!r}")
        show.check("the last worker of a chain answers the client", reply == "Ida greets scanned page 1", reply)
        show.check("metadata comes back untouched", returned == metadata)
