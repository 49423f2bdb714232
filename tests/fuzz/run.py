"""`make fuzz`: every target for its share of the time, with atheris where it is installed and with a mutator of our own everywhere.

What breaks a target is written to ``fuzz-found/`` and named; a copy of it belongs in the corpus once it is mended.
"""

import argparse
import hashlib
import importlib.util
import random
import subprocess
import sys
import time
import traceback
from pathlib import Path

from tests.fuzz import fast_paths, jobs, security, web
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path("fuzz-found")
KEEP = 400  # inputs that the mutator goes on from

assert fast_paths.fast_path.__name__ in TARGETS  # its targets are there by being imported
assert security.curve_server.__name__ in TARGETS
assert web.mcp_message.__name__ in TARGETS
assert jobs.job_requests.__name__ in TARGETS


def mutate(rng: random.Random, data: bytes, other: bytes) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randint(0, len(data))
        kind = rng.randrange(6)
        if kind == 0:
            data = data[:at] + rng.randbytes(rng.randint(1, 4)) + data[at:]
        elif kind == 1:
            data = data[:at] + data[at + rng.randint(1, 8) :]
        elif kind == 2 and data:
            at = min(at, len(data) - 1)
            data = data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]
        elif kind == 3:
            data = data[:at] + other[rng.randint(0, len(other)) :]
        elif kind == 4:
            data = data[:at] + data[max(0, at - rng.randint(1, 40)) :]
        else:
            data = (
                data[:at] + rng.choice((b"\x00", b"\x01\x00", b"\xff" * 8, b"\x02" + bytes(8), b"\x04\x05")) + data[at:]
            )
    return data[:4096]


def own(name: str, seconds: float, seed: int) -> int:
    """Our own mutator: how many inputs it tried. Raises what the target raised."""
    rng = random.Random(seed)
    known = [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))] or [b""]
    end = time.monotonic() + seconds
    tried = 0
    while time.monotonic() < end:
        data = mutate(rng, rng.choice(known), rng.choice(known))
        tried += 1
        try:
            TARGETS[name](data)
        except Exception:
            report(name, data)
            raise
        if rng.random() < 0.02 and len(known) < KEEP:
            known.append(data)
    return tried


def report(name: str, data: bytes) -> None:
    FOUND.mkdir(exist_ok=True)
    path = FOUND / f"{name}-{hashlib.sha1(data).hexdigest()[:12]}"
    path.write_bytes(data)
    print(f"{name} broke on {path} ({len(data)} bytes): {data[:64]!r}")


def with_atheris(name: str, seconds: float) -> int:
    """In a process of its own, since libFuzzer ends the process it runs in. Returns its exit code."""
    command = [sys.executable, "-m", "tests.fuzz.covered", name]
    # LibFuzzer writes what is new into the first folder, which must not be the repository's.
    scratch = FOUND / "corpus" / name
    scratch.mkdir(parents=True, exist_ok=True)
    limits = [f"-max_total_time={max(1, int(seconds))}", "-max_len=4096", "-print_final_stats=0", "-verbosity=0"]
    places = [f"-artifact_prefix={FOUND}/{name}-", str(scratch), str(CORPUS / name)]
    # It takes its time to begin with: everything that is imported is instrumented.
    done = subprocess.run([*command, *limits, *places], timeout=seconds * 4 + 600, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(description="Feeds every decoder with nonsense.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--only", action="append", choices=list(TARGETS))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    given = parser.parse_args()
    names = given.only or list(TARGETS)
    atheris = importlib.util.find_spec("atheris") is not None
    each = given.minutes * 60 / len(names) / (2 if atheris else 1)
    print(
        f"==> {len(names)} targets, {each:.0f} s each, seed {given.seed}{', and as long with atheris' if atheris else ''}"
    )
    broken = []
    for name in names:
        try:
            tried = own(name, each, given.seed)
            print(f"{name}: {tried:,} inputs held")
        except Exception:
            traceback.print_exc()
            broken.append(name)
        if atheris and with_atheris(name, each):
            broken.append(f"{name} (atheris)")
    print(f"broken: {', '.join(broken)}" if broken else "every target held")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
