"""The attributes of an object, also of one whose class is compiled and has no ``__dict__``."""

from typing import TypeVar

T = TypeVar("T")


def attributes(thing: object, kind: type[T]) -> dict[str, T]:
    """The values of this kind that the object itself has, by name."""
    if hasattr(thing, "__dict__"):
        return {name: value for name, value in vars(thing).items() if isinstance(value, kind)}
    found = {name: getattr(thing, name, None) for name in dir(thing) if not name.startswith("__")}
    return {name: value for name, value in found.items() if isinstance(value, kind)}
