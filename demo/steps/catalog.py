"""DBP: the catalog."""

import contextlib
import json

from demo.peers.clients import CatalogPeer
from demo.stage import Stage

TITLE = "The catalog of services"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """DBP carries no requests. Services register in a catalog, and clients look up their addresses. A camera registers itself, two
        workers of other protocols are connected, and a DBP client sees all three."""
    )
    with contextlib.ExitStack() as stack:
        stack.enter_context(stage.worker("mdp1", "render", "render", "Ada"))
        stack.enter_context(stage.worker("memo", "greet", "greet", "Hal"))
        camera, client = CatalogPeer(stage.url), CatalogPeer(stage.url)
        stack.callback(camera.close)
        stack.callback(client.close)
        info = {"name": "camera", "ip": "127.0.0.1", "port": 4000, "function": "pictures of the lab"}
        answer, _ = camera.ask(b"UwU", json.dumps(info).encode())
        show.check("a service registers itself", answer == b"OwO", "approved")
        answer, services = client.ask(b"u_U")
        rows = []
        for name, known in sorted(services.items()):
            rows.append(
                [
                    name,
                    str(known.get("protocol", "dbp")),
                    str(known.get("function", f"workers: {known.get('workers', 0)}")),
                ]
            )
        show.table(["service", "protocol", "description"], rows)
        found = {"camera", "render", "greet"} <= services.keys()
        show.check(
            "the catalog lists services of every protocol", answer == b"o_O" and found, f"{len(services)} services"
        )
