"""``polydomo doctor``: checks a machine, the settings and the data directory of a broker, and says what to do."""

import http.client
import os
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from polydomo.cli.common.options import Json
from polydomo.cli.common.render import PrintedColumn, show, show_json
from polydomo.errors import PolydomoError, SettingError
from polydomo.journal.quantities import size

if TYPE_CHECKING:
    from polydomo.server.settings.settings import Settings
    from polydomo.wire.address import Address

OK, NOTE, WARNING, ERROR = "ok", "note", "warning", "error"
ANSWER = 2.0  # seconds for the broker's answer on its port
FILES = 4096  # open files that a broker with some thousand connections needs
DISK_LOW = 1 << 30  # bytes free
LISTED = 3  # damaged records
LATEST = 60.0  # seconds by which the newest file may be ahead of the clock


class Finding(NamedTuple):
    check: str
    level: str
    finding: str
    remedy: str = ""


def add_to(app: typer.Typer) -> None:
    app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})(doctor)


def doctor(
    ctx: typer.Context,
    data: Annotated[
        str | None, typer.Option(metavar="DIR", help="Data directory of the broker.  [default: ./polydomo-data]")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="TOML file with the broker's settings.")] = None,
    access: Annotated[str | None, typer.Option(metavar="FILE", help="The broker's access file.")] = None,
    json: Json = False,
) -> None:
    """Check this machine, the settings and the data directory of a broker.

    It takes the same flags, variables and settings file as `polydomo up`, and changes nothing. The broker may be running. It reads
    every stored file, so it takes a while for a large journal. Exit status 1: there is an error.

    **Examples**

    - `polydomo doctor`
    - `polydomo doctor --config /etc/polydomo/polydomo.toml`
    """
    from polydomo.cli.common import flags

    found = list(_machine())
    try:
        settings = flags.load(config, {"data": data, "access": access}, ctx.args)
    except SettingError as error:
        found.append(Finding("settings", ERROR, str(error), "mend the setting; `polydomo config` lists all"))
    else:
        for name, check in CHECKS.items():
            try:
                for finding in check(settings):
                    found.append(finding)
            except OSError as error:
                text = f"cannot read {error.filename}: {error.strerror}"
                found.append(Finding(name, ERROR, text, "run it as the broker's user"))
    if json:
        show_json([one._asdict() for one in found])
    else:
        columns = [PrintedColumn("check"), PrintedColumn("level"), PrintedColumn("finding", folds=True)]
        show([*columns, PrintedColumn("remedy", folds=True)], [list(one) for one in found])
    if any(one.level == ERROR for one in found):
        raise typer.Exit(1)


# --- the machine ------------------------------------------------------------------------------------------------------------


def _machine() -> Iterator[Finding]:
    from polydomo import __version__, native
    from polydomo.server.resources import MORE_FILES, available_memory

    yield Finding("version", OK, f"polydomo {__version__} ({native.form()}), SQLite {sqlite3.sqlite_version}")
    if not native.is_compiled():
        yield Finding(
            "core",
            NOTE,
            "the core is interpreted",
            "a compiled core needs less CPU: install a released wheel, or run POLYDOMO_COMPILED=1 pip install . in a checkout",
        )
    for module, purpose, extra in (
        ("uvloop", "a faster event loop", "pip install uvloop"),
        ("pyarrow", "the journal", "pip install 'polydomo[journal]'"),
        ("pyspark", "the pipeline", "pip install 'polydomo[spark]'"),
    ):
        if find_spec(module) is None:
            yield Finding("libraries", NOTE, f"{module} is not installed, which {purpose} needs", extra)
    if find_spec("pyspark") is not None:
        yield _java()
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if most != resource.RLIM_INFINITY and most < FILES:
            yield Finding("open files", WARNING, f"at most {most} files, one for each connection", MORE_FILES)
        else:
            yield Finding("open files", OK, "no limit" if most == resource.RLIM_INFINITY else f"at most {most}")
    except ImportError:
        pass  # another kind of system
    memory = available_memory()
    if memory:
        yield Finding("memory", OK, f"{size(memory)} for this process")


def _java() -> Finding:
    from polydomo.pipeline import java

    try:
        return Finding("java", OK, f"Spark can use {java.find()}")
    except PolydomoError as error:
        return Finding("java", NOTE, str(error), "only the pipeline needs Java")


# --- the settings and the data directory ------------------------------------------------------------------------------------


