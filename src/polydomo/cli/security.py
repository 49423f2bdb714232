"""Options for brokers with access control: every command that has ``--to`` has these too.

They are declared once, here, and added to each command when it is looked up; ``chosen`` holds their values. There is no option for a
token, because other users can see a process's arguments.
"""

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from polydomo.client.security import Security

CONTEXT_VARIABLE = "POLYDOMO_CONTEXT"
TOKEN_VARIABLE = "POLYDOMO_TOKEN"
VARIABLES = (CONTEXT_VARIABLE, TOKEN_VARIABLE)  # variables for clients; not settings of the broker

PANEL = "Access control"

chosen: dict[str, str] = {}


def _remember(param: typer.CallbackParam, value: str | None) -> str | None:
    if value:
        chosen[str(param.name)] = value
    else:
        chosen.pop(str(param.name), None)
    return value


def _option(name: str, metavar: str, help: str, variable: str | None = None) -> Any:
    return typer.Option(
        name, metavar=metavar, help=help, envvar=variable, callback=_remember, rich_help_panel=PANEL, show_envvar=False
    )


def _declared(
    context: Annotated[
        str | None,
        _option("--context", "NAME", "Use a context saved with `polydomo context save NAME`.", CONTEXT_VARIABLE),
    ] = None,
    key: Annotated[str | None, _option("--key", "FILE", "CURVE: file with your secret key.")] = None,
    server_key: Annotated[
        str | None, _option("--server-key", "KEY", "CURVE: the broker's public key, or a file with it.")
    ] = None,
    ca: Annotated[str | None, _option("--ca", "FILE", "TLS: PEM file with the certificate authority to trust.")] = None,
    cert: Annotated[str | None, _option("--cert", "FILE", "TLS: PEM file with your certificate and its key.")] = None,
    user: Annotated[
        str | None, _option("--user", "NAME", f"PLAIN: your user name; the token is read from {TOKEN_VARIABLE}.")
    ] = None,
) -> None:
    raise AssertionError("never called: only its options are used")


@cache
def _params() -> tuple[Any, ...]:
    app = typer.Typer(add_completion=False)
    app.command()(_declared)
    params = tuple(param for param in typer.main.get_command(app).params if param.name != "help")
    for param in params:
        param.expose_value = False
    return params


def add_to_command(command: Any) -> None:
    """Adds the options to a command that connects to a broker, once."""
    names = {param.name for param in command.params}
    if "to" in names and "server_key" not in names:
        command.params.extend(_params())


def target(to: str | None) -> str:
    """The address a command connects to, with the credentials from the options. Raises SettingError."""
    from polydomo.client import contexts, security
    from polydomo.client.security import DEFAULT_URL

    made = given()
    name = chosen.get("context")
    if name:
        saved = contexts.load(name)
        to = to or saved.to
        made = security.Security(
            made.key or saved.key,
            made.server_key or saved.server_key,
            made.ca or saved.ca,
            made.cert or saved.cert,
            made.user or saved.user,
            made.token or saved.token,
        )
    security.use(made)
    return ",".join(str(address) for address in security.targets(to or DEFAULT_URL))


def given() -> "Security":
    """The credentials from the options, without a context."""
    from polydomo.client.security import Security

    return Security(
        key=_expanded("key"),
        server_key=_expanded("server_key"),
        ca=_expanded("ca"),
        cert=_expanded("cert"),
        user=chosen.get("user", ""),
        token=os.environ.get(TOKEN_VARIABLE, ""),
    )


def _expanded(name: str) -> str:
    value = chosen.get(name, "")
    return str(Path(value).expanduser()) if value.startswith("~") else value
