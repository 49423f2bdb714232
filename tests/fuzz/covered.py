"""One target under atheris: ``python -m tests.fuzz.covered TARGET [options of libFuzzer]``.

Everything is imported after atheris, which watches it.
"""

import importlib
import sys

if __name__ == "__main__":
    atheris = importlib.import_module("atheris")  # installed by `make fuzz` alone
    with atheris.instrument_imports(include=["polydomo", "tests.fuzz"]):
        targets = importlib.import_module("tests.fuzz.targets")
        importlib.import_module("tests.fuzz.fast_paths")
        importlib.import_module("tests.fuzz.security")
        importlib.import_module("tests.fuzz.web")
    function = targets.TARGETS[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], function)
    atheris.Fuzz()
