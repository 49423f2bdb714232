"""Adds the compiled core to a wheel where ``packaging/backend.py`` says so. Everything else is in pyproject.toml."""

import os
import sys
from pathlib import Path

from setuptools import setup

if os.environ.get("POLYDOMO_COMPILE_CORE") == "1":
    sys.path.insert(0, str(Path(__file__).parent / "packaging"))
    import compiled_core

    setup(
        ext_modules=compiled_core.extensions(compiled_core.OPTIMISED),
        cmdclass={"build_ext": compiled_core.BuildExtensions},
    )
else:
    setup()
