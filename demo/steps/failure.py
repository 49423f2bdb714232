"""Failures are reported to the client."""

import polydomo
from demo.stage import PATIENCE, Stage

TITLE = "Failures"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        "If a worker's function raises an exception, the call fails. Over MDX, which can report failures, the caller learns of it at once:"
    )
    with stage.worker("mdx", "print", "print", "Finn"):
        status = stage.command("call", "print", "report.pdf")
        show.check("the caller of a failing worker gets an error", status == 1, f"exit status {status}")
    show.say(
        """Workers of other protocols cannot report a failure. They return the request, and the broker tries it again, three times in
        all; then it fails. This client uses MDX and gets the error. Clients of protocols that cannot report failures
        time out."""
    )
    with stage.worker("emqp", "print", "print", "Gus") as gus, polydomo.Client(stage.url, timeout=PATIENCE) as client:
        failure = "nothing"
        try:
            client.call("print", "report.pdf")
        except polydomo.CallFailed as error:
            failure = str(error)
        tries = [gus.line() for _ in range(3)]
        show.event(f"Gus, over eMQP: {', '.join(tries)}")
        show.event(f"client: {failure}")
        show.check(
            "a request is tried three times, then it fails", failure.startswith("gave-up"), failure.partition(":")[0]
        )
    show.say("A call to a service that no worker offers fails with a clear error:")
    status = stage.command("call", "prnit", "report.pdf")
    show.check("a misspelt service name has its own error", status == 4, f"exit status {status}")
