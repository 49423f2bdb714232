"""Finds the file of a worker's function, for executors on which it is not installed."""

import importlib.util
import sysconfig
import zipfile
from pathlib import Path

from polydomo.scratch import scratch_directory


def local_code(name: str) -> Path | None:
    """The file for ``module:function``: the module's file, or a zip of its package. None if it is installed, as on the executors."""
    top = name.partition(":")[0].partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None or spec.origin in (None, "built-in", "frozen"):
        return None
    assert spec.origin is not None
    file = Path(spec.origin).resolve()
    if any(file.is_relative_to(place) for place in _installed()):
        return None
    return zipped(file.parent) if spec.submodule_search_locations else file


def _installed() -> list[Path]:
    paths = sysconfig.get_paths()
    return [Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")]


def zipped(*packages: Path) -> Path:
    """A zip of packages, named after the first, for executors."""
    path = scratch_directory("spark") / f"{packages[0].name}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in packages:
            for file in sorted(package.rglob("*")):
                if file.is_file() and "__pycache__" not in file.parts:
                    packed.write(file, str(file.relative_to(package.parent)))
    return path
