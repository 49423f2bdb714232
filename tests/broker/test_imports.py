"""Any module of the broker can be the first that a program imports: no order of imports is required."""

import subprocess
import sys

import pytest

from polydomo.native import is_compiled

PROGRAM = """
import importlib, pkgutil, sys
import polydomo.broker

for module in pkgutil.walk_packages(polydomo.broker.__path__, "polydomo.broker."):
    for name in [name for name in sys.modules if name.startswith("polydomo")]:
        del sys.modules[name]
    importlib.import_module(module.name)
    print(module.name)
"""


@pytest.mark.skipif(is_compiled(), reason="a compiled module cannot be loaded twice in one process")
def test_every_module_can_be_imported_first() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) > 50
