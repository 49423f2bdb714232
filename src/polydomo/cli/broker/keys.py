"""``polydomo keys``: creates keys and tokens for the access file."""

import hashlib
import re
import secrets
from pathlib import Path
from typing import Annotated

import typer

keys_app = typer.Typer(help="Create keys and tokens for access control.", no_args_is_help=True)

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]{0,63}")


def add_to(app: typer.Typer) -> None:
    keys_app.command("new")(new)
    keys_app.command("token")(token)
    app.add_typer(keys_app, name="keys")


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Owner of the key: a principal, or the server.")],
    directory: Annotated[str, typer.Option("--dir", metavar="DIR", help="Where to write the two files.")] = ".",
) -> None:
    """Create a CURVE key pair: `NAME.key` (public) and `NAME.key_secret` (secret, readable only by you).

    The files are in the certificate format of CZMQ and of pyzmq's `zmq.auth`.

    **Examples**

    - `polydomo keys new server`
    - `polydomo keys new alice --dir keys`
    """
    from polydomo.keys import write_pair

    public, secret = write_pair(Path(directory), checked(name))
    typer.echo(f"{public}  public: give it to peers, so that they can recognise {name}")
    typer.echo(f"{secret}  secret: keep it with {name}")


def token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The principal that the token is for.")],
) -> None:
    """Create a token for a principal: its bearer token over HTTP, and its password with PLAIN.

    The token is printed once and not stored. The access file contains only its SHA-256.

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
