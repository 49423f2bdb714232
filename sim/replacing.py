"""Replaces functions of the broker for a while, for mutants and tests.

In the interpreted core, an attribute of a module or class is patched. Compiled code does not look those up: there it works only in the
build for tests (``make test-compiled``), which has seams in all functions that are replaced with ``swap`` (``packaging/seams.py``).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any
from unittest.mock import patch

from polydomo.native import is_compiled

SEAMS = find_spec("polydomo.seams") is not None
CAN_REPLACE = SEAMS or not is_compiled()


def original(owner: Any, name: str) -> Any:
    """The function ``owner.name``, for a replacement that calls it."""
    return getattr(owner, f"{name}__original", None) or getattr(owner, name)


def swap(stack: ExitStack, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replaces the function ``owner.name`` by what ``make`` makes of it, until the stack is closed."""
    stack.enter_context(_replaced(owner, name, make))


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    plain = original(owner, name)
    if not hasattr(owner, f"{name}__original"):
        with patch.object(owner, name, make(plain)):
            yield
        return
    from polydomo.seams import REPLACED  # type: ignore[import-not-found]

    where = owner.__name__ if isinstance(owner, ModuleType) else f"{owner.__module__}.{owner.__qualname__}"
    key = f"{where}.{name}"
    before = REPLACED.get(key)
    REPLACED[key] = make(before or plain)
    try:
        yield
    finally:
        if before is None:
            del REPLACED[key]
        else:
            REPLACED[key] = before


def set_limit(stack: ExitStack, name: str, value: float, *modules: ModuleType) -> None:
    """Changes a number of ``limits.py`` in modules that use it."""
    for module in modules:
        stack.enter_context(patch.object(module, name, value))
