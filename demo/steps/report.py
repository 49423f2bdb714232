"""Tables, audit and report of the demo."""

import tempfile
from pathlib import Path

from demo.stage import Stage, polydomo_run

TITLE = "Audit and report"

PATIENCE = 900.0  # seconds; the machine may be busy
QUERY = (
    "SELECT service, sum(requests) AS requests, sum(ok) AS ok, round(max(total_p99_us)) AS p99_us FROM services "
    "WHERE seconds = 3600 GROUP BY service ORDER BY requests DESC LIMIT 5"
)
PLACE = Path(tempfile.gettempdir()) / "polydomo-demo-report.html"


def run(stage: Stage) -> None:
    show = stage.show
    missing = lacks()
    if missing:
        show.say(f"The pipeline is not shown: {missing}")
        return
    show.say(
        """The broker has stopped; its journal has every message of this demo. Spark turns the journal into tables and checks every
        row against the broker's guarantees. The report is one HTML page that needs no network."""
    )
    tables = stage.data / "tables"
    status, said = polydomo(
        stage,
        "pipeline",
        "run",
        "--journal",
        str(stage.data),
        "--tables",
        str(tables),
        "--strict",
    )
    verdict = said.splitlines()[-1] if said else ""
    show.check("the audit finds no violation", status == 0, verdict.removeprefix("Audit: "))
    status, said = polydomo(stage, "query", "--tables", str(tables), QUERY)
    show.check("the tables can be queried", status == 0)
    status, said = polydomo(
        stage,
        "report",
        "--tables",
        str(tables),
        "--journal",
        str(stage.data / "journal"),
        "--out",
        str(PLACE),
        "--title",
        "The demo",
    )
    show.check("the report is written", status == 0 and PLACE.is_file(), str(PLACE))


def lacks() -> str:
    """What the pipeline needs and is missing, as one line; empty if nothing is."""
    from polydomo.errors import PolydomoError
    from polydomo.pipeline import java, session

    try:
        session.require()
        java.find()
    except PolydomoError as error:
        return str(error)
    return ""


def polydomo(stage: Stage, *words: str) -> tuple[int, str]:
    """Runs a command that needs no broker, and shows it as it would be typed; its status and what it printed."""
    run = polydomo_run(*words, patience=PATIENCE)
    typed = " ".join(f'"{word}"' if " " in word else word for word in words)
    printed = run.stdout if not run.returncode else run.stdout + run.stderr
    stage.show.output(f"polydomo {typed}", printed)
    return run.returncode, run.stdout.strip()
