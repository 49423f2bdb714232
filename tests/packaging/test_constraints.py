"""constraints.txt has every distribution that polydomo, its extras and its tools need, with hashes, and pip gets what a group needs."""

import importlib.metadata
import subprocess
import sys
import tomllib

import pytest

from tests.packaging.modules import ROOT, load

constraints = load("constraints")
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


@pytest.fixture(scope="module")
def needed() -> dict[str, set[str]]:
    """What each group needs, by what is installed."""
    try:
        found: dict[str, set[str]] = constraints.groups()
    except importlib.metadata.PackageNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed: only an environment with everything can be compared")
    return found


def test_every_dependency_is_in_it_with_hashes(needed: dict[str, set[str]]) -> None:
    pins = {constraints.normal(pin.name): pin for pin in constraints.read()}
    assert set(pins) == set().union(*needed.values())
    assert [name for name, pin in pins.items() if not pin.hashes] == []
    assert all(len(digest) == 64 for pin in pins.values() for digest in pin.hashes)


def test_the_groups_are_those_of_the_dependencies(needed: dict[str, set[str]]) -> None:
    assert set(needed) == {"base", "build", "compiler", *EXTRAS} - {"all"}
    for pin in constraints.read():
        assert set(pin.groups) == {group for group, names in needed.items() if constraints.normal(pin.name) in names}, (
            pin.name
        )


def test_the_installed_versions_are_those_of_the_list() -> None:
    """What the tests run with is what the list says."""
    for pin in constraints.read():
        try:
            installed = importlib.metadata.version(pin.name)
        except importlib.metadata.PackageNotFoundError:
            continue
        assert installed == pin.version, pin.name


def test_a_group_is_printed_for_pip() -> None:
    command = [sys.executable, str(ROOT / "packaging" / "constraints.py"), "select", "journal"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {line.partition("==")[0].lower() for line in printed.splitlines() if "==" in line}
    assert {"pyarrow", "numpy", "typer", "rich"} <= names
    assert not {"pyspark", "pytest", "sphinx"} & names


def test_files_of_other_systems_are_left_out() -> None:
    kept = (
        "a-1-py3-none-any.whl",
        "a-1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "a-1-cp39-abi3-macosx_11_0_arm64.whl",
    )
    left = (
        "a-1-cp311-cp311-win_amd64.whl",
        "a-1-cp310-cp310-manylinux_2_28_x86_64.whl",
        "a-1-cp313-cp313t-musllinux_1_2_x86_64.whl",
    )

    def fits(name: str) -> bool:
        return bool(constraints.TAGS.search(name)) and not constraints.ELSEWHERE.search(name)

    assert [name for name in (*kept, *left) if fits(name)] == list(kept)
