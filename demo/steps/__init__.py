"""The steps of the demo, in order. Each is a module with a TITLE and ``run(stage)``, which explains what it does, does it, and checks
the result with ``stage.show.check``. To add a step, add a module to this list."""

from collections.abc import Callable

from demo.stage import Stage
from demo.steps import (
    access,
    catalog,
    chain,
    death,
    failure,
    fair,
    flow,
    jobs,
    leave,
    matrix,
    publish,
    report,
    stale,
    start,
    story,
    stream,
    views,
    web,
)

Step = tuple[str, Callable[[Stage], None]]

STEPS: list[Step] = [
    (start.TITLE, start.run),
    (matrix.TITLE, matrix.run),
    (death.TITLE, death.run),
    (stale.TITLE, stale.run),
    (stream.TITLE, stream.run),
    (failure.TITLE, failure.run),
    (fair.TITLE, fair.run),
    (chain.TITLE, chain.run),
    (catalog.TITLE, catalog.run),
    (publish.TITLE, publish.run),
    (web.TITLE, web.run),
    (jobs.TITLE, jobs.run),
    (flow.TITLE, flow.run),
    (access.TITLE, access.run),
    (views.TITLE, views.run),
    (story.TITLE, story.run),
    (leave.TITLE, leave.run),
    (report.TITLE, report.run),
]
