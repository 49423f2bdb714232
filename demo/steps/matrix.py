"""Every client calls every worker."""

import contextlib

from demo.peers.clients import Client, LibraryClient, MdpClient, NngClient
from demo.peers.dialects import LIBMDP, MAJORTOMO, MDP1, RFC18, RFC18_REQ, ZMQ_MDP2
from demo.stage import Stage

TITLE = "Every client calls every worker"

# What speaks it, and the heading of its column.
WORKERS = [
    ("mdx", "MDX"),
    ("mdp1", "MDP/0.1"),
    ("rfc18", "MDP/0.2"),
    ("majortomo", "majortomo"),
    ("libmdp", "libmdp"),
    ("zmq-mdp2", "zmq-mdp2"),
    ("dcp", "DCP"),
    ("memo", "memo01"),
    ("emqp", "eMQP"),
]


def clients(url: str) -> list[Client]:
    return [
        LibraryClient(url, "mdx", "MDX"),
        MdpClient(url, MDP1),
        MdpClient(url, RFC18),
        MdpClient(url, RFC18_REQ),
        MdpClient(url, MAJORTOMO),
        MdpClient(url, LIBMDP),
        MdpClient(url, ZMQ_MDP2),
        LibraryClient(url, "dcp", "DCP"),
        LibraryClient(url, "memo", "memo01"),
        NngClient(url),
        LibraryClient(url, "emqp", "eMQP"),
    ]


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        f"""{len(WORKERS)} workers start, each in its own process and each with a different protocol or dialect: six protocols, one of
        them (MDP/0.2) in the four dialects of published libraries. Then a client of each protocol calls every worker. The MDP
        peers are plain pyzmq programs, and one client is a plain NNG program: they do not use polydomo's library."""
    )
    with contextlib.ExitStack() as stack:
        for protocol, _ in WORKERS:
            process = stage.start_worker(protocol, f"greet.{protocol}", "greet", protocol)
            stack.callback(process.end)
        names = {f"greet.{protocol}" for protocol, _ in WORKERS}
        stage.wait_until("services", lambda rows: names <= {row["name"] for row in rows if row["workers"]})
        show.event(f"{len(WORKERS)} workers have registered")
        rows = []
        answered = called = 0
        for client in clients(stage.url):
            stack.callback(client.close)
            marks = []
            for protocol, _ in WORKERS:
                called += 1
                try:
                    reply = client.call(f"greet.{protocol}", client.label)
                    right = reply == f"{protocol} greets {client.label}"
                except Exception as error:
                    show.event(f"{client.label} to {protocol}: {type(error).__name__}: {error}")
                    right = False
                answered += right
                marks.append(show.tick if right else show.cross)
            rows.append([client.label, *marks])
        show.table(["client \\ worker", *(heading for _, heading in WORKERS)], rows)
        show.check(
            "a client of any protocol reaches a worker of any other",
            answered == called,
            f"{answered} of {called} calls",
        )
        stage.command("workers")
