"""``polydomo keys``: keys and tokens for the access file."""

import hashlib
import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

keys_app = typer.Typer(help="Make keys and tokens for access control.", no_args_is_help=True)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


def add_to(app: typer.Typer) -> None:
    keys_app.command("new")(new)
    keys_app.command("token")(token)
    app.add_typer(keys_app, name="keys")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is: of a principal, or of the server.")],
    directory: Annotated[str, typer.Option("--dir", metavar="DIR", help="Where to write the two files.")] = ".",
) -> None:
    """Make a CURVE key: `NAME.key`, which others may see, and `NAME.key_secret`, which only its owner may read.

    The files are certificates as pyzmq's `zmq.auth` and CZMQ write and read them.

    **Examples**

    - `polydomo keys new server`
    - `polydomo keys new alice --dir keys`
    """
    from polydomo.keys import write_pair

    public, secret = write_pair(Path(directory), checked(name))
    typer.echo(f"{public}  public: others need it to know {name}")
    typer.echo(f"{secret}  secret: stays with {name}")


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The principal whose token it is.")],
) -> None:
    """Make a token for a principal: a bearer token over HTTP, or its password with PLAIN.

    The token itself is printed once and kept nowhere. The access file has only its SHA-256.

    **Examples**

    - `polydomo keys token ci`
    """
    made = secrets.token_urlsafe(32)
    digest = hashlib.sha256(made.encode()).hexdigest()
    typer.echo(f"token (give it to {checked(name)}; it is shown only now):")
    typer.echo(f"  {made}")
    typer.echo("for the access file:")
    typer.echo(f"  [principals.{name}]")
    typer.echo(f'  token_sha256 = "{digest}"')


def checked(name: str) -> str:
    from polydomo.errors import SettingError

    if not _NAME.fullmatch(name):
        raise SettingError(f"NAME: {name!r} must have 1 to 64 letters, digits and . _ @ -")
    return name
