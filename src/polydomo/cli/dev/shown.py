"""What `polydomo dev` prints: calls, log records, and the output of the program, each a line, in colour on a terminal."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from polydomo.broker.observe.recorder import Recorder
from polydomo.broker.topics.logs import LogRecord
from polydomo.journal.quantities import took
from polydomo.model.outcomes import OK
from polydomo.model.records import Request, Session, Worker

OWN = (b"polydomo.", b"mmi.", b"titanic.")  # services of the broker, whose calls are not shown
LEVELS = {"error": "red", "critical": "red", "warning": "yellow"}


@dataclass(frozen=True)
class Line:
    source: str  # call, log, app or dev
    text: str
    style: str = ""
    moment: float = 0.0


def call_line(request: Request, seconds: float) -> Line:
    service = request.service.name.decode(errors="backslashreplace")
    worker = request.worker
    place = (worker.name or f"w{worker.number}") if worker is not None else "no worker"
    text = f"{service}  {request.outcome}  {took(round(seconds * 1e6))}  {request.session.protocol} -> {place}"
    return Line("call", text, "green" if request.outcome == OK else "red", time.time())


class ShownEvents(Recorder):
    """Passes calls that ended and log records to ``show``, in the broker's thread."""

    wants_requests = True

    def __init__(self, show: Callable[[Line], None]) -> None:
        self._show = show
        self.now: Callable[[], float] | None = None  # the broker's clock

    def ended(self, request: Request) -> None:
        if self.now is not None and not request.service.name.startswith(OWN):
            self._show(call_line(request, self.now() - request.accepted))

    def registered(self, worker: Worker) -> None:
        names = ", ".join(service.name.decode(errors="backslashreplace") for service in worker.services)
        self._show(Line("dev", f"worker w{worker.number} offers {names}", "", time.time()))

    def log_record(self, session: Session, record: LogRecord) -> None:
        self._show(
            Line(
                "log", f"{record.service}  {record.level}  {record.message}", LEVELS.get(record.level, ""), time.time()
            )
        )


class Printer:
    """Lines on standard output. Control characters of peers are escaped."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False, soft_wrap=True)

    def show(self, line: Line) -> None:
        from rich.text import Text

        from polydomo.cli.common.render import clean

        clock = time.strftime("%H:%M:%S", time.localtime(line.moment or time.time()))
        text = Text()
        text.append(f"{clock}  ", "dim")
        text.append(f"{line.source:<4}  ", "cyan")
        text.append(clean(line.text), line.style)
        self._console.print(text)
        self._console.file.flush()
