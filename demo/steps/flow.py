"""A flow of durable jobs goes on when one of its workers is killed."""

import signal

import polydomo
from demo.stage import PATIENCE, Stage

TITLE = "A flow goes on when a worker is killed"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """A flow is a graph of calls that the broker keeps on disk. This one renders three scenes and joins them when all are done.
        Ada (MDP/0.1) and Ben (MDX) render; Ada is killed with SIGKILL while she works on a scene."""
    )
    flow = polydomo.Flow("film")
    scenes = flow.map("scenes", ["scene 1", "scene 2", "scene 3"])
    film = flow.call("cut", scenes)
    cutter = polydomo.Worker(stage.url)
    cutter.add("cut", lambda call: " + ".join(frame.decode() for frame in call.frames))
    with (
        stage.worker("mdp1", "scenes", "render", "Ada", hold=3) as ada,
        polydomo.Client(stage.url, timeout=PATIENCE) as client,
    ):
        started = client.start(flow)
        show.event(f"client: flow {started.id} is on disk")
        show.event(f"Ada is {ada.line()}")
        ada.signal(signal.SIGKILL)
        show.event("SIGKILL")
        with cutter, stage.worker("mdx", "scenes", "render", "Ben"):
            for step in started.watch():
                show.event(f"{step.node} is {step.state}, {step.done} of {step.total}")
            result = started.result(film).text
        stage.command("flow", "show", started.id)
    expected = " + ".join(f"scene {number}, rendered by Ben" for number in (1, 2, 3))
    show.check("the flow ends with the results in order", result == expected, result)
