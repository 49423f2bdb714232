"""What limits of a service cost inside the broker, without sockets: CPU per request with many groups, beside none.

    python -m bench.limits [--groups 100000] [--requests 20000] [--rounds 5]
    PYTHONPATH=build/compiled python -m bench.limits      the compiled core (make compiled)

All forms run in turn in one process, and the best round of each counts: a ratio that a busy machine hardly disturbs. Clients speak MDX, and
name a group with each request (all but the first form). Every group has a start in its window, so the broker knows all groups.
"""

import argparse
import gc

from bench.fast_path import SERVICE, Bench
from polydomo import native
from polydomo.broker.broker import Broker
from polydomo.model.request_options import options_of
from polydomo.model.service_limits import GROUP, ServiceLimits
from polydomo.protocols.ends import ClientEnd
from polydomo.wire.zmtp.extensions import Extensions

AGREED = Extensions(options=True)
FORMS: "dict[str, tuple[bool, ServiceLimits | None]]" = {
    "no group, no limits": (False, None),
    "groups, no limits": (True, None),
    "groups, running = 5": (True, ServiceLimits(5, 0, 0.0, GROUP)),
    'groups, rate = "90/1h"': (True, ServiceLimits(0, 90, 3600.0, GROUP)),
    "groups, both": (True, ServiceLimits(5, 90, 3600.0, GROUP)),
}


class GroupBench(Bench):
    groups = 1
    named = False

    def ask(self, end: ClientEnd, count: int) -> None:
        if not self.named:
            super().ask(end, count)
            return
        end.agreed = AGREED
        for link in self.clients:
            link.extensions = AGREED
        for _ in range(count):
            self.key += 1
            group = b"customer-%d" % (self.key % self.groups)
            end.request(self.key, SERVICE, [self.body], options=options_of(False, b"", group))


def bench_of(form: str, groups: int, credit: int) -> GroupBench:
    named, limits = FORMS[form]

    def prepare(broker: Broker) -> None:
        if limits is not None:
            broker.limiter.set(SERVICE.decode(), limits)

    made = type("Form", (GroupBench,), {"groups": groups, "named": named})
    found: GroupBench = made("mdx", 64, True, "requests", credit, (32, 8, 64), prepare)
    return found


def open_windows(bench: GroupBench, groups: int) -> None:
    """As if each group had started a request just now."""
    for queue in bench.broker.limiter.queues.values():
        if queue.limits.starts:
            for number in range(groups):
                lane = queue.lane_of(b"customer-%d" % number)
                queue.note_start(lane, bench.broker.now)
                queue.settle(lane)


def main() -> None:
    parser = argparse.ArgumentParser(description="CPU per request with limits per group, beside none.")
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=20_000, help="in each round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--credit", type=int, default=1, help="requests that a worker may hold")
    asked = parser.parse_args()
    benches = {form: bench_of(form, asked.groups, asked.credit) for form in FORMS}
    for bench in benches.values():
        open_windows(bench, asked.groups)
    gc.collect()
    gc.freeze()
    best = dict.fromkeys(FORMS, float("inf"))
    for _ in range(asked.rounds):
        for form, bench in benches.items():
            best[form] = min(best[form], bench.run(asked.requests))
    print(f"{native.form()}; {asked.groups:,} groups; us per request, best of {asked.rounds}")
    for form, took in best.items():
        limits = benches[form].broker.limiter
        lanes = sum(len(queue.lanes) for queue in limits.queues.values())
        print(
            f"{form:<26}{took:>8.2f}{took / best['groups, no limits']:>8.2f}{lanes:>10,} lanes, {limits.memory():,} bytes"
        )


if __name__ == "__main__":
    main()
