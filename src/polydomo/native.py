"""Whether the core is compiled, and decorators for compiled classes.

``wire``, ``protocols``, ``broker`` and the hot modules of other layers are compiled with mypyc in released wheels, and run
interpreted otherwise; see ``packaging/compiled_core.py``. This module is never compiled.
"""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr as mypyc_attr
    from mypy_extensions import trait as trait
else:

    def mypyc_attr(**_options):
        """Options that mypyc reads. ``allow_interpreted_subclasses``: a class outside of the compiled modules may inherit. Such a class
        must set the attributes that it changes in ``__init__``: compiled code does not look at attributes of classes."""
        return lambda cls: cls

    def trait(cls):
        """Marks an interface: a compiled class may inherit from one other class besides it."""
        return cls


def is_compiled() -> bool:
    """The core is the compiled one. Looks for it without importing it."""
    found = find_spec("polydomo.broker.broker")
    return found is not None and not str(found.origin).endswith(".py")


def core() -> str:
    """The form of the core: "compiled" or "interpreted"."""
    return "compiled" if is_compiled() else "interpreted"


def form() -> str:
    """The form of the core and the Python that runs it, for people."""
    return f"{core()} core, Python {sys.version.partition(' ')[0]}"
