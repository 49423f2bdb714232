"""What a running broker tells of itself."""

from demo.stage import Stage

TITLE = "Look inside"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """A running broker can be asked what it knows. These commands call reserved services on the same port, so any
        client of any protocol can ask, too; `--json` is for programs."""
    )
    with stage.worker("mdx", "render", "render", "Ada"), stage.worker("majortomo", "render", "render", "Ben"):
        stage.wait_until("workers", lambda rows: len(rows) == 2 and any(row["dialect"] == "majortomo" for row in rows))
        kept = [stage.command(words) == 0 for words in ("services", "workers", "status")]
        show.check("services, workers and status can be seen", all(kept))
