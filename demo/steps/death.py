"""A worker is killed in the middle of its job."""

import signal
import time

from demo.peers.clients import MdpClient
from demo.peers.dialects import MAJORTOMO
from demo.stage import Stage

TITLE = "A worker is killed in the middle of its job"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """Ada (MDP/0.1) and Ben (MDX) both offer `render`. A client asks; Ada, who has been free for longer, gets the
        job. In the middle of it she is killed with SIGKILL: no goodbye, no reply. The broker sees her connection
        close, puts the request back at the head of the queue, and Ben does it. The client has no part in this: it
        gets its one reply."""
    )
    with (
        stage.worker("mdp1", "render", "render", "Ada", hold=3) as ada,
        stage.worker("mdx", "render", "render", "Ben"),
        MdpClient(stage.url, MAJORTOMO) as client,
    ):
        since = len(stage.broker.log)
        client.send("render", "scene 7")
        show.event(f"Ada is {ada.line()}")
        worker = stage.wait_until("requests", bool)[0]["worker"]
        stage.command("requests")
        ada.signal(signal.SIGKILL)
        killed = time.monotonic()
        show.event("SIGKILL")
        lost = stage.broker.logged("worker lost", since, worker=worker)
        show.event(f"broker: worker {worker} lost, {lost['why']}")
        back = stage.broker.logged("request requeued", since, worker=worker)
        show.event(f"broker: request {back['request']} requeued after attempt {back['attempt']}")
        final, reply = client.receive()
        took = time.monotonic() - killed
        show.event(f"client: {reply!r}")
        show.check(
            "another worker takes over", final and reply == "scene 7, rendered by Ben", f"{took:.2f} s after the kill"
        )
        client.send("mmi.service", "render")
        show.check(
            "the client gets one reply, not two",
            client.receive() == (True, "200"),
            "next on its line: another call's answer",
        )
