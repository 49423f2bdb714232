"""Access control: keys, rules, and a client that is rejected."""

import polydomo
from demo.stage import PATIENCE, Stage, polydomo_run
from polydomo.keys import write_pair

TITLE = "Access control"

RULES = """
[server]
curve = "server.key_secret"

[principals.alice]
curve = "alice.key"

[principals.bob]
curve = "bob.key"

[[allow]]
who = ["alice"]
call = true
offer = true

[[allow]]
who = ["bob"]
call = ["public.*"]
"""


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """A third broker has an access file: alice may do everything, bob may call public services, and nobody else has a key. Peers
        prove who they are with CURVE, TLS or tokens."""
    )
    place = stage.root / "access"
    place.mkdir(mode=0o700)
    for name in ("server", "alice", "bob", "eve"):
        write_pair(place, name)
    (place / "access.toml").write_text(RULES, encoding="utf-8")
    (place / "access.toml").chmod(0o600)
    _, url = stage.up(place / "data", "tcp://127.0.0.1:0", "--journal", "off", "--access", str(place / "access.toml"))

    def client(name: str) -> polydomo.Client:
        key = str(place / f"{name}.key_secret")
        return polydomo.Client(url, key=key, server_key=str(place / "server.key"), timeout=PATIENCE)

    worker = polydomo.Worker(
        url, key=str(place / "alice.key_secret"), server_key=str(place / "server.key"), concurrency=2
    )
    for name in ("public.time", "payroll"):
        worker.add(name, lambda call: f"{call.service} for {call.text}")
    with worker, client("alice") as alice, client("bob") as bob, client("eve") as eve:
        reply = alice.call("payroll", "alice").text
        show.check("alice may call everything", reply == "payroll for alice", reply)
        reply = bob.call("public.time", "bob").text
        show.check("bob may call a public service", reply == "public.time for bob", reply)
        said = refused(bob, "payroll")
        show.check("bob may not call another one", "denied" in said, said)
        said = refused(eve, "public.time")
        show.check("a client without a known key is rejected", bool(said), said)
    words = ["access", "check", "--access", str(place / "access.toml"), "bob", "call", "payroll"]
    answer = polydomo_run(*words)
    show.output("polydomo access check bob call payroll", answer.stdout + answer.stderr)


def refused(client: polydomo.Client, service: str) -> str:
    """Why the call was rejected; empty if it was not."""
    try:
        client.call(service, "x")
    except polydomo.PolydomoError as error:
        return str(error)
    return ""
