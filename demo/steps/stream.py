"""Partial replies."""

import time

import polydomo
from demo.peers.clients import MdpClient
from demo.peers.dialects import MDP1
from demo.stage import PATIENCE, Stage

TITLE = "Partial replies"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """A worker can send partial replies before the final one. A client of a protocol with partial replies gets each as it
        arrives. A client of another protocol (here MDP/0.1) gets them joined with the final reply."""
    )
    with (
        stage.worker("rfc18", "map", "tiles", "Eve", hold=4) as eve,
        polydomo.Client(stage.url, timeout=PATIENCE) as client,
    ):
        times: list[float] = []
        parts = []
        for part in client.stream("map", "Oslo"):
            if not times:
                eve.go()  # she keeps the last tile until the client has the first
            times.append(time.monotonic())
            parts.append(part.text)
            show.event(f"MDX client: {part.text!r}{' (final)' if part.final else ''}")
        complete = parts == [*(f"tile {n} of Oslo" for n in range(1, 5)), "map of Oslo complete"]
        ahead = times[-1] - times[0]
        show.check(
            "partial replies arrive as they are sent",
            complete,
            f"the first arrived {ahead:.1f} s before the last",
        )
        with MdpClient(stage.url, MDP1) as old:
            reply = old.call("map", "Rome")
        show.event(f"MDP/0.1 client: one reply of {len(reply)} characters")
        joined = "".join([*(f"tile {n} of Rome" for n in range(1, 5)), "map of Rome complete"])
        show.check("a protocol without partial replies gets them joined", reply == joined)
