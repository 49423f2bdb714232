"""``polydomo spark work``: a fleet of workers on a Spark cluster."""

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import Protocol, To
from polydomo.cli.pipeline.pipeline import Conf, Master, pairs
from polydomo.errors import SettingError

if TYPE_CHECKING:
    from polydomo.spark.fleet import Fleet


def work(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="Name of the service to offer.")],
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="The function that serves it, as for a Worker in Python, such as model:score.",
        ),
    ],
    to: To = None,
    protocol: Protocol = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-n", metavar="N", min=1, help="Workers to start.  [default: 1, or --min]"),
    ] = None,
    least: Annotated[
        int | None, typer.Option("--min", metavar="N", min=0, help="Keep at least N workers; with --max.")
    ] = None,
    most: Annotated[
        int | None,
        typer.Option("--max", metavar="N", min=1, help="Start up to N workers while requests are queued."),
    ] = None,
    concurrency: Annotated[int, typer.Option(metavar="N", min=1, help="Calls that each worker serves at once.")] = 1,
    py_files: Annotated[
        list[str] | None,
        typer.Option(
            "--py-files",
            metavar="FILE",
            help="More code for the workers: .py, .zip or .egg; may be given several times.",
        ),
    ] = None,
    archives: Annotated[
        list[str] | None,
        typer.Option(
            "--archives", metavar="FILE#DIR", help="An archive that Spark unpacks in DIR, such as a packed environment."
        ),
    ] = None,
    grace: Annotated[
        float, options.time_option("On Ctrl-C, how long running calls may take to finish, such as 30s.", least=0.0)
    ] = 30.0,
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, help="Port of this machine that the workers connect to; 0: any.")
    ] = 0,
    master: Master = "",
    conf: Conf = None,
    log_json: Annotated[bool, typer.Option("--log-json", help="Write logs as JSON lines.")] = False,
    log_level: Annotated[str, typer.Option(metavar="LEVEL", help="debug, info, warning or error.")] = "info",
) -> None:
    """Offer a service with a fleet of workers on a Spark cluster, until SIGTERM or Ctrl-C.

    Every worker is a task of a long-running Spark job. Workers of a lost executor are started again elsewhere. The module of the
    function is shipped to the executors unless it is installed; polydomo's own dependencies must be installed there. With --min and
    --max the number of workers follows the length of the queue. Ctrl-C lets the workers finish the
    calls that they hold; a second one ends them.

    **Examples**

    - `polydomo spark work score model:score --workers 64 --master spark://host:7077`
    - `polydomo spark work score model:score --min 2 --max 64 --master yarn --archives env.tar.gz#env`
    """
    from polydomo.pipeline import session
    from polydomo.server import logs

    low, high, start = sizes(workers, least, most)
    level = options.read_log_level(log_level)
    url = options.address(to)
    name = options.protocol_name(protocol)
    session.require()
    from polydomo.client import security
    from polydomo.limits import FLEET_FAILURES
    from polydomo.spark import shipping
    from polydomo.spark.fleet import Fleet
    from polydomo.spark.fleet_task import WorkerPlan
    from polydomo.spark.scaling import Scaling
    from polydomo.worker import loading

    logs.setup(log_json, level)
    loading.see_here(Path.cwd())
    plan = WorkerPlan(
        url, service, function, ("", port), "", name, concurrency, grace,
        {"security": security.default()} if security.default() is not None else {},
    )  # fmt: skip
    plan.worker(0, loading.load(function))  # raises here if the function or a name is wrong
    code = shipping.local_code(function)
    settings = {
        "spark.task.maxFailures": str(FLEET_FAILURES),
        "spark.speculation": "false",  # a second worker under the same number would be asked to leave
        "spark.stage.maxConsecutiveAttempts": str(FLEET_FAILURES),
        **({"spark.archives": ",".join(archives)} if archives else {}),
        **pairs(conf or []),
    }
    made = session.build(master or f"local[{high},{FLEET_FAILURES}]", "", settings, name=f"polydomo {service}")
    try:
        for file in (*([str(code)] if code is not None else []), *(py_files or [])):
            made.sparkContext.addPyFile(file)
        asyncio.run(serve(Fleet(made, plan, Scaling(low, high), start)))
    finally:
        session.close(made)


def sizes(workers: int | None, least: int | None, most: int | None) -> tuple[int, int, int]:
    """The least, the most and the first number of workers. Raises SettingError.

    >>> sizes(16, None, None), sizes(None, 2, 8), sizes(4, None, 8)
    ((16, 16, 16), (2, 8, 2), (1, 8, 4))
    """
    if least is None and most is None:
        return workers or 1, workers or 1, workers or 1
    if most is None:
        raise SettingError("--min: give --max as well: how many workers there may be")
    low = 1 if least is None else least
    start = low if workers is None else workers
    if not low <= start <= most:
        raise SettingError(f"--workers {start}: is not between --min {low} and --max {most}")
    return low, most, start


async def serve(fleet: "Fleet") -> None:
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def on_signal(number: int) -> None:
        seen.append(number)
        if len(seen) == 1:
            fleet.stop()
        else:
            logging.getLogger("polydomo.spark").warning("a second signal: the workers are ended at once")
            os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await fleet.run()
