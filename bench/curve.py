"""What encryption costs the broker: CPU per request with CURVE and with TLS on both sides, beside a libzmq loop in C with CURVE.

    python bench/curve.py                          needs a C compiler and libzmq's headers
    python bench/curve.py --load 32x8x64x4096      WORKERSxCLIENTSxOUTSTANDINGxBYTES

All in one run, in alternating rounds; the figure is CPU time, as in ``compare.py``. The ratios are to the C loop with CURVE.
"""

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import compare
from polydomo.keys import write_pair
from polydomo.wire.security.keys import encode_z85, parse_certificate
from tests.certificates import Authority

HERE = Path(__file__).resolve().parent

ACCESS = """
[server]
curve = "server.key_secret"
tls = { cert = "server.pem", key = "server.pem", ca = "ca.pem" }
[principals.client]
curve = "client.key"
certificate = "CN=client"
[[allow]]
who = ["client"]
call = true
offer = true
"""


def build(directory: Path) -> Path:
    program = directory / "libzmq_loop"
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("bench/curve.py needs a C compiler and libzmq's headers (libzmq3-dev)")
    subprocess.run([compiler, "-O2", "-o", str(program), str(HERE / "libzmq_loop.c"), "-lzmq"], check=True)
    return program


def prepare(directory: Path) -> str:
    """Keys, certificates and the access file; returns the server's secret key."""
    for name in ("server", "client"):
        write_pair(directory, name)
    authority = Authority(directory)
    authority.certificate("server", "DNS:localhost", "IP:127.0.0.1")
    authority.certificate("client")
    (directory / "access.toml").write_text(ACCESS)
    return encode_z85(parse_certificate((directory / "server.key_secret").read_text(), "server").secret)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", nargs="*", default=["32x8x64x64", "32x8x64x4096"])
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        secret = prepare(directory)
        os.environ["BENCH_KEYS"] = name
        loop = shlex.quote(str(build(directory)))
        secured = f"{compare.OURS} --access {directory / 'access.toml'}"
        cases = [
            (
                "libzmq in C",
                f"{loop} tcp://127.0.0.1:{{port}} {shlex.quote(secret).replace('{', '{{').replace('}', '}}')}",
                "mdp1+curve",
            ),
            ("polydomo", secured, "mdp1+curve"),
            ("polydomo", secured, "mdp1+tls"),
            ("libzmq in C", f"{loop} tcp://127.0.0.1:{{port}}", "mdp1"),
            ("polydomo", compare.OURS, "mdp1"),
        ]
        print(f"{'load':<15}{'broker':<14}{'protocol':<12}{'us/request':>11}{'requests/s':>12}{'ratio':>8}")
        for text in asked.load:
            load = tuple(map(int, text.split("x")))
            figures: dict[int, list[tuple[float, float]]] = {i: [] for i in range(len(cases))}
            for _ in range(asked.rounds):
                for i, (_, command, protocol) in enumerate(cases):
                    figures[i].append(compare.measure(command, protocol, load, asked.requests))
            first = statistics.median(cost for cost, _ in figures[0])
            for i, (broker, _, protocol) in enumerate(cases):
                cost = statistics.median(c for c, _ in figures[i])
                rate = statistics.median(r for _, r in figures[i])
                print(
                    f"{text:<15}{broker:<14}{protocol:<12}{cost:>11.1f}{rate:>12,.0f}{cost / first:>8.2f}", flush=True
                )


if __name__ == "__main__":
    main()
