"""One command starts a broker."""

from demo.stage import SETTINGS, Stage

TITLE = "One command, one port"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """A broker is one command. Clients ask it for services by name, workers offer services by name, and all of
        them, whatever they speak, connect to the same port: the first bytes tell the broker who is there. (Port 0
        lets the system choose; heartbeats are quick here so that you need not wait.)"""
    )
    show.output(f"polydomo up --listen tcp://127.0.0.1:0 {' '.join(SETTINGS)}", "")
    stage.start_broker()
    show.check("the broker is up", stage.ask("status")["address"] == stage.url, stage.url)
