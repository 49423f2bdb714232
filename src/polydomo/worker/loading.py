"""Functions that are named on a command line: ``module:function``."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polydomo.errors import SettingError


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


def see_here(directory: Path) -> None:
    """Adds the current directory to the import path, as ``python -m`` does."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))
