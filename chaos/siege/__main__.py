"""``python -m chaos.siege``: runs the attacks and prints the effect of each on an honest client and on the broker's memory."""

import argparse
import sys

from chaos.siege.every import ATTACKS
from chaos.siege.stand import ALLOWANCE, MAX_MEMORY, MIB, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos.siege", description=__doc__)
    parser.add_argument("names", nargs="*", help="attacks to run (all)", metavar="NAME")
    parser.add_argument("--full", action="store_true", help="run the full forms instead of the small ones")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/reliability.md")
    parser.add_argument("--access", action="store_true", help="with access control; HTTP attacks run inside TLS")
    parser.add_argument("--code", default="src", help="directory of the package, such as build/compiled (src)")
    parser.add_argument("--list", action="store_true", help="print the names of the attacks")
    options = parser.parse_args()
    if options.list:
        print("\n".join(ATTACKS))
        return 0
    bound = (MAX_MEMORY + ALLOWANCE) // MIB
    if options.markdown:
        print("| attack | stall | allowed | memory | |\n|---|---|---|---|---|")
    else:
        print(f"limits.max_memory is {MAX_MEMORY // MIB} MiB; resident memory may reach {bound} MiB")
        print(f"{'attack':24}{'stall':>10}{'allowed':>10}{'wall':>10}{'memory':>10}  ")
    failed = 0
    for name in options.names or ATTACKS:
        attack = ATTACKS[name]
        outcome, breaches = run(attack, options.full, options.access, options.code)
        failed += bool(breaches)
        if options.markdown:
            verdict = "holds" if not breaches else "; ".join(breaches)
            row = [attack.what, f"{outcome.longest * 1000:.0f} ms", f"{attack.stall * 1000:.0f} ms"]
            print("| " + " | ".join([*row, f"{outcome.memory // MIB} MiB", verdict]) + " |", flush=True)
        else:
            times = [f"{seconds * 1000:.0f} ms" for seconds in (outcome.longest, attack.stall, outcome.longest_wall)]
            columns = "".join(f"{column:>10}" for column in [*times, f"{outcome.memory // MIB} MiB"])
            print(f"{name:24}{columns}  {'; '.join(breaches) or 'holds'}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
