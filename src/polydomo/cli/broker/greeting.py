"""The next steps, which ``polydomo up`` prints on a terminal."""

import typer

from polydomo.cli.common.exit_status import typed
from polydomo.server.settings.settings import Settings


def greet(urls: list[str]) -> None:
    """Prints the next steps, on a terminal only."""
    to = "" if urls[0] == Settings().listen[0] else f" --to {urls[0]}"
    name = typed()
    lines = [
        "",
        f"  The broker is running at {' and '.join(urls)}. In another terminal:",
        "",
        f"    {name} work echo --echo{to}     offers a service",
        f"    {name} call echo hello{to}      calls it",
        f"    {name} services{to}             lists the services",
        "",
        "  Ctrl-C stops it.",
        "",
    ]
    typer.echo("\n".join(lines), err=True)
