"""The modules of ``packaging``, which is no package: they are loaded from their files."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def load(name: str) -> ModuleType:
    """The module ``packaging/NAME.py``; the modules beside it can be imported by it."""
    directory = str(ROOT / "packaging")
    spec = importlib.util.spec_from_file_location(f"packaging_{name}", f"{directory}/{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, directory)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(directory)
    return module
