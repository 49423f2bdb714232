"""Functions that serve several calls at once: how many, and one outcome for each call.

```python
@worker.service("embed", batch=32, wait="5ms")
def embed(calls):
    return [model.embed(call.text) for call in calls]
```

The function gets a list of calls and returns a list (or tuple) with one outcome for each, in their order: a result, or an exception with
which that call fails.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from polydomo.errors import SettingError
from polydomo.limits import BATCH_WAIT, MAX_BATCH, MAX_BATCH_WAIT
from polydomo.model.durations import EXPECTED, read_duration
from polydomo.worker.call import Call, Forward, body_of

BatchFunction = Callable[[list[Call]], Any]  # returns the outcomes, or something to await for them
Outcome = list[bytes] | Forward | Exception  # of one call

R = TypeVar("R")


@dataclass(frozen=True)
class BatchSize:
    """A batch begins when it has ``most`` calls, or ``wait`` seconds after its first call arrived."""

    most: int
    wait: float

    def __post_init__(self) -> None:
        if not 1 <= self.most <= MAX_BATCH:
            raise SettingError(f"batch: must be 1 to {MAX_BATCH}, not {self.most}")
        if not 0 <= self.wait <= MAX_BATCH_WAIT:
            raise SettingError(f"wait: must be 0 to {MAX_BATCH_WAIT:g} s, not {self.wait:g} s")


def read_size(batch: int | None, wait: str | float | None) -> BatchSize | None:
    """The arguments of ``service`` and ``add``; None for a function of one call. Raises SettingError.

    >>> read_size(32, "5ms"), read_size(None, None)
    (BatchSize(most=32, wait=0.005), None)
    """
    if batch is None:
        if wait is not None:
            raise SettingError("wait: belongs to a batch; give batch= too, such as batch=32")
        return None
    seconds = BATCH_WAIT if wait is None else read_duration(wait)
    if seconds is None:
        raise SettingError(f"wait: expected {EXPECTED}, not {wait!r}")
    return BatchSize(batch, seconds)


def check_function(name: bytes, function: Callable[..., Any]) -> None:
    """Raises SettingError for a generator: a call of a batch has one reply."""
    target = function if inspect.isroutine(function) else type(function).__call__
    if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
        shown = name.decode(errors="replace")
        raise SettingError(f"batch: the function of {shown!r} is a generator; one that gets batches returns a list")


def outcomes_of(value: object, count: int) -> list[Outcome]:
    """What a function returned for ``count`` calls, as the outcome of each.

    >>> outcomes_of(["a", ValueError("b"), None], 3)
    [[b'a'], ValueError('b'), []]
    """
    return [_outcome_of(each) for each in listed_values(value, count)]


def listed_values(value: object, count: int) -> list[Any]:
    """The returned values, one for each of ``count`` calls. Raises TypeError and ValueError."""
    if not isinstance(value, list | tuple):
        raise TypeError(f"a function that gets batches must return a list, not {type(value).__name__}")
    if len(value) != count:
        raise ValueError(f"the function returned {len(value)} outcomes for a batch of {count} calls")
    return list(value)


def _outcome_of(value: object) -> Outcome:
    if isinstance(value, Forward | Exception):
        return value
    try:
        return body_of(value)
    except TypeError as error:
        return error


def with_each_read(
    calls: list[Call],
    read: Callable[[Call], R],
    run: Callable[[list[R]], Any],
    write: Callable[[Any], object] = lambda value: value,
) -> Any:
    """Reads each call's arguments, and passes those of all calls without an error to ``run``. Returns the outcomes of all calls, written,
    or an awaitable for them if ``run`` returns one."""
    found: list[Any] = []
    good: list[tuple[int, R]] = []
    for place, call in enumerate(calls):
        try:
            good.append((place, read(call)))
            found.append(None)
        except Exception as error:
            found.append(error)

    def joined(value: object) -> list[Any]:
        for (place, _), each in zip(good, listed_values(value, len(good)), strict=True):
            found[place] = each if isinstance(each, Exception) else _written(each, write)
        return found

    async def awaited(value: Awaitable[object]) -> list[Any]:
        return joined(await value)

    if not good:
        return found
    value = run([arguments for _, arguments in good])
    return awaited(value) if inspect.isawaitable(value) else joined(value)


def _written(value: Any, write: Callable[[Any], object]) -> object:
    try:
        return write(value)
    except Exception as error:
        return error


def columns(rows: Iterable[dict[str, Any]], names: list[str]) -> dict[str, list[Any]]:
    """
    >>> columns([{"a": 1, "b": 2}, {"a": 3, "b": 4}], ["a", "b"])
    {'a': [1, 3], 'b': [2, 4]}
    """
    found: dict[str, list[Any]] = {name: [] for name in names}
    for row in rows:
        for name in names:
            found[name].append(row[name])
    return found
