"""Makes the environment of the real programs that the tests of this directory run: ``python install.py DIRECTORY``.

They are published packages, installed by name and kept apart from the project's own environment, since they are old and their pins would
hold everything else back. Without a registry to install from there is a file ``failed`` in the directory that says why, and the tests
that need them are skipped with that reason; the status is 0 all the same.
"""

import subprocess
import sys
import venv
from pathlib import Path

# What they import, in today's versions.
NEEDED = [
    "croniter",
    "future",
    "monotonic",
    "psutil",
    "pyzmq",
    "six",
    "tornado",
    "figcan",
    "pyyaml",
    "setuptools<58",
    "wheel",
]
# EventMQ pins versions from 2015 that no longer build: without its pins it runs.
PACKAGES = ["majortomo==0.2.0", "eventmq==0.3.13"]
# pyzmq-mdp's setup asks for 2to3, which setuptools had until 58 and Python until 3.13; netifaces has to be compiled.
OPTIONAL = ["pyzmq-mdp==0.2", "hermes-lnestelroad==1.0.2 netifaces==0.11.0"]


def install(directory: Path, *words: str) -> None:
    pip = [str(directory / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--no-input", "-qqq"]
    done = subprocess.run(
        [*pip, "install", "--retries", "1", "--timeout", "15", *words], capture_output=True, text=True
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"pip ended with status {done.returncode}"]
        raise RuntimeError(lines[-1])


def main(directory: Path) -> None:
    for stamp in ("done", "failed"):
        (directory / stamp).unlink(missing_ok=True)
    try:
        venv.create(directory, with_pip=True)
        install(directory, *NEEDED)
        install(directory, "--no-deps", *PACKAGES)
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        directory.mkdir(exist_ok=True)
        (directory / "failed").write_text(f"{error}\n", encoding="utf-8")
        print(f"    not installed, so the tests that need them are skipped: {error}")
        return
    for package in OPTIONAL:
        try:
            install(directory, "--no-deps", "--no-build-isolation", *package.split())
        except RuntimeError as error:
            print(f"    without {package}, whose tests are skipped: {error}")
    (directory / "done").touch()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
