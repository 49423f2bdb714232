"""The entry point of the program ``polydomo``: Ctrl-C while the program is still being loaded prints no traceback."""

import sys

INTERRUPTED = 130  # 128 + SIGINT, as shells report it


def main() -> None:
    try:
        from polydomo.cli.main import app

        app(prog_name="polydomo")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
