"""One command starts a broker."""

from demo.stage import SETTINGS, Stage

TITLE = "One command, one port"


def run(stage: Stage) -> None:
    show = stage.show
    show.say(
        """One command starts a broker. Clients call services by name and workers offer services by name. All of them connect to
        the same port, whatever protocol they use: the broker detects it from the first bytes. (With port 0 the system
        chooses a free port. Short heartbeat intervals keep this demo short.)"""
    )
    show.output(f"polydomo up --listen tcp://127.0.0.1:0 {' '.join(SETTINGS)}", "")
    stage.start_broker()
    show.check("the broker is up", stage.ask("status")["address"] == stage.url, stage.url)
