"""The build backend (PEP 517): setuptools, and mypyc for the core where a C compiler is present.

POLYDOMO_COMPILED=0 builds without compiling; POLYDOMO_COMPILED=1 fails where the core cannot be compiled. Otherwise a core that cannot be
compiled is installed interpreted, and one line says why. An editable install is always interpreted, and needs neither compiler nor mypy.
"""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, Any] | None

CHOICE = "POLYDOMO_COMPILED"  # "0" or "1"; otherwise, if possible
COMPILE = "POLYDOMO_COMPILE_CORE"  # for setup.py
COMPILER = "mypy>=2.4,<3"


def obstacle() -> str:
    """Why the core is not compiled; empty if it can be."""
    if os.environ.get(CHOICE) == "0":
        return f"{CHOICE}=0"
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(command.split()[0]) is None:
        return f"no C compiler ({command.split()[0]}) was found"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "the headers of Python are not installed (python3-dev)"
    return ""


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    needed: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    return needed if obstacle() else [*needed, COMPILER]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    why = obstacle()
    must = os.environ.get(CHOICE) == "1"
    if not why:
        os.environ[COMPILE] = "1"
        try:
            made: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
            return made
        except (Exception, SystemExit) as error:
            if must:
                raise
            why = f"compiling failed: {type(error).__name__}: {error}"
        finally:
            del os.environ[COMPILE]
    if must:
        raise RuntimeError(f"polydomo: the core cannot be compiled: {why}")
    print(f"polydomo: the core is installed interpreted, not compiled: {why}", file=sys.stderr)
    plain: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return plain
