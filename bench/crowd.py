"""Crowds: many peers, many queued requests, many topics and services, and all peers reconnecting after kill -9 of the broker.

    python -m bench.crowd                        all scenes, in full size
    python -m bench.crowd peers back --peers 5000
    python -m bench.crowd --out crowd.json

    peers      20,000 connected workers that send heartbeats, and 2,000 connects and disconnects per second beside them
    back       the broker is killed (SIGKILL) and started again; all workers reconnect at once
    queued     1,000,000 requests of 64 bytes wait, and are then served
    topics     100,000 topics with last values, and a late subscriber to all of them
    services   10,000 services, and the size of /metrics

The peers are plain sockets in processes of their own (``bench/crowd_peers.py``); the broker is ``polydomo up``, with several processes
if one may not open enough files. A healthy peer that loses its connection is a failure: the command then ends with status 1. CPU is that
of the broker, memory the growth of its resident set.
"""

import argparse
import asyncio
import contextlib
import json
import resource
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

from bench.crowd_broker import Broker, Crowd, Row, churn, running, until
from bench.crowd_peers import BEAT
from bench.crowd_scenes import queued, services, topics

FILES = 3_000  # open files of a process besides those of the peers


@contextlib.contextmanager
def broker_for(asked: argparse.Namespace) -> Iterator[Broker]:
    words = ["--processes", str(asked.processes)] if asked.processes > 1 else []
    words += ["--beats-missed", str(asked.beats_missed)]
    with running(*words) as broker:
        yield broker


async def peers(asked: argparse.Namespace) -> Row:
    with broker_for(asked) as broker:
        await asyncio.sleep(1.0)
        before, used, began = broker.memory, broker.cpu, time.monotonic()
        crowd = Crowd(broker, asked.peers, asked.generators)
        await crowd.complete()
        came, came_cpu = time.monotonic() - began, broker.cpu - used
        await asyncio.sleep(BEAT)
        per_peer = (broker.memory - before) / asked.peers
        used, began = broker.cpu, time.monotonic()
        await asyncio.sleep(asked.seconds / 2)
        idle = (broker.cpu - used) / (time.monotonic() - began)
        used, began = broker.cpu, time.monotonic()
        passers = await churn(broker, asked.churn, asked.seconds, asked.generators)
        took = time.monotonic() - began
        busy = broker.cpu - used
        known = await crowd.counted()
        passed = cast(int, passers["passed"])
        row = {
            "peers": asked.peers,
            "processes": asked.processes,
            "lost": crowd.lost,
            "known": known,
            "seconds_to_come": round(came, 1),
            "cpu_us_per_peer_that_comes": round(came_cpu * 1e6 / asked.peers, 1),
            "kib_per_peer": round(per_peer, 2),
            "cpu_percent_with_heartbeats": round(100 * idle, 1),
            **passers,
            "cpu_us_per_connect_and_disconnect": round((busy - idle * took) * 1e6 / max(1, passed), 1),
            "held": crowd.lost == 0 and known == asked.peers and passers["refused"] == 0,
        }
        await crowd.go()
        return row


async def back(asked: argparse.Namespace) -> Row:
    with broker_for(asked) as broker:
        crowd = Crowd(broker, asked.peers, asked.generators, asked.peers)
        await crowd.complete()
        broker.kill()
        await until(lambda: crowd.lost == asked.peers, lambda: "end of all connections")
        await asyncio.to_thread(broker.start)
        began, used = time.monotonic(), broker.cpu
        await crowd.complete()
        took, spent = time.monotonic() - began, broker.cpu - used
        await asyncio.sleep(asked.after)
        known = await crowd.counted()
        lost = crowd.lost - asked.peers
        row = {
            "peers": asked.peers,
            "processes": asked.processes,
            "seconds_until_all_are_back": round(took, 1),
            "broker_cpu_seconds": round(spent, 2),
            "lost_afterwards": lost,
            "known": known,
            "held": lost == 0 and known == asked.peers,
        }
        await crowd.go()
        return row


SCENES: dict[str, Callable[[argparse.Namespace], Awaitable[Row]]] = {
    "peers": peers,
    "back": back,
    "queued": queued,
    "topics": topics,
    "services": services,
}


def arguments(words: "list[str] | None" = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="*", metavar="SCENE", help=", ".join(SCENES))
    parser.add_argument("--peers", type=int, default=20_000)
    parser.add_argument(
        "--processes", type=int, default=0, help="of the broker; 0: as many as the limit of files needs"
    )
    parser.add_argument("--generators", type=int, default=2, help="processes that the peers are in")
    parser.add_argument("--churn", type=float, default=2_000.0, help="connects and disconnects per second")
    parser.add_argument("--seconds", type=float, default=10.0, help="of churn")
    parser.add_argument(
        "--after",
        type=float,
        default=10.0,
        help="seconds to watch those that came back: a broker allows 7.5 s of silence",
    )
    parser.add_argument("--beats-missed", type=int, default=3, help="that the broker allows")
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--topics", type=int, default=100_000)
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(words)
    wrong = [scene for scene in asked.scenes if scene not in SCENES]
    if wrong:
        parser.error(f"no scene {wrong[0]!r}; there are {', '.join(SCENES)}")
    return asked


def play(asked: argparse.Namespace) -> "dict[str, Row]":
    scenes = asked.scenes or list(SCENES)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if {"peers", "back"} & set(scenes):
        asked.processes = asked.processes or 1 + (asked.peers + FILES) // hard
        asked.generators = max(asked.generators, 1 + (asked.peers + FILES) // hard)
    rows: dict[str, Row] = {}
    factory = None
    with contextlib.suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    for scene in scenes:  # the limit stays raised until the end: all processes inherit it
        with asyncio.Runner(loop_factory=factory) as runner:

            async def one(scene: str = scene) -> Row:
                return await SCENES[scene](asked)

            rows[scene] = runner.run(one())
        print(scene, json.dumps(rows[scene]), flush=True)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return rows


def main() -> None:
    asked = arguments()
    rows = play(asked)
    if asked.out:
        asked.out.write_text(json.dumps(rows, indent=1))
    if not all(row["held"] for row in rows.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