def _settings(settings: "Settings") -> Iterator[Finding]:
    for notice in settings.notices:
        yield Finding("settings", WARNING, str(notice))
    if not settings.notices:
        yield Finding("settings", OK, "valid")


def _data(settings: "Settings") -> Iterator[Finding]:
    from polydomo.server.backup import nested_data
    from polydomo.server.data_directory import exposure, used_bytes

    path = Path(settings.data)
    if path.exists() and not path.is_dir():
        yield Finding(
            "data", ERROR, f"{path} is not a directory", "move it away, or name another directory with --data"
        )
        return
    if not path.is_dir():
        yield Finding("data", NOTE, f"{path} does not exist yet", "`polydomo up` makes it; name another with --data")
        return
    links = [entry for entry in path.iterdir() if entry.is_symlink()]
    for link in links:
        yield Finding("data", ERROR, f"{link} is a symbolic link, which a broker refuses", "move the file there")
    exposed = exposure(path, path.stat())
    if exposed is not None:
        yield Finding("data", WARNING, exposed.text, str(exposed.facts.get("remedy", "chown it to the broker's user")))
    if not os.access(path, os.W_OK | os.X_OK):
        yield Finding("data", ERROR, f"this user cannot write to {path}", "run it as the broker's user")
    for kept in sorted(path.glob("*.damaged-*")):
        yield Finding(
            "data", WARNING, f"{kept.name} was kept when it was found damaged", "remove it when it is not needed"
        )
    nested = nested_data(path)
    if nested is not None:
        yield Finding("data", WARNING, f"{path} has no job store, but {nested} has", f"--data {nested}")
    elif not links and exposed is None:
        yield Finding("data", OK, f"{path} has {size(used_bytes(path))}")
    free = shutil.disk_usage(path).free
    level, remedy = (WARNING, "make room, or set limits.max_disk") if free < DISK_LOW else (OK, "")
    yield Finding("disk", level, f"{size(free)} free", remedy)
    ahead = max(map(_changed, path.rglob("*")), default=0.0) - time.time()
    if ahead > LATEST:
        yield Finding(
            "clock",
            ERROR,
            f"the newest file is {round(ahead)} s in the future: the clock was set back",
            "set the clock; jobs wait for their times",
        )
    else:
        yield Finding("clock", OK, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()))


def _changed(path: Path) -> float:
    """When a file was changed last; a running broker may have removed it meanwhile."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _stores(settings: "Settings") -> Iterator[Finding]:
    from polydomo.server.job_store import backend_of
    from polydomo.stores.backend import SCHEMA
    from polydomo.stores.damaged_records import damaged_jobs, damaged_values
    from polydomo.stores.memo import FILE, VERSION
    from polydomo.stores.sqlite import SqliteBackend
    from polydomo.stores.urls import without_password

    try:
        backend = backend_of(settings)
    except SettingError as error:
        yield Finding("jobs", ERROR, str(error))
        return
    if isinstance(backend, SqliteBackend):
        yield _store("jobs", backend.path, "SELECT schema FROM lease", SCHEMA, damaged_jobs)
    elif backend is not None:
        from polydomo.broker.jobs.ops import StoreError
        from polydomo.stores.postgres import PostgresBackend

        assert isinstance(backend, PostgresBackend)
        try:
            yield _of_version("jobs", f"{without_password(backend.url)} answers", backend.version(), SCHEMA)
        except StoreError as error:
            yield Finding("jobs", ERROR, error.text, "check the address, the password and the server")
    yield _store("memo", Path(settings.data) / FILE, "PRAGMA user_version", VERSION, damaged_values)


def _store(
    check: str, path: Path, version: str, current: int, damaged: "Callable[[sqlite3.Connection], Iterator[str]]"
) -> Finding:
    from polydomo.server.backup import read_only

    if not path.exists():
        return Finding(check, OK, f"{path.name} does not exist yet")
    if not path.is_file():
        return Finding(check, ERROR, f"{path} is not a file", "move it away")
    if not os.access(path, os.R_OK):
        return Finding(check, ERROR, f"this user cannot read {path}", "run it as the broker's user")
    if not path.stat().st_size:
        return Finding(
            check, WARNING, f"{path.name} is empty; a broker makes its tables", "restore a backup if it had records"
        )
    restart = "restart the broker, which saves what can be read, or restore a backup"
    try:
        with read_only(path) as store:
            (found,) = store.execute("PRAGMA integrity_check(1)").fetchone()
            if found != "ok":
                return Finding(check, ERROR, f"{path.name} is damaged: {str(found).splitlines()[0]}", restart)
            row = store.execute(version).fetchone()
            number = int(row[0]) if row is not None else current
            records = list(damaged(store)) if number == current else []  # an upgrade checks older ones
    except sqlite3.Error as error:
        return Finding(check, ERROR, f"{path.name} cannot be read: {error}", restart)
    if records:
        text = f"{path.name} has damaged records: {', '.join(records[:LISTED])}"
        more = f" and {len(records) - LISTED} more" if len(records) > LISTED else ""
        return Finding(check, ERROR, text + more, "the broker never delivers them; restore a backup if you need them")
    return _of_version(check, f"{path.name} is sound ({size(path.stat().st_size)})", number, current)


def _of_version(check: str, sound: str, number: int, current: int) -> Finding:
    """``number``: the version of a store's tables; 0 if it has none yet."""
    if number > current:
        return Finding(
            check,
            ERROR,
            f"{sound}, but its tables have version {number}, newer than {current}",
            "use the polydomo that wrote it",
        )
    older = "" if number in (0, current) else f"; the broker upgrades its tables from version {number}"
    return Finding(check, OK, sound + older)


