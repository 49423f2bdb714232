"""The journal has every step of the requests of the demo."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from demo.stage import PATIENCE, ROOT, Stage

TITLE = "Trace a request"

SAMPLE = 40  # requests whose traces are checked: each reads the journal


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """The broker records every request in a journal. `polydomo requests --since 1h` lists finished requests, and `polydomo trace`
        shows every step of one: here, of the request whose worker was killed."""
    )
    rows = finished(stage)
    again = [row for row in rows if row["dispatches"] > 1 and row["service"] == "render" and row["outcome"] == "ok"]
    killed = again[0]["request"]
    stage.command("trace", killed)
    sample = [row for row in rows if row["request"] == killed or row["outcome"] != "cancelled"][:SAMPLE]
    if killed not in {row["request"] for row in sample}:
        sample.append(again[0])
    stories = traces(stage, sample)
    lost = [step for step in stories[killed] if step["event"] == "requeued" and "lost" in step["text"]]
    show.check("the trace shows the killed worker", bool(lost), lost[0]["text"] if lost else "")
    ends = ("final", "failed", "unheard")
    whole = [name for name, steps in stories.items() if steps[0]["event"] == "accepted" and steps[-1]["event"] in ends]
    show.check(
        "traces go from acceptance to the outcome",
        len(whole) == len(sample) > 0,
        f"{len(whole)} of {len(sample)} requests",
    )


def finished(stage: Stage) -> list[dict[str, Any]]:
    """All finished requests, from the journal."""
    words = ["-m", "polydomo", "requests", "--since", "1h", "--most", "1000000", "--json", "--to", stage.url]
    out = subprocess.run([sys.executable, *words], capture_output=True, timeout=PATIENCE, cwd=ROOT, check=True)
    rows: list[dict[str, Any]] = json.loads(out.stdout)
    return rows


def traces(stage: Stage, rows: list[dict[str, Any]]) -> dict[str, list[dict[str, str]]]:
    """The steps of each of these requests, by its id."""
    from polydomo.journal import ids
    from polydomo.journal.reading.reader import Reader
    from polydomo.journal.reading.story import story_of

    reader = Reader([Path(stage.ask("journal")["directory"])])
    found = {}
    for row in rows:
        known = ids.parse(row["request"])
        story = story_of(reader, known.run, known.number)
        if story is not None and story.steps:
            found[row["request"]] = [{"event": step.what, "text": step.text} for step in story.steps]
    return found
