"""`make release`: the same bytes each time, a valid bill of materials, and files that work where they are installed.

The full form (`make test-long`) builds for every Python of this machine; here the source distribution is built, twice, and read.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.packaging.modules import ROOT, load

release = load("release")
sbom = load("sbom")
constraints = load("constraints")

WHEN = 1_700_000_000
CREATED = "2023-11-14T22:13:20Z"


def archive(path: Path, names: list[str], mtime: int) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            (path.parent / "content").write_text(name)
            entry = tar.gettarinfo(path.parent / "content", name)
            entry.mtime = mtime
            entry.uid = mtime % 1000
            with (path.parent / "content").open("rb") as content:
                tar.addfile(entry, content)
    return path


def test_an_archive_is_the_same_on_every_machine(tmp_path: Path) -> None:
    """Order, times and owners of its entries do not depend on where it was made; their contents stay."""
    one = archive(tmp_path / "one.tar.gz", ["p/b", "p/a"], 1)
    two = archive(tmp_path / "two.tar.gz", ["p/a", "p/b"], 1_000_000)
    assert one.read_bytes() != two.read_bytes()
    for path in (one, two):
        release.settle(path, WHEN)
    assert one.read_bytes() == two.read_bytes()
    with tarfile.open(one) as tar:
        assert [(entry.name, entry.mtime, entry.uid) for entry in tar] == [("p/a", WHEN, 0), ("p/b", WHEN, 0)]
        content = tar.extractfile("p/b")
        assert content is not None and content.read() == b"p/b"


def test_the_bill_of_materials_has_what_runs_and_nothing_else() -> None:
    files = {"polydomo-1.0.tar.gz": "0" * 64}
    text = sbom.document("1.0", CREATED, constraints.read(), files)
    assert text == sbom.document("1.0", CREATED, constraints.read(), files)
    bom = json.loads(text)
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert bom["metadata"]["component"]["components"][0]["hashes"] == [{"alg": "SHA-256", "content": "0" * 64}]
    parts = {part["name"].lower(): part for part in bom["components"]}
    pins = {pin.name.lower(): pin.version for pin in constraints.read()}
    assert all(pins[name] == part["version"] for name, part in parts.items())
    assert parts["typer"]["scope"] == "required"
    assert parts["pyarrow"]["scope"] == "optional"
    assert "journal" in parts["pyarrow"]["properties"][0]["value"].split()
    assert not {"pytest", "sphinx", "mypy"} & set(parts)
    refs = [part["bom-ref"] for part in bom["components"]]
    assert len(refs) == len(set(refs))
    assert set(bom["dependencies"][0]["dependsOn"]) <= set(refs)


def test_every_python_of_this_machine_is_found_once() -> None:
    found = release.pythons()
    assert sys.version_info[:2] in found
    assert all(release.OLDEST <= version <= release.NEWEST for version in found)
    assert release.version_of("/nowhere/python") is None


def test_what_is_missing_is_named() -> None:
    command = [sys.executable, str(ROOT / "packaging" / "release.py"), "--python", "/nowhere/python"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert "no Python 3.11 or newer" in ended.stderr


def test_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    sdist = tmp_path / "polydomo-9.9.tar.gz"
    sdist.write_bytes(b"content")
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("the time of a release is that of its commit, and this is no git checkout")
    release.describe(tmp_path, [sdist])
    lines = (tmp_path / "SHA256SUMS").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    assert set(sums) == {sdist.name, "polydomo-9.9.cdx.json"}
    assert sums[sdist.name] == hashlib.sha256(b"content").hexdigest()


@pytest.mark.long
@pytest.mark.timeout(3500)
def test_a_release(tmp_path: Path) -> None:
    """Every file is built twice with the same bytes, installed where there is no C compiler, and answers the quick start."""
    if not (ROOT / ".git").exists():
        pytest.skip("a release is built from a commit, and this is no git checkout")
    command = [sys.executable, str(ROOT / "packaging" / "release.py"), "--to", str(tmp_path / "dist")]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    names = {path.name for path in (tmp_path / "dist").iterdir()}
    assert any(name.endswith("-py3-none-any.whl") for name in names)
    for major, minor in release.pythons():
        assert any(f"-cp{major}{minor}-" in name for name in names), names
