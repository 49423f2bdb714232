"""A worker that was given up comes back with a reply."""

import signal

from demo.peers.clients import MdpClient
from demo.peers.dialects import MDP1
from demo.stage import Stage

CROSSED = 0.3  # seconds after a request in which a beat may have crossed it, and then some

TITLE = "A worker freezes, is given up, and replies too late"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """Cleo (MDP/0.2) gets the next job and freezes (SIGSTOP): her connection stays open, but her heartbeats stop.
        After three missed beats the broker gives her request to Dora. Then Cleo thaws and sends her reply, for a
        request that is no longer hers. Each attempt has a token of its own, and only the worker that holds it may
        answer: the late reply reaches nobody."""
    )
    with (
        stage.worker("rfc18", "render", "render", "Cleo", hold=3) as cleo,
        stage.worker("dcp", "render", "render", "Dora"),
        MdpClient(stage.url, MDP1) as client,
    ):
        since = len(stage.broker.log)
        client.send("render", "scene 8")
        show.event(f"Cleo is {cleo.line()}")
        # A worker is judged by its beats only once it has surely beaten while busy: many published ones do not.
        job = stage.wait_until("requests", lambda rows: bool(rows) and rows[0]["state_us"] > CROSSED * 1e6)[0]
        worker = job["worker"]
        stage.wait_until(
            "workers",
            lambda rows: any(r["worker"] == worker and r["silent_us"] < job["state_us"] - CROSSED * 1e6 for r in rows),
        )
        cleo.signal(signal.SIGSTOP)
        show.event("SIGSTOP: Cleo freezes")
        lost = stage.broker.logged("worker lost", since, worker=worker)
        show.event(f"broker: worker {worker} lost, {lost['why']}")
        reply = client.receive()
        show.event(f"client: {reply[1]!r}")
        show.check("a frozen worker's request goes to another", reply == (True, "scene 8, rendered by Dora"), reply[1])
        cleo.go()
        cleo.signal(signal.SIGCONT)
        show.event("SIGCONT: Cleo thaws and finishes")
        stale = stage.broker.logged("stale reply dropped", since, worker=worker)
        show.event(
            f"broker: stale reply of {stale['worker']} dropped, {stale['bytes']} bytes for attempt {stale['attempt']}"
        )
        client.send("mmi.service", "render")
        show.check(
            "the late reply reaches nobody",
            client.receive() == (True, "200"),
            "next on the client's line: another call's answer",
        )
