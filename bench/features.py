"""What features that are switched on but not used cost an ordinary request: access control and the job store.

    python -m bench.features                          inside the broker, without sockets
    python -m bench.features --base OTHER/CHECKOUT    whole brokers over sockets, beside another version

The first form runs brokers with and without each feature by turns in one process, and the best round of each counts: a ratio that a
busy machine hardly disturbs. Peers use NULL, and with access control they are the principal "anonymous", which may do
everything. The second form compares the CPU time of real brokers, as ``compare.py`` does; on a busy machine, run it with
``chrt --fifo 1`` (as root), which gives it priority over all other programs.
"""

import argparse
import gc
import shlex
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC
from pathlib import Path

from bench import compare
from bench.fast_path import PROTOCOLS, Bench
from polydomo.broker.broker import Broker
from polydomo.broker.guard.rules import AccessRule, AccessRules
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.jobs.ops import Loaded, Store
from polydomo.broker.jobs.policy import JobPolicy
from polydomo.model.name_patterns import chosen

PRINCIPAL = "anonymous"
ACCESS = '[server]\nanonymous = true\n[[allow]]\nwho = ["anonymous"]\ncall = ["*"]\noffer = ["*"]\n'


def with_access(broker: Broker) -> None:
    rights = {"call": ("*",), "offer": ("*",)}
    broker.access.replace(AccessRules([PRINCIPAL], [AccessRule(1, {PRINCIPAL}, rights)], {}, {}))


def with_jobs(broker: Broker) -> None:
    durable = Durable(broker, broker, Store(), JobPolicy(), chosen([]), lambda name: UTC)
    broker.use_jobs(durable)
    durable.lead(1, Loaded())


def with_both(broker: Broker) -> None:
    with_access(broker)
    with_jobs(broker)


FEATURES: "list[tuple[str, Callable[[Broker], None] | None, str]]" = [
    ("neither", None, ""),
    ("access file", with_access, PRINCIPAL),
    ("job store", with_jobs, ""),
    ("both", with_both, PRINCIPAL),
]


def inside(asked: argparse.Namespace) -> None:
    print(f"journal {asked.journal}; us per request inside the broker, best of {asked.rounds} rounds")
    print(f"{'protocol':<10}{'feature':<14}{'us':>8}{'ratio':>8}")
    for protocol in PROTOCOLS:
        load = (32, 8, 64)
        benches = [
            Bench(protocol, 64, True, asked.journal, 1, load, prepare, principal) for _, prepare, principal in FEATURES
        ]
        gc.collect()
        gc.freeze()
        best = [float("inf")] * len(benches)
        for _ in range(asked.rounds):
            for which, bench in enumerate(benches):
                best[which] = min(best[which], bench.run(asked.requests or 2000))
        for (name, _, _), found in zip(FEATURES, best, strict=True):
            print(f"{protocol:<10}{name:<14}{found:>8.2f}{found / best[0]:>8.3f}", flush=True)


def beside(asked: argparse.Namespace) -> None:
    python = shlex.quote(sys.executable)
    up = f"{python} -m polydomo up --listen tcp://127.0.0.1:{{port}} --data {{data}} --log-level error"
    with tempfile.TemporaryDirectory() as directory:
        access = Path(directory) / "access.toml"
        access.write_text(ACCESS)
        source = shlex.quote(str(Path(asked.base).resolve() / "src"))
        cases = [
            ("base", f"env PYTHONPATH={source} {up}"),
            ("this version", up),
            ("--store off", f"{up} --store off"),
            ("--access", f"{up} --access {shlex.quote(str(access))}"),
        ]
        found: dict[str, list[float]] = {name: [] for name, _ in cases}
        for _ in range(asked.rounds):
            for name, command in cases:
                found[name].append(compare.measure(command, "mdp1", (32, 8, 64, 64), asked.requests or 40_000)[0])
        print(f"MDP/0.1, 32 workers, 8 clients, 64 outstanding; us of CPU per request, lowest of {asked.rounds}")
        first = min(found["base"])
        for name, _ in cases:
            cost = min(found[name])
            print(f"{name:<14}{cost:>8.2f}{cost / first:>8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="a checkout of another version, to compare whole brokers with")
    parser.add_argument("--requests", type=int, default=0, help="in each round")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--journal", default="requests", choices=["off", "requests", "messages"])
    asked = parser.parse_args()
    if asked.base:
        beside(asked)
    else:
        inside(asked)


if __name__ == "__main__":
    main()
