"""A journal over the scripted broker of ``tests/broker/rig.py``, and typical sequences of events."""

import random
from typing import Any

from polydomo.broker.policy import Policy
from polydomo.journal.levels import Levels
from polydomo.journal.recording.chunk import Run
from polydomo.journal.recording.recorder import JournalRecorder
from polydomo.journal.schema import MESSAGES
from polydomo.model.name_patterns import PatternMap
from tests.broker.rig import Peer, World

Row = dict[str, Any]
RUN = Run("stage", 0x1234567890, 1_700_000_000.25 - 1000.0)


def journalled(
    levels: Levels | None = None,
    run: Run = RUN,
    bodies: PatternMap[bool] | None = None,
    policy: Policy | None = None,
    **options: Any,
) -> tuple[World, JournalRecorder]:
    world = World(policy)
    recorder = JournalRecorder(run, levels or Levels(MESSAGES), bodies=bodies, **options)
    recorder.attach(world.broker)
    world.broker.record_to(recorder)
    recorder.begin("the first run")
    return world, recorder


def live(world: World, seed: int, steps: int = 400) -> None:
    """A broker's life with all that can happen in it: chains, losses, late replies, cancelled and refused requests."""
    dice = random.Random(seed)
    clients = [world.client(takes_partials=bool(i % 2)) for i in range(3)]
    clients[0].has_client_ids = True
    workers: list[Peer] = []
    services = [b"echo", b"resize", b"name\xff"]
    for _ in range(steps):
        deed = dice.random()
        busy = [worker for worker in workers if worker.jobs and not worker.disconnected and worker.me.alive]
        if deed < 0.35:
            options: dict[str, float] = {}
            if dice.random() < 0.2:
                options = {dice.choice(["deadline", "wait", "run"]): dice.uniform(0.1, 5.0)}
            if dice.random() < 0.1:
                options["attempts"] = 2
            dice.choice(clients).ask(dice.randbytes(dice.randrange(1, 200)), dice.choice(services), **options)
        elif deed < 0.65 and busy:
            dice.choice(busy).answer(b"done", dice.randbytes(dice.randrange(60)))
        elif deed < 0.70 and busy:
            dice.choice(busy).part(b"part")
        elif deed < 0.73 and busy:
            dice.choice(busy).fail()
        elif deed < 0.76 and busy:
            dice.choice(busy).forward(dice.choice(services))
        elif deed < 0.83:
            slots = dice.random() < 0.3
            peer = world.worker(
                *dice.sample(services, dice.randrange(1, 3)), credit=2 if slots else 1, auto_credit=not slots
            )
            workers.append(peer)
        elif deed < 0.85 and busy:
            world.broker.add_credit(dice.choice(busy).me)
        elif deed < 0.88 and workers:
            peer = workers.pop(dice.randrange(len(workers)))
            peer.close() if dice.random() < 0.5 and not peer.disconnected else peer.leave()
        elif deed < 0.90 and busy:
            worker = dice.choice(busy)
            token = worker.jobs[0].token
            other = [peer for peer in workers if peer is not worker and not peer.disconnected and peer.me.alive]
            if other:
                world.broker.final(other[0].me, token, b"\x00\x00")  # it does not hold that
        elif deed < 0.92:
            i = dice.randrange(len(clients))
            clients[i].close()
            clients[i] = world.client(takes_partials=bool(i % 2))
        elif deed < 0.93:
            world.broker.report_violation(dice.choice(clients), "nonsense")
        else:
            world.wait(dice.uniform(0.0, 3.0))
            for worker in workers:
                if not worker.disconnected and worker.me.alive and dice.random() < 0.8:
                    worker.say_beat()
    world.broker.drain()
    world.broker.shutdown()
