"""``polydomo dev``: a broker in memory and a program with a worker, which is restarted when its files change."""

import queue
import signal
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Callable

    from polydomo.cli.dev.program import DevProgram
    from polydomo.cli.dev.shown import Line

    Show = Callable[[Line], None]

LOOK = 0.25  # seconds between looks at the files: a restart seems immediate
DEFAULT_LISTEN = "tcp://127.0.0.1:5246"


def add_to(app: typer.Typer) -> None:
    app.command(context_settings={"allow_interspersed_args": False})(dev)


def dev(
    program: Annotated[Path, typer.Argument(metavar="APP.PY", help="The program: it makes a Worker.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGUMENT", help="Arguments of the program.")] = None,
    listen: Annotated[str, typer.Option(metavar="URL", help="Where the broker listens.")] = DEFAULT_LISTEN,
) -> None:
    """Develop a worker: start a broker in memory and the program, restart it when a file changes, and print calls and logs.

    The program is run as `python APP.PY` runs it, with the address of the broker as POLYDOMO_TO; a Worker that it makes at the top level
    and does not run is run. It is restarted when a Python file in its directory, or below it, changes. A file with a syntax error is shown,
    and the program is left as it is until the next change. The broker forgets all jobs when it stops. Ctrl-C ends both.

    **Examples**

    - `polydomo dev app.py`
    - `polydomo dev --listen tcp://127.0.0.1:6000 app.py --model small`
    """
    from polydomo import testing
    from polydomo.cli.dev.program import DevProgram
    from polydomo.cli.dev.shown import Line, Printer, ShownEvents
    from polydomo.errors import SettingError

    if not program.is_file():
        raise SettingError(f"dev: no such file: {program}")
    lines: queue.SimpleQueue[Line | None] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: lines.put(None))
    events = ShownEvents(lines.put)
    printer = Printer()
    with testing.broker(listen, jobs=True, recorder=events) as broker:
        events.now = broker.now
        child = DevProgram(program, arguments or [], broker.url, lines.put)
        printer.show(Line("dev", f"broker at {broker.url}, dashboard at {broker.url.replace('tcp', 'http')}/", "bold"))
        try:
            _serve(program, child, lines, printer.show)
        finally:
            child.close()


def _serve(program: Path, child: "DevProgram", lines: "queue.SimpleQueue[Line | None]", show: "Show") -> None:
    """Until a signal."""
    from polydomo.cli.dev.shown import Line
    from polydomo.cli.dev.source_files import SourceFiles

    files = SourceFiles(program.resolve().parent)
    _start([program.resolve()], child, show)
    pending: list[Path] = []  # changed files; the last look found another change
    while True:
        try:
            line = lines.get(timeout=LOOK)
        except queue.Empty:
            changed = files.changed()
            if pending and not changed:
                _start(pending, child, show)
                pending = []
            pending += changed
            status = child.ended()
            if status is not None:
                show(
                    Line(
                        "dev", f"{program.name} ended with status {status}; it starts again when a file changes", "red"
                    )
                )
            continue
        if line is None:
            show(Line("dev", "stopping", "bold"))
            return
        show(line)


def _start(changed: list[Path], child: "DevProgram", show: "Show") -> None:
    """Starts the program, or restarts it, unless a file that changed has a syntax error."""
    from polydomo.cli.dev.shown import Line
    from polydomo.cli.dev.source_files import syntax_error

    for path in changed:
        error = syntax_error(path)
        if error is not None:
            for text in "".join(traceback.format_exception_only(error)).splitlines():
                show(Line("dev", text, "red"))
            show(Line("dev", f"{path.name} has a syntax error; waiting for the next change", "red"))
            return
    names = ", ".join(path.name for path in dict.fromkeys(changed))
    show(Line("dev", f"starting ({names})", "bold"))
    child.stop()
    child.start()
