"""The versions and hashes with which polydomo is tested: ``constraints.txt``.

    python packaging/constraints.py select GROUP...   requirements of these groups, for pip --require-hashes --no-deps -r
    python packaging/constraints.py renew             writes constraints.txt anew, from what is installed and the package index

A group is ``base`` (what polydomo itself needs), an extra of pyproject.toml, ``build`` (what builds a wheel), ``compiler`` (what compiles
the core), or ``all``. The comment above each distribution names its groups. pip checks hashes only if every distribution is listed with
one, so `make` installs these lists without resolving anything, and then polydomo itself without its dependencies.
"""

import argparse
import importlib.metadata
import re
import sys
import tomllib
import urllib.request
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "constraints.txt"
HEAD = (
    "# The versions polydomo was tested with, and the hashes of their files, for `make`. `pip install polydomo` does not need it.\n"
    "# Written by `python packaging/constraints.py renew`; the comment above each distribution names the groups that need it.\n"
)
# pip first: old ones take twice as long for the rest.
TOOLS = {"build": ("setuptools",), "compiler": ("mypy", "pip", "setuptools")}
# Files of Linux and macOS, for CPython 3.11 to 3.14.
TAGS = re.compile(r"-(cp31[1-4]-cp31[1-4]|cp3\d+-abi3|py2\.py3-none|py3-none|py3\d-none|py2\.py3\.[\w.]*-none)-")
ELSEWHERE = re.compile(r"win32|win_|ios_|android|emscripten|wasm|pyodide|s390x|ppc64|armv|i686|riscv|loongarch")
LINK = re.compile(r'<a[^>]*href="[^"]*#sha256=([0-9a-f]{64})"[^>]*>\s*([^<]+?)\s*</a>')


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True)
class Pin:
    """One distribution of constraints.txt."""

    name: str
    version: str
    groups: tuple[str, ...]
    hashes: tuple[str, ...]

    def requirement(self) -> str:
        return " \\\n    ".join(
            (f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in self.hashes))
        )

    def text(self) -> str:
        return f"# {' '.join(self.groups)}\n{self.requirement()}\n"


def read(path: Path = FILE) -> list[Pin]:
    pins: list[Pin] = []
    groups: tuple[str, ...] = ()
    for line in path.read_text().replace("\\\n", " ").splitlines():
        if line.startswith("#"):
            groups = tuple(line[1:].split())
        elif line.strip():
            requirement, *options = line.split()
            name, _, version = requirement.partition("==")
            pins.append(Pin(name, version, groups, tuple(option.removeprefix("--hash=sha256:") for option in options)))
    return pins


def select(groups: Iterable[str]) -> list[Pin]:
    wanted = set(groups)
    return [pin for pin in read() if "all" in wanted or wanted & set(pin.groups)]


# --- renewing ----------------------------------------------------------------------------------------------------------


def needs(requirements: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names and extras of the requirements that hold for this Python."""
    from packaging.requirements import Requirement

    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield normal(requirement.name), ""
            yield from ((normal(requirement.name), extra) for extra in requirement.extras)


def installed_needs(name: str, extra: str) -> Iterator[tuple[str, str]]:
    """What an installed distribution needs, or what its extra adds to that."""
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        always = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if (
            always
            if not extra
            else not always and requirement.marker is not None and requirement.marker.evaluate({"extra": extra})
        ):
            yield normal(requirement.name), ""
            yield from ((normal(requirement.name), further) for further in requirement.extras)


def closure(roots: Iterable[tuple[str, str]], project: dict[str, list[str]]) -> set[str]:
    """All distributions that ``roots`` need; ``project`` has the requirements of polydomo's own extras."""
    found: set[tuple[str, str]] = set()
    waiting = list(roots)
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in found:
            continue
        found.add((name, extra))
        if name == "polydomo":
            waiting += needs(project[extra]) if extra else ()
        else:
            waiting += installed_needs(name, extra)
    return {name for name, _ in found if name != "polydomo"}


def groups() -> dict[str, set[str]]:
    """The distributions of each group, by what is installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    base = closure(needs(project["dependencies"]), extras)
    made = {"base": base} | {tools: closure(needs(names), extras) for tools, names in TOOLS.items()}
    made |= {extra: base | closure([("polydomo", extra)], extras) for extra in extras if extra != "all"}
    return made


def release_hashes(name: str, version: str) -> tuple[str, ...]:
    """Hashes of the release's files for the systems that we support, from the index that pip uses by default."""
    from pip._internal.models.index import PyPI

    with urllib.request.urlopen(f"{PyPI.simple_url}/{normal(name)}/", timeout=60) as answer:
        page = answer.read().decode()
    found = []
    for digest, file in LINK.findall(page):
        is_source = file.endswith(".tar.gz")
        of = file.removesuffix(".tar.gz").rpartition("-")[2] if is_source else file.split("-")[1]
        if of == version and (is_source or (TAGS.search(file) and not ELSEWHERE.search(file))):
            found.append(digest)
    return tuple(sorted(found))


def renew() -> None:
    needed = groups()
    names = sorted(set().union(*needed.values()))

    def pin(name: str) -> Pin:
        version = importlib.metadata.version(name)
        of = tuple(sorted(group for group, members in needed.items() if name in members))
        hashes = release_hashes(name, version)
        if not hashes:
            raise SystemExit(f"the index has no file of {name} {version} for Linux or macOS")
        return Pin(importlib.metadata.metadata(name)["Name"], version, of, hashes)

    with ThreadPoolExecutor(8) as pool:
        FILE.write_text(HEAD + "".join(each.text() for each in pool.map(pin, names)))


def main() -> None:
    parser = argparse.ArgumentParser(description="Select from constraints.txt, or renew it.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("select", help="print the requirements of groups").add_argument("groups", nargs="+")
    commands.add_parser("renew", help="write constraints.txt anew")
    arguments = parser.parse_args()
    if arguments.command == "renew":
        renew()
    else:
        sys.stdout.write("".join(pin.requirement() + "\n" for pin in select(arguments.groups)))


if __name__ == "__main__":
    main()
