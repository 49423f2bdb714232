"""One client's flood does not starve another."""

import concurrent.futures

import polydomo
from demo.stage import PATIENCE, Stage

TITLE = "A flood of requests does not starve other clients"

FLOOD = 500


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        f"""One worker, two clients. The first client sends {FLOOD} requests at once; then the second sends one. Clients of a service
        are served round robin, so the second one does not wait for all requests of the first."""
    )
    with (
        stage.worker("memo", "queue", "render", "Hal", hold=1) as hal,
        polydomo.Client(stage.url, timeout=PATIENCE) as flood,
        polydomo.Client(stage.url, "mdp2", timeout=PATIENCE) as single,
    ):
        order: list[str] = []
        calls: list[concurrent.futures.Future[polydomo.Result]] = []
        for number in range(FLOOD):
            calls.append(flood.submit("queue", f"flood {number}"))
            calls[-1].add_done_callback(lambda _: order.append("flood"))
        wait_for_queue(stage, FLOOD - 1)  # the worker holds one
        calls.append(single.submit("queue", "just one"))
        calls[-1].add_done_callback(lambda _: order.append("single"))
        wait_for_queue(stage, FLOOD)
        show.event(f"{FLOOD} requests wait; the worker begins")
        hal.go()
        concurrent.futures.wait(calls[-1:], timeout=PATIENCE)
        place = order.index("single") + 1
        show.check(
            "clients of a service are served round robin",
            place <= 3,
            f"the second client's request was number {place} of {FLOOD + 1}",
        )
        flood.close()


def wait_for_queue(stage: Stage, length: int) -> None:
    stage.wait_until("services", lambda rows: any(row["name"] == "queue" and row["queued"] == length for row in rows))
