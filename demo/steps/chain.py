"""DCP: a worker forwards a request."""

import contextlib

from demo.peers.clients import DcpPeer
from demo.stage import Stage

TITLE = "A request passes through a chain of workers"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """A DCP worker can do part of the work and forward the request to another service. Here `scan` forwards to `read`, which a
        worker of another protocol offers. Its reply goes directly to the client, with the client's metadata unchanged."""
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
        show.event(f"scan: got {text!r} with metadata {b', '.join(given).decode()!r}, forwards it to read")
        scanner.pass_on("read", address, given, f"scanned {text}")
        returned, reply = client.reply()
        show.event(f"client: {reply!r} with metadata {b', '.join(returned).decode()!r}")
        show.check("the last worker of a chain answers the client", reply == "Ida greets scanned page 1", reply)
        show.check("metadata is returned unchanged", returned == metadata)
