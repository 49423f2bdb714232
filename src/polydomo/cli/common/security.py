"""Options for brokers with access control: every command that has ``--to`` has these too.

They are declared once, here, and added to each command when it is looked up; ``chosen`` holds their values. There is no option for a
token, because other users can see a process's arguments.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from polydomo.client.contexts import Context
    from polydomo.client.security import Security

CONTEXT_VARIABLE = "POLYDOMO_CONTEXT"
TOKEN_VARIABLE = "POLYDOMO_TOKEN"
VARIABLES = (CONTEXT_VARIABLE, TOKEN_VARIABLE)  # variables for clients; not settings of the broker

CREDENTIALS = ("key", "server_key", "ca", "cert", "user", "token")

PANEL = "Access control"

chosen: dict[str, str] = {}
_named: dict[str, str] = {}  # option -> the flag or variable that the user gave


def remember_name(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    """A callback of options that a variable can set too: errors name what the user gave."""
    name = str(param.name)
    source = ctx.get_parameter_source(name)
    _named[name] = str(param.envvar) if source is not None and source.name == "ENVIRONMENT" else flag_of(name)
    return value


def name_of(option: str) -> str:
    """The flag or the variable from which the option's value comes."""
    return _named.get(option, flag_of(option))


def flag_of(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _remember(ctx: typer.Context, param: typer.CallbackParam, value: str | None) -> str | None:
    remember_name(ctx, param, value)
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
    """The address a command connects to, with the credentials from the options. Raises SettingError, with the flag or variable."""
    from polydomo.client import contexts, security
    from polydomo.client.security import DEFAULT_URL

    made = given()
    saved = None
    name = chosen.get("context")
    if name:
        with _named_as_given():
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
    with _named_as_given(saved):
        return ",".join(str(address) for address in security.targets(to or DEFAULT_URL))


@contextmanager
def _named_as_given(saved: "Context | None" = None) -> Iterator[None]:
    """Errors of the libraries begin with the name of an argument. Replaces it by the flag, the variable or the context it comes from."""
    from polydomo.errors import SettingError

    try:
        yield
    except SettingError as error:
        argument, colon, text = str(error).partition(": ")
        if not colon or argument not in ("context", *CREDENTIALS):
            raise
        if saved is not None and argument in CREDENTIALS and argument not in chosen and getattr(saved, argument):
            raise SettingError(f"{name_of('context')} {chosen['context']}: {error}") from None
        name = TOKEN_VARIABLE if argument == "token" else name_of(argument)
        raise SettingError(f"{name}: {text}") from None


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
