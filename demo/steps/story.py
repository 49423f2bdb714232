"""Every request of the demo so far has its story."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from demo.stage import PATIENCE, ROOT, Stage

TITLE = "What became of each request"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """The broker keeps a journal. `polydomo requests` with a span of time lists what ended, and `polydomo trace` tells
        the story of one request: here, of the one whose worker was killed."""
    )
    rows = finished(stage)
    again = [row for row in rows if row["dispatches"] > 1 and row["service"] == "render" and row["outcome"] == "ok"]
    killed = again[0]["request"]
    stage.command("trace", killed)
    stories = told(stage)
    lost = [step for step in stories[killed] if step["event"] == "requeued" and "lost" in step["text"]]
    show.check("the killed worker is in the story", bool(lost), lost[0]["text"] if lost else "")
    ends = ("final", "failed", "unheard")
    whole = [name for name, steps in stories.items() if steps[0]["event"] == "accepted" and steps[-1]["event"] in ends]
    show.check(
        "every request has its story, from acceptance to its outcome",
        len(whole) == len(rows) > 0,
        f"{len(whole)} of {len(rows)}",
    )


def finished(stage: Stage) -> list[dict[str, Any]]:
    """Every request that ended, from the journal."""
    words = ["-m", "polydomo", "requests", "--since", "1h", "--most", "1000000", "--json", "--to", stage.url]
    out = subprocess.run([sys.executable, *words], capture_output=True, timeout=PATIENCE, cwd=ROOT, check=True)
    rows: list[dict[str, Any]] = json.loads(out.stdout)
    return rows


def told(stage: Stage) -> dict[str, list[dict[str, str]]]:
    """The story of each of them, by its id."""
    from polydomo.journal import ids
    from polydomo.journal.reader import Reader
    from polydomo.journal.story import story_of

    reader = Reader([Path(stage.ask("journal")["directory"])])
    found = {}
    for row in finished(stage):
        known = ids.parse(row["request"])
        story = story_of(reader, known.run, known.number)
        if story is not None and story.steps:
            found[row["request"]] = [{"event": step.what, "text": step.text} for step in story.steps]
    return found