def _journal(settings: "Settings") -> Iterator[Finding]:
    from polydomo.journal.files.seal import damage
    from polydomo.journal.files.segments import all_segments

    directory = Path(settings.data) / "journal"
    if not directory.is_dir():
        if directory.exists():
            yield Finding("journal", ERROR, f"{directory} is not a directory", "move it away")
        else:
            yield Finding("journal", OK, "there is none")
        return
    checked = 0
    for segment in all_segments(directory):
        why = damage(segment.path)
        if why and segment.path.exists():  # a running broker merges segments
            yield Finding(
                "journal",
                ERROR,
                f"{segment.path.relative_to(directory)}: {why}",
                "its rows are reported as missing; restore it from a copy, or remove it",
            )
        checked += 1
    yield Finding("journal", OK, f"{checked} segments were read")


def _access(settings: "Settings") -> Iterator[Finding]:
    from polydomo.server.access.file import load

    if not settings.access:
        if settings.insecure:
            yield Finding(
                "access", WARNING, "no access control, and other machines can connect", "polydomo access init"
            )
        else:
            yield Finding("access", OK, "no access control: only this machine can connect")
        return
    try:
        found = load(settings.access, [listener.address for listener in settings.listeners()])
    except SettingError as error:
        yield Finding("access", ERROR, str(error), "mend the access file; `polydomo access check` tries a right")
        return
    for warning in found.warnings:
        yield Finding("access", WARNING, warning)
    yield Finding("access", OK, f"{settings.access} is valid")


# --- ports ------------------------------------------------------------------------------------------------------------------


def _ports(settings: "Settings") -> Iterator[Finding]:
    from polydomo.wire.address import TCP

    for listener in settings.listeners():
        address = listener.address
        if address.kind == TCP and address.port:
            yield _port(address)


def _port(address: "Address") -> Finding:
    try:
        places = socket.getaddrinfo(
            None if address.host == "*" else address.host,
            address.port,
            type=socket.SOCK_STREAM,
            flags=socket.AI_PASSIVE,
        )
    except OSError as error:
        return Finding("port", ERROR, f"{address}: {error.strerror}", "name an address of this machine with --listen")
    family, kind, _, _, place = places[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(place)
        except PermissionError:
            return Finding(
                "port", ERROR, f"{address}: this user may not use it", "choose a port above 1023 with --listen"
            )
        except OSError:
            return _who(address, str(place[0]))
    return Finding("port", OK, f"{address} is free")


def _who(address: "Address", host: str) -> Finding:
    connection = http.client.HTTPConnection(
        "127.0.0.1" if host in ("0.0.0.0", "::") else host, address.port, timeout=ANSWER
    )
    try:
        connection.request("GET", "/v1/polydomo.js")  # every broker has it, for everyone
        if b"polydomo" in connection.getresponse().read(4096):
            return Finding("port", OK, f"{address}: a broker answers")
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return Finding(
        "port",
        WARNING,
        f"{address} is in use, and not by a broker that answers",
        f"ss -ltnp 'sport = :{address.port}' shows which program",
    )


CHECKS = {
    "settings": _settings,
    "data": _data,
    "jobs": _stores,
    "journal": _journal,
    "access": _access,
    "port": _ports,
}
