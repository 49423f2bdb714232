"""Builds and checks a release: ``make release``.

    python packaging/release.py --to dist [--python python3.12 ...] [--pure] [--once] [--unchecked]

1. exports the last commit, and builds the source distribution, a pure wheel, and a compiled wheel for each Python that is found;
2. writes the bill of materials (sbom.py) and ``SHA256SUMS``;
3. builds all of it again elsewhere, and compares the bytes;
4. installs each file into a fresh environment, with the pinned dependencies and without a C compiler, and runs the README's quick start.

Times inside the files are those of the commit: whoever builds the same commit with the same Python and C compiler gets the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import backend
import constraints
import sbom

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (3, 11)
NEWEST = (3, 14)
START_TIME = 60.0  # seconds; for the broker and the worker of the quick start


class Failed(Exception):
    """A step of the release failed; the message says what to do."""


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    """The output of the command."""
    done = subprocess.run([str(word) for word in command], cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


# --- Pythons and environments ------------------------------------------------------------------------------------------


def version_of(python: str | Path) -> tuple[int, int] | None:
    """Its version, if it runs and can make environments."""
    code = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    try:
        major, minor = subprocess.run(
            [str(python), "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    except (OSError, subprocess.CalledProcessError):
        return None
    return int(major), int(minor)


def pythons() -> dict[tuple[int, int], str]:
    """The Pythons of this machine that polydomo supports, one per minor version: on the path, and those of pyenv."""
    names = [f"python3.{minor}" for minor in range(OLDEST[1], NEWEST[1] + 1)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    places = [sys.executable, *names, *(str(path) for path in sorted(pyenv.glob("*/bin/python"), reverse=True))]
    found: dict[tuple[int, int], str] = {}
    for place in places:
        version = version_of(place)
        if version is not None and OLDEST <= version <= NEWEST:
            found.setdefault(version, place)
    return dict(sorted(found.items()))


def environment(python: str, directory: Path, *groups: str) -> Path:
    """A fresh environment with the pinned distributions of the groups; its interpreter."""
    run(python, "-m", "venv", directory)
    made = directory / "bin" / "python"
    pinned = directory / "pinned.txt"
    pinned.write_text("".join(pin.requirement() + "\n" for pin in constraints.select(groups)))
    run(made, "-m", "pip", "install", "-qq", "--no-compile", "--require-hashes", "--no-deps", "-r", pinned)
    return made


# --- building ----------------------------------------------------------------------------------------------------------


def committed() -> int:
    """The time of the commit."""
    return int(run("git", "log", "-1", "--format=%ct"))


def export(target: Path) -> None:
    target.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(target, filter="data")


def settle(sdist: Path, when: int) -> None:
    """Writes the archive again, with the same order, times and owners on every machine."""
    with tarfile.open(sdist) as old:
        contents = {entry.name: (entry, old.extractfile(entry)) for entry in old}
        entries = [(entry, file.read() if file is not None else b"") for _, (entry, file) in sorted(contents.items())]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for entry, content in entries:
            clean = tarfile.TarInfo(entry.name)
            clean.type, clean.size, clean.mtime = entry.type, len(content), when
            clean.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
            new.addfile(clean, io.BytesIO(content))
    sdist.write_bytes(gzip.compress(packed.getvalue(), mtime=when))


def platform() -> str:
    """The platform in the wheels' names. On Linux it names this machine's C library: a wheel needs it, or a newer one."""
    name = f"{os.uname().sysname.lower()}-{os.uname().machine}"
    library = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    match = re.fullmatch(r"glibc (\d+)\.(\d+).*", library or "")
    return f"manylinux_{match[1]}_{match[2]}-{os.uname().machine}" if match else name


def build(target: Path, chosen: dict[tuple[int, int], str], work: Path, compiled: bool) -> list[Path]:
    """The files of the release, in ``target``."""
    target.mkdir(parents=True, exist_ok=True)
    when = committed()
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(when), "PYTHONHASHSEED": "0"}
    env.pop("POLYDOMO_COMPILED", None)
    source = work / "source"
    export(source)
    builder = environment(next(iter(chosen.values())), work / "builder", "build")
    code = "import sys; sys.path.insert(0, 'packaging'); import backend; print(backend.build_sdist(sys.argv[1]))"
    sdist = target / run(builder, "-c", code, target, cwd=source, env=env).split()[-1]
    settle(sdist, when)
    made = [sdist]
    for version, python in [(None, builder), *(chosen.items() if compiled else ())]:
        # Each wheel is built from the source distribution, which so is shown to be complete.
        unpacked = work / "unpacked"
        shutil.rmtree(unpacked, ignore_errors=True)
        with tarfile.open(sdist) as tar:
            tar.extractall(unpacked, filter="data")
        inside = next(unpacked.iterdir())
        # Debugging information names the sources, and the headers that mypyc brings in the environment of the builder.
        flags = f"{os.environ.get('CFLAGS', '')} -ffile-prefix-map={work}=.".strip()
        maker = python
        if version is not None:
            maker = environment(str(python), work / f"builder-{version[0]}.{version[1]}", "compiler")
        own = (
            {"POLYDOMO_COMPILED": "1", "_PYTHON_HOST_PLATFORM": platform(), "CFLAGS": flags}
            if version is not None
            else {}
        )
        say(
            f"building the {'pure wheel' if version is None else f'compiled wheel for Python {version[0]}.{version[1]}'}"
        )
        before = set(target.glob("*.whl"))
        pip = ("-m", "pip", "wheel", "-qq", "--no-deps", "--no-build-isolation", "--wheel-dir")
        run(maker, *pip, target, inside, env={**env, **own})
        made += sorted(set(target.glob("*.whl")) - before)
    return made


def digests(files: list[Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def describe(target: Path, files: list[Path]) -> None:
    """The bill of materials and the checksums."""
    version = files[0].name.removeprefix("polydomo-").removesuffix(".tar.gz")
    created = datetime.fromtimestamp(committed(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    bom = target / f"polydomo-{version}.cdx.json"
    bom.write_text(sbom.document(version, created, constraints.read(), digests(files)))
    sums = digests([*files, bom])
    (target / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())))


# --- checking ----------------------------------------------------------------------------------------------------------


def lines_of(process: "subprocess.Popen[str]", log: Path, word: str) -> str:
    """Waits until ``word`` is in the log of the process, and returns the log."""
    began = time.monotonic()
    while word not in (text := log.read_text()):
        if process.poll() is not None or time.monotonic() - began > START_TIME:
            raise Failed(f"{process.args} did not say {word!r}:\n{text}")
        time.sleep(0.1)
    return text


def quick_start(bin: Path, work: Path) -> None:
    """The first commands of the README, with a port that is free."""
    env = {**os.environ, "PATH": f"{bin}:/usr/bin:/bin"}
    started: list[subprocess.Popen[str]] = []

    def start(name: str, *command: str) -> tuple["subprocess.Popen[str]", Path]:
        log = work / f"{name}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [str(bin / "polydomo"), *command], cwd=work, env=env, text=True, stdout=output, stderr=output
            )
        started.append(process)
        return process, log

    try:
        text = lines_of(*start("broker", "up", "--listen", "tcp://127.0.0.1:0", "--data", str(work / "data")), "ready")
        match = re.search(r"tcp://127\.0\.0\.1:\d+", text)
        if match is None:
            raise Failed(f"the broker does not name its address:\n{text}")
        start("worker", "work", "upper", "--to", match[0], "--", "tr", "a-z", "A-Z")
        answer = run(bin / "polydomo", "call", "upper", "hello, world", "--to", match[0], "--timeout", "60", env=env)
        if answer.strip() != "HELLO, WORLD":
            raise Failed(f"the quick start answered {answer!r}")
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait()


def check(file: Path, python: str, work: Path) -> None:
    """Installs it where there is no C compiler, and runs it."""
    work.mkdir()
    made = environment(python, work / "env", "journal", *(("build",) if file.suffix == ".gz" else ()))
    env = {**os.environ, "CC": "/nowhere/cc"}
    for name in ("POLYDOMO_COMPILED", "PYTHONPATH"):
        env.pop(name, None)
    isolation = ("--no-build-isolation",) if file.suffix == ".gz" else ()
    run(made, "-m", "pip", "install", "-qq", "--no-deps", *isolation, file, env=env)
    shown = run(made.parent / "polydomo", "--version", cwd=work, env=env)
    form = "interpreted" if file.suffix == ".gz" or file.name.endswith("-none-any.whl") else "compiled"
    if f"{form} core" not in shown:
        raise Failed(f"{file.name} says {shown.strip()!r}; expected a core that is {form}")
    quick_start(made.parent, work)
    say(f"{file.name}: installed and tried; {shown.strip()}")


def checks(files: list[Path], chosen: dict[tuple[int, int], str]) -> Iterator[tuple[Path, str]]:
    """Each file with the Python for it."""
    for file in files:
        tag = re.search(r"-cp(\d)(\d+)-", file.name)
        yield file, chosen[int(tag[1]), int(tag[2])] if tag else next(iter(chosen.values()))


def release(target: Path, chosen: dict[tuple[int, int], str], compiled: bool, twice: bool, checked: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="polydomo-release-") as scratch:
        work = Path(scratch)
        fresh = work / "dist"
        files = build(fresh, chosen, work / "first", compiled)
        describe(fresh, files)
        if twice:
            again = build(work / "again", chosen, work / "second", compiled)
            if digests(files) != digests(again):
                differ = [name for name, digest in digests(files).items() if digests(again).get(name) != digest]
                raise Failed(f"a second build differs in {', '.join(differ)}")
            say("a second build gave the same bytes")
        if checked:
            for number, (file, python) in enumerate(checks(files, chosen)):
                check(file, python, work / f"check-{number}")
        target.mkdir(exist_ok=True)
        for old in [*target.glob("polydomo-*"), *target.glob("SHA256SUMS")]:
            old.unlink()
        for path in sorted(fresh.iterdir()):
            shutil.copy(path, target)
            say(f"{target.name}/{path.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Build and check a release of the last commit.")
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="directory of the files (default: dist)")
    parser.add_argument(
        "--python", action="append", help="a Python to build for (default: all that are found); repeatable"
    )
    parser.add_argument("--list", action="store_true", help="only print the Pythons that are found")
    parser.add_argument("--pure", action="store_true", help="no compiled wheels")
    parser.add_argument("--once", action="store_true", help="do not build a second time to compare")
    parser.add_argument("--unchecked", action="store_true", help="do not install and try the files")
    arguments = parser.parse_args()
    chosen = pythons()
    if arguments.python:
        chosen = {version: python for python in arguments.python if (version := version_of(python)) is not None}
    if arguments.list:
        for version, python in chosen.items():
            print("{}.{}".format(*version), python)
        return
    if not chosen:
        parser.exit(1, "release: no Python 3.11 or newer with its venv module was found; name one with --python\n")
    if not arguments.pure and backend.obstacle():
        parser.exit(
            1,
            "release: compiled wheels need a C compiler and Python's headers (gcc, python3-dev); --pure leaves them out\n",
        )
    if run("git", "status", "--porcelain"):
        say("there are changes that are not committed: the release is that of the last commit")
    try:
        release(arguments.to, chosen, not arguments.pure, not arguments.once, not arguments.unchecked)
    except Failed as error:
        parser.exit(1, f"release: {error}\n")


if __name__ == "__main__":
    main()
