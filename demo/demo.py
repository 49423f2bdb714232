"""``make demo``: one broker, clients and workers of every protocol, and the outcomes of their requests.

Exits with status 0 if every check holds.
"""

import signal
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # "python demo/demo.py" puts demo/ there


def main() -> int:
    from demo.show import Show
    from demo.stage import Stage
    from demo.steps import STEPS

    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # so that all processes are stopped
    show = Show()
    show.title("polydomo: one broker for the whole Majordomo family")
    show.say(
        f"""You will see {len(STEPS)} short steps, in about a minute: one broker on one port, clients and workers of every protocol,
        workers that are killed, durable jobs, a flow, HTTP, access control, and an audit of all of it on Spark."""
    )
    stage = Stage(show)
    try:
        for title, run in STEPS:
            show.begin(title)
            try:
                run(stage)
            except Exception as error:
                show.check("the step runs to its end", False, f"{type(error).__name__}: {error}")
                if not stage.url:
                    break  # without a broker there is nothing to show
    finally:
        stage.close()
    return 0 if show.summary() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
