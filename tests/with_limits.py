"""``polydomo`` with other numbers of ``limits.py``: ``python tests/with_limits.py HANDSHAKE_TIME=60 ... up ...``.

For tests that need a broker in a process of its own, and a number that is not a setting. A number of another module is named like
``cli.inspect.watch.WATCH_TIME``; give it after those of ``limits.py``, since loading its module copies them.
"""

import sys
from importlib import import_module

from polydomo import limits


def main() -> None:
    del sys.path[0]  # this directory
    while len(sys.argv) > 1 and "=" in sys.argv[1] and not sys.argv[1].startswith("-"):
        name, _, value = sys.argv.pop(1).partition("=")
        module, _, name = name.rpartition(".")
        place = import_module(f"polydomo.{module}") if module else limits
        setattr(place, name, type(getattr(place, name))(value))
    from polydomo.cli.start import main as polydomo

    polydomo()


if __name__ == "__main__":
    main()
