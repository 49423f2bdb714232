"""``polydomo`` with other numbers of ``limits.py``: ``python tests/with_limits.py HANDSHAKE_TIME=60 ... up ...``.

For tests that need a broker in a process of its own, and a number that is not a setting.
"""

import sys

from polydomo import limits


def main() -> None:
    del sys.path[0]  # this directory
    while len(sys.argv) > 1 and "=" in sys.argv[1] and not sys.argv[1].startswith("-"):
        name, _, value = sys.argv.pop(1).partition("=")
        setattr(limits, name, type(getattr(limits, name))(value))
    from polydomo.cli.start import main as polydomo

    polydomo()


if __name__ == "__main__":
    main()
