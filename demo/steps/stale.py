"""A worker that was declared lost sends its reply too late."""

import signal
from itertools import pairwise
from typing import Any

from demo.peers.clients import MdpClient
from demo.peers.dialects import MDP1
from demo.stage import Stage

CROSSED = 0.3  # seconds after a dispatch in which a heartbeat may have been sent before the request arrived

TITLE = "A worker freezes and replies too late"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """Cleo (MDP/0.2) gets the next request and is stopped (SIGSTOP): her connection stays open, but her heartbeats stop.
        After three missed heartbeats the broker dispatches the request to Dora. Then Cleo continues and sends her reply.
        Each attempt has its own token, and only the worker that holds the current one can reply, so the broker drops the late
        reply."""
    )
    with (
        stage.worker("rfc18", "render", "render", "Cleo", hold=3) as cleo,
        stage.worker("dcp", "render", "render", "Dora"),
        MdpClient(stage.url, MDP1) as client,
    ):
        since = len(stage.broker.log)
        client.send("render", "scene 8")
        show.event(f"Cleo is {cleo.line()}")
        # The broker judges a busy worker by its heartbeats only after it has sent one while busy: many published workers do not.
        job = stage.wait_until("requests", lambda rows: bool(rows) and rows[0]["state_us"] > CROSSED * 1e6)[0]
        worker = job["worker"]
        silences: list[int] = []

        def beats_while_busy(rows: list[dict[str, Any]]) -> bool:
            """A silence becomes shorter with a heartbeat, and once when the broker's own process stood still."""
            silences.extend(row["silent_us"] for row in rows if row["worker"] == worker)
            heard = [later for earlier, later in pairwise(silences) if later < earlier]
            return len(heard) >= 2 and heard[-1] < job["state_us"] - CROSSED * 1e6

        stage.wait_until("workers", beats_while_busy)
        cleo.signal(signal.SIGSTOP)
        show.event("SIGSTOP: Cleo freezes")
        lost = stage.broker.logged("worker lost", since, worker=worker)
        show.event(f"broker: worker {worker} lost, {lost['why']}")
        reply = client.receive()
        show.event(f"client: {reply[1]!r}")
        show.check(
            "a frozen worker's request goes to another worker", reply == (True, "scene 8, rendered by Dora"), reply[1]
        )
        cleo.go()
        cleo.signal(signal.SIGCONT)
        show.event("SIGCONT: Cleo continues and replies")
        stale = stage.broker.logged("stale reply dropped", since, worker=worker)
        show.event(
            f"broker: stale reply of {stale['worker']} dropped, {stale['bytes']} bytes for attempt {stale['attempt']}"
        )
        client.send("mmi.service", "render")
        show.check(
            "the late reply is dropped",
            client.receive() == (True, "200"),
            "the client's next message is the reply to its next call",
        )
