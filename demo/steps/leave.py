"""Graceful shutdown."""

import signal

from demo.peers.clients import MdpClient
from demo.peers.dialects import RFC18
from demo.stage import PATIENCE, Stage

TITLE = "Graceful shutdown"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """On SIGTERM the broker rejects new requests, lets running ones finish, disconnects its workers, and exits with status 0. Here
        a client is waiting for a reply when the signal arrives."""
    )
    with stage.worker("mdp1", "render", "render", "Jo", hold=3) as jo, MdpClient(stage.url, RFC18) as client:
        client.send("render", "scene 9")
        show.event(f"Jo is {jo.line()}")
        stage.broker.signal(signal.SIGTERM)
        stage.broker.logged("stopping")
        show.event("SIGTERM to the broker")
        jo.go()
        reply = client.receive()
        show.event(f"client: {reply[1]!r}")
        show.check("the running request finishes", reply == (True, "scene 9, rendered by Jo"), reply[1])
        status = stage.broker.popen.wait(PATIENCE)
        show.check("the broker exits with status 0", status == 0, f"status {status}")
    faults = [entry for entry in stage.broker.log if entry["level"] == "error"]
    last = str(faults[-1].get("exception", faults[-1]["message"])).splitlines()[-1] if faults else ""
    show.check("the broker logged no internal error", not faults, last)
    for process in stage.processes:
        process.end()
    show.check("no process is left", not stage.left_over(), f"{len(stage.processes)} were started")
