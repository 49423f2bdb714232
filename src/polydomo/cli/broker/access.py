"""``polydomo access``: write an access file, and check what it allows."""

from pathlib import Path
from typing import Annotated

import typer

access_app = typer.Typer(help="Write and check access files.", no_args_is_help=True)

TEMPLATE = """\
# Who may use the broker, and for what. Start it with `polydomo up --access {name}`.
# The broker reloads this file, and the files it names, when they change. Changes also apply to connected peers.
# See docs/security.md for every setting.

[server]
curve = "server.key_secret"              # polydomo keys new server
# tls = {{ cert = "server.pem", key = "server.pem", ca = "clients.pem" }}
anonymous = false                        # true: peers without credentials are the principal "anonymous"; "local": those on this machine;
                                         # ["ipc:///run/polydomo.sock"]: those of the listed listeners

# A principal has one or more credentials.
[principals.alice]
curve = "alice.key"                      # polydomo keys new alice; or the 40 characters of the key itself
# certificate = "CN=alice"               # subject of a TLS client certificate
# token_sha256 = "..."                   # polydomo keys token alice: bearer token over HTTP, password with PLAIN
# uid = 1000                             # user id of the peer process, on ipc://

[groups]
ops = ["alice"]

# Everything is denied unless a rule allows it. Values are true, or lists of names, in which * matches any text.
# Rights: call, offer (serve as a worker), publish, subscribe, register (in the catalog), inspect (mmi.*, polydomo.*,
# /metrics), tap, bridge, admin (everything).
[[allow]]
who = ["ops"]
admin = true

# [[allow]]
# who = ["alice"]
# call = ["resize", "lint.*"]
# offer = ["thumbnail"]

# Limits for a principal, or for each member of a group.
# [quotas.alice]
# connections = 10
# open_requests = 100
# held_bytes = 100_000_000
# requests_per_second = 50
"""


def add_to(app: typer.Typer) -> None:
    access_app.command("init")(init)
    access_app.command("check")(check)
    app.add_typer(access_app, name="access")


def init(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The file to write.")] = "access.toml",
) -> None:
    """Write a commented access file to start from.

    **Examples**

    - `polydomo access init`
    - `polydomo access init /etc/polydomo/access.toml`
    """
    from polydomo.errors import SettingError

    path = Path(file)
    try:
        with path.open("x", encoding="utf-8") as out:
            out.write(TEMPLATE.format(name=file))
    except FileExistsError:
        raise SettingError(f"{file} already exists; remove it first, or choose another file") from None
    except OSError as error:
        raise SettingError(f"cannot write {file}: {error.strerror or error}") from None
    where = "" if path.parent == Path(".") else f" --dir {path.parent}"
    missing = [name for name in ("server", "alice") if not path.with_name(f"{name}.key").exists()]
    typer.echo(f"Wrote {file}. It refers to the keys server and alice{'; create them with:' if missing else '.'}")
    for name in missing:
        typer.echo(f"  polydomo keys new {name}{where}")


def check(
    who: Annotated[str | None, typer.Argument(metavar="PRINCIPAL", help="Who asks.")] = None,
    right: Annotated[str | None, typer.Argument(metavar="RIGHT", help="call, offer, publish, ...")] = None,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The service or topic.")] = "",
    access: Annotated[str, typer.Option("--access", metavar="FILE", help="The access file.")] = "access.toml",
) -> None:
    """Check an access file. With a principal, a right and a name, print whether it is allowed, and by which rule.

    Exits with status 0 if it is allowed, 1 if it is denied, 2 if the file is invalid.

    **Examples**

    - `polydomo access check --access access.toml`
    - `polydomo access check --access access.toml alice call resize`
    """
    from polydomo.broker.guard.rules import RIGHTS
    from polydomo.cli.common.exit_status import FAILED, print_error
    from polydomo.errors import SettingError
    from polydomo.journal.quantities import counted
    from polydomo.server.access import file as access_file

    try:
        loaded = access_file.load(access)
    except SettingError as error:
        for problem in error.problems[1:]:
            print_error(f"access: {access}: {problem}")
        raise SettingError(f"access: {access}: {error.problems[0]}" if error.problems else str(error)) from None
    for warning in loaded.warnings:
        print_error(warning)
    if who is None:
        count = len(loaded.rules.principals)
        typer.echo(f"{access} is valid: {counted(count, 'principal')}, {counted(len(loaded.rules.rules), 'rule')}")
        return
    if right not in RIGHTS:
        raise SettingError(f"RIGHT: must be one of {', '.join(RIGHTS)}")
    if who not in loaded.rules.principals:
        raise SettingError(f"PRINCIPAL: {access} has no principal {who!r}")
    number = loaded.rules.allowed_by(who, right, name)
    if number:
        typer.echo(f"allowed by rule {number}")
    else:
        typer.echo("denied: no rule")
        raise typer.Exit(FAILED)
