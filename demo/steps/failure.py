"""What cannot be done is said, not forgotten."""

import polydomo
from demo.stage import PATIENCE, Stage

TITLE = "What cannot be done is said"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        "A worker whose function raises has failed. Where the protocol has a word for it (MDX), the caller is told at once:"
    )
    with stage.worker("mdx", "print", "print", "Finn"):
        status = stage.command("call", "print", "report.pdf")
        show.check("a failing worker's caller is told", status == 1, f"exit status {status}")
    show.say(
        """Other protocols have no word for failure: the worker leaves and comes back, and the broker tries the request
        again, three times in all, then gives up. The client here speaks MDX and so hears of it; clients of
        protocols without the word time out."""
    )
    with stage.worker("emqp", "print", "print", "Gus") as gus, polydomo.Client(stage.url, timeout=PATIENCE) as client:
        told = "nothing"
        try:
            client.call("print", "report.pdf")
        except polydomo.CallFailed as error:
            told = str(error)
        tries = [gus.line() for _ in range(3)]
        show.event(f"Gus, over eMQP: {', '.join(tries)}")
        show.event(f"client: {told}")
        show.check("a request is tried three times, then given up", told.startswith("gave-up"), told.partition(":")[0])
    show.say("A call to a service that no worker offers fails with a clear error:")
    status = stage.command("call", "prnit", "report.pdf")
    show.check("a misspelt service is told apart from a slow one", status == 4, f"exit status {status}")
