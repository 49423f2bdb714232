"""Finds the module of a worker's function, and sends it to the executors unless it is installed."""

import importlib
import importlib.util
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polydomo.errors import SettingError
from polydomo.scratch import scratch_directory


def load(name: str) -> Callable[..., Any]:
    """The function that ``module:function`` names. Raises SettingError."""
    module_name, colon, attribute = name.partition(":")
    if not colon or not module_name or not attribute:
        raise SettingError(f"{name!r} does not name a function: write module:function, such as model:score")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise SettingError(f"cannot import {module_name!r}: {error}") from None
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise SettingError(f"{module_name!r} has no function {attribute!r}")
    function: Callable[..., Any] = found
    return function


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


def see_here(directory: Path) -> None:
    """Adds the current directory to the import path, as ``python -m`` does."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
