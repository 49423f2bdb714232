"""A PostgreSQL server of the tests' own: Debian's programs, a private directory, a local socket, an unprivileged user."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest


def programs() -> Path | None:
    """The directory of ``initdb`` and ``postgres``, version 15 or newer; None if there is none."""
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    versions = Path("/usr/lib/postgresql")
    if versions.is_dir():
        places += sorted((place / "bin" for place in versions.iterdir() if place.name.isdigit()), reverse=True)
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


def unprivileged() -> str | None:
    """The user to run it as: PostgreSQL refuses to run as root. None: the present user."""
    if os.geteuid() != 0:
        return None
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Postgres:
    """One server. ``kill`` ends it like a power failure, ``start`` starts it again on the same files."""

    def __init__(self) -> None:
        place = programs()
        if place is None:
            pytest.skip("PostgreSQL 15 or newer is not installed (apt install postgresql)")
        self.programs = place
        self.user = unprivileged()
        self.directory = Path(tempfile.mkdtemp(prefix="polydomo-pg-"))
        if self.user is not None:
            entry = pwd.getpwnam(self.user)
            os.chown(self.directory, entry.pw_uid, entry.pw_gid)
        self.process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self.directory / "data"), "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8")

    @property
    def url(self) -> str:
        return f"postgresql://tests@/postgres?host={self.directory}"

    def database(self, name: str) -> str:
        """The URL of a new database."""
        self._run("createdb", "-h", str(self.directory), "-U", "tests", name)
        return f"postgresql://tests@/{name}?host={self.directory}"

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(self.programs / program), *words],
            user=self.user,
            cwd="/",
            capture_output=True,
            timeout=250,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        options = {
            "listen_addresses": "",
            "unix_socket_directories": str(self.directory),
            "fsync": "off",
            "max_connections": "50",
        }
        words = [word for name, value in options.items() for word in ("-c", f"{name}={value}")]
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(self.programs / "postgres"), "-D", str(self.directory / "data"), *words],
                user=self.user,
                cwd="/",
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 120
        while not self.answers():
            assert self.process.poll() is None and time.monotonic() < deadline, (self.directory / "log").read_text()
            time.sleep(0.05)

    def answers(self) -> bool:
        words = [str(self.programs / "pg_isready"), "-q", "-h", str(self.directory)]
        return subprocess.run(words, check=False, timeout=120).returncode == 0

    def expire_lease(self) -> None:
        """As if the leader had not renewed it for as long as it lasts."""
        import psycopg

        with psycopg.connect(self.url) as database:
            database.execute("UPDATE polydomo.lease SET expires = clock_timestamp()")

    def stop(self) -> None:
        """In order, and cutting every connection."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a power cut would."""
        self._end(signal.SIGQUIT)

    def _end(self, number: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            try:
                process.wait(120)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
