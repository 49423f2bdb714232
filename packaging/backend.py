"""The build backend (PEP 517): setuptools, and mypyc for the core if POLYDOMO_COMPILED=1.

Without that variable, the core is installed interpreted, which takes seconds and needs neither a C compiler nor mypy. With it, the build
fails where the core cannot be compiled. An editable install is always interpreted.
"""

import os
import shutil
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

CHOICE = "POLYDOMO_COMPILED"  # "1": compile
COMPILE = "POLYDOMO_COMPILE_CORE"  # for setup.py
COMPILER = "mypy>=2.4,<3"


def wanted() -> bool:
    """Whether the core is to be compiled."""
    return os.environ.get(CHOICE) == "1"


def obstacle() -> str:
    """Why the core cannot be compiled; empty if it can be."""
    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    if shutil.which(command.split()[0]) is None:
        return f"no C compiler ({command.split()[0]}) was found"
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        return "the headers of Python are not installed (python3-dev)"
    return ""


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    needed: list[str] = build_meta.get_requires_for_build_wheel(config_settings)
    return [*needed, COMPILER] if wanted() else needed


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    if wanted():
        why = obstacle()
        if why:
            raise RuntimeError(f"polydomo: the core cannot be compiled: {why}")
        os.environ[COMPILE] = "1"
    try:
        made: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
        return made
    finally:
        os.environ.pop(COMPILE, None)
