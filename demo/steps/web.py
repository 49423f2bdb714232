"""HTTP on the same port."""

import json
import urllib.request

from demo.stage import PATIENCE, Stage

TITLE = "HTTP on the same port"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """Every service is also an HTTP endpoint, whatever the protocol of its worker. Here the worker uses MDP/0.1, and the client
        could be curl or a browser. The dashboard is at the same address."""
    )
    page = stage.url.replace("tcp://", "http://")
    with stage.worker("mdp1", "greet", "greet", "Kim"):
        show.line(f"   $ curl -d curl {page}/v1/call/greet", "bold")
        reply = fetch(f"{page}/v1/call/greet", b"curl")
        show.line(f"   {reply}", "dim")
        show.check("an HTTP client reaches an MDP worker", reply == "Kim greets curl", reply)
        names = [row["name"] for row in json.loads(fetch(f"{page}/v1/services"))]
        show.check("services are listed over HTTP", "greet" in names, f"{page}/v1/services")
        show.check("the dashboard is served", "<html" in fetch(f"{page}/").lower(), f"{page}/")


def fetch(address: str, body: bytes | None = None) -> str:
    with urllib.request.urlopen(address, body, timeout=PATIENCE) as answer:
        return str(answer.read().decode())
