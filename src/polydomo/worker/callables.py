"""A job manager as EventMQ has it: a job names the Python callable that runs it, and a list says which callables may be named.

The body is ``["run", {"path": "package.module" or "package.module:Class", "callable": "name", "args": [], "kwargs": {}, "class_args": [],
"class_kwargs": {}}]``, and the reply ``{"value": ...}``.
"""

import importlib
import json
from collections.abc import Callable
from typing import Any

from polydomo.errors import Permanent, SettingError
from polydomo.worker.call import Call

RUN = "run"
ANY = "*"


class Allowed:
    """One entry of the list: ``module.function``, ``module:Class.method``, or with ``*`` for all that the module or class defines and that
    do not begin with an underscore."""

    def __init__(self, entry: str) -> None:
        self.path, _, self.name = entry.rpartition(".")
        if not self.path or not self.name:
            raise SettingError(
                f"{entry!r} does not name a callable: write module.function, module:Class.method or module.*"
            )
        try:
            found_at(self.path)
        except (ImportError, AttributeError) as error:
            raise SettingError(f"{entry}: {error}") from None
        if self.name != ANY and not callable(getattr(found_at(self.path), self.name, None)):
            raise SettingError(f"{entry}: {self.path} has no callable {self.name}")

    def allows(self, path: str, name: str) -> bool:
        if path != self.path:
            return False
        if self.name != ANY:
            return name == self.name
        # What a module only imports, such as subprocess.run, was not meant.
        found = vars(found_at(path)).get(name)
        module = path.partition(":")[0]
        return not name.startswith("_") and callable(found) and getattr(found, "__module__", None) == module


class Callables:
    """The function of the service: runs what the list allows."""

    def __init__(self, entries: list[str]) -> None:
        if not entries:
            raise SettingError("callables: the list is empty; name those that jobs may run, such as tasks.send_mail")
        self._allowed = [Allowed(entry) for entry in entries]

    def __call__(self, call: Call) -> str:
        job = read_job(call)
        path, name = str(job.get("path")), str(job.get("callable"))
        if not any(entry.allows(path, name) for entry in self._allowed):
            raise Permanent(f"{path}.{name} is not in the list of callables that this worker may run")
        value = self._found(path, name, job)(*_list(job, "args"), **_dict(job, "kwargs"))
        return json.dumps({"value": value})

    def _found(self, path: str, name: str, job: dict[str, Any]) -> Callable[..., Any]:
        found = found_at(path)
        if isinstance(found, type):
            found = found(*_list(job, "class_args"), **_dict(job, "class_kwargs"))
        function: Callable[..., Any] = getattr(found, name)
        return function


def read_job(call: Call) -> dict[str, Any]:
    """The job in a request. Raises Permanent, because another attempt would read the same."""
    try:
        kind, job = call.json()
    except (ValueError, TypeError, RecursionError):
        kind, job = None, None
    if kind != RUN or not isinstance(job, dict):
        raise Permanent('the request is not a job: ["run", {"path": ..., "callable": ...}]')
    return job


def found_at(path: str) -> Any:
    """The module or class that a path names. Raises ImportError and AttributeError."""
    module, colon, cls = path.partition(":")
    found: Any = importlib.import_module(module)
    return getattr(found, cls) if colon else found


def _list(job: dict[str, Any], key: str) -> list[Any]:
    found = job.get(key) or []
    if not isinstance(found, list):
        raise Permanent(f"{key} is not a list")
    return found


def _dict(job: dict[str, Any], key: str) -> dict[str, Any]:
    found = job.get(key) or {}
    if not isinstance(found, dict):
        raise Permanent(f"{key} is not an object")
    return found
