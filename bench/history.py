"""``python -m bench.history``: memory and CPU of the history with 1,000 services that are busy all day.

A broker without sockets is given latencies as a log-normal distribution, as its tallies would have them, and its clock is advanced. CPU is
that of the samples alone, with the counts that the broker keeps anyway left out.
"""

import argparse
import gc
import json
import math
import random
import resource
import time
from pathlib import Path

from polydomo import native
from polydomo.broker.broker import Broker
from polydomo.broker.entropy import Entropy
from polydomo.broker.observe.histogram import Tally, bucket
from polydomo.broker.observe.history import query, saved
from polydomo.broker.policy import Policy
from polydomo.limits import HISTORY_STEP


class NoEntropy(Entropy):
    def take(self, size: int) -> bytes:
        return bytes(size)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--services", type=int, default=1000)
    parser.add_argument("--requests", type=int, default=100, help="of each service in each sample")
    parser.add_argument("--hours", type=float, default=2.0)
    wanted = parser.parse_args()
    generator = random.Random(1)
    windows = []  # some samples, used again and again
    for _ in range(50):
        counts: dict[int, int] = {}
        for _ in range(wanted.requests):
            number = bucket(0.005 * math.exp(generator.gauss(0, 0.7)))
            counts[number] = counts.get(number, 0) + 1
        windows.append(counts)
    broker = Broker(0.0, NoEntropy(), Policy(max_memory=0), wall=1.7e9)
    tallies: list[Tally] = []
    for number in range(wanted.services):
        tally = broker.tallies.table[b"service-%d" % number, "mdx"] = Tally()
        tallies.append(tally)
    for tally in tallies:
        tally.window = dict(generator.choice(windows))
    gc.collect()
    before = resident()
    taking: list[float] = []
    encoding: list[float] = []
    for _ in range(round(wanted.hours * 3600 / HISTORY_STEP)):
        for tally in tallies:
            tally.counts = {}
            tally.window = dict(generator.choice(windows))
        broker.now += HISTORY_STEP
        since = time.process_time()
        broker.history.tick()
        taken = time.process_time()
        broker.history.finish()
        taking.append(taken - since)
        encoding.append(time.process_time() - taken)
    history = broker.history
    gc.collect()
    grown = resident() - before
    series = next(iter(history.series.values()))
    asked: list[float] = []
    for body in (b"", b'{"service": "service-1"}', b'{"service": "service-1", "from": "-24h"}'):
        since = time.process_time()
        for _ in range(5):
            query.answer(broker, history, body)
        asked.append((time.process_time() - since) / 5)
    since = time.process_time()
    content = saved.dump(history)
    figures = {
        "core": native.core(),
        "services": wanted.services,
        "fine_bytes": len(series.fine.data),
        "coarse_bytes": len(series.coarse.data),
        "bytes_per_service": history.bytes // (wanted.services + 1),
        "bytes_of_24_hours": len(series.fine.data)
        + 288 * len(series.coarse.data) // max(1, len(series.coarse.steps())),
        "booked_bytes": history.memory(),
        "grown_bytes": grown,
        "take_ms": round(1000 * sum(taking) / len(taking), 2),
        "encode_ms": round(1000 * sum(encoding) / len(encoding), 2),
        "cpu_percent": round(100 * (sum(taking) + sum(encoding)) / len(taking) / HISTORY_STEP, 3),
        "answer_ms": [round(1000 * seconds, 2) for seconds in asked],
        "saved_bytes": len(content),
        "save_ms": round(1000 * (time.process_time() - since)),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
