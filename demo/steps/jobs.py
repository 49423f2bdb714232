"""A durable job survives the broker that accepted it."""

import signal

import polydomo
from demo.stage import PATIENCE, Stage

TITLE = "A durable job survives kill -9 of the broker"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """A durable job is on disk before it is acknowledged. A client submits one to a second broker, which has no worker for it and
        is then killed with SIGKILL. It is started again with the same data, a worker connects, and the client asks for the result."""
    )
    data = stage.root / "jobs"
    broker, url = stage.up(data, "tcp://127.0.0.1:0", "--journal", "off")
    with polydomo.Client(url, timeout=PATIENCE) as client:
        job = client.submit_job("shout", "still here")
        show.event(f"client: job {job} is accepted")
        broker.signal(signal.SIGKILL)
        broker.popen.wait(PATIENCE)
        show.event("SIGKILL to the broker")
        stage.up(data, url, "--journal", "off")
        state = client.job(job)["state"]
        show.check("the new broker has the job", state == "queued", state)
        worker = polydomo.Worker(url)
        worker.add("shout", lambda call: call.text.upper())
        with worker:
            result = client.result(job, wait=PATIENCE).text
        show.check("its result can be fetched", result == "STILL HERE", result)
