"""The words of ``polydomo work``: which services it offers, and what serves them."""

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from polydomo.errors import SettingError
from polydomo.worker import loading
from polydomo.worker.callables import Callables

FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")  # MODULE:FUNCTION


@dataclass
class Served:
    names: list[bytes]
    program: list[str] = field(default_factory=list)  # it serves the first name
    # They serve the names. Without a program and functions, the worker is an echo.
    functions: dict[bytes, Callable[..., Any]] = field(default_factory=dict)


def read(words: list[str], echo: bool, allow: list[str], protocol: str) -> Served:
    """Raises SettingError."""
    names = [os.fsencode(word) for word in words]
    if allow:
        if echo or protocol != "emqp":
            raise SettingError(
                "--allow: makes the worker a job manager of EventMQ; use it with -p emqp, without --echo"
            )
        loading.see_here(Path.cwd())
        try:
            manager = Callables(allow)
        except SettingError as error:
            raise SettingError(f"--allow: {error}") from None
        return Served(names, functions=dict.fromkeys(names, manager))
    if echo:
        for word in words[1:]:
            if shutil.which(word) or FUNCTION.fullmatch(word):
                raise SettingError(f"work: give a function or a program, or --echo, not both: {word!r}")
        return Served(names)
    if len(words) < 2:
        raise SettingError("work: give a function as MODULE:FUNCTION, a program after --, or --echo")
    if not FUNCTION.fullmatch(words[1]):
        return Served(names[:1], program=words[1:])
    if len(words) % 2:
        raise SettingError(f"work: {words[-1]!r} has no function; give pairs of SERVICE and MODULE:FUNCTION")
    loading.see_here(Path.cwd())
    return Served(
        names[::2], functions={os.fsencode(words[i]): loading.load(words[i + 1]) for i in range(0, len(words), 2)}
    )
