"""Inspecting a running broker."""

from demo.stage import Stage

TITLE = "Inspect the broker"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """These commands call reserved services on the same port, so a client of any protocol can do the same. Use `--json` in
        programs."""
    )
    with stage.worker("mdx", "render", "render", "Ada"), stage.worker("majortomo", "render", "render", "Ben"):
        stage.wait_until("workers", lambda rows: len(rows) == 2 and any(row["dialect"] == "majortomo" for row in rows))
        kept = [stage.command(words) == 0 for words in ("services", "workers", "status")]
        show.check("services, workers and status are shown", all(kept))
