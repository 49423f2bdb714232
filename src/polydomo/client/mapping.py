"""``client.map``: calls a service for each of many bodies, with a limited number of open calls."""

import asyncio
import queue
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future

from polydomo.client.bulk import Body
from polydomo.client.message import Result
from polydomo.errors import CallError, ConnectionLost, SettingError

Outcome = Result | CallError


def check(outstanding: int) -> None:
    if outstanding < 1:
        raise SettingError(f"outstanding: must be 1 or more, not {outstanding}")


async def map_async(
    call: Callable[[Body], Awaitable[Result]],
    bodies: Iterable[Body] | AsyncIterable[Body],
    outstanding: int,
    in_order: bool,
    return_errors: bool,
) -> AsyncGenerator[tuple[int, Outcome], None]:
    """Yields the number of each body with its outcome."""
    check(outstanding)
    found = bodies if isinstance(bodies, AsyncIterable) else _each(bodies)
    source = aiter(found)
    running: dict[asyncio.Task[Result], int] = {}  # in the order of their bodies
    number, more = 0, True
    try:
        while True:
            while more and len(running) < outstanding:
                try:
                    body = await anext(source)
                except StopAsyncIteration:
                    more = False
                    break
                running[asyncio.ensure_future(_called(call, body))] = number
                number += 1
            if not running:
                return
            if in_order:
                first = next(iter(running))
                await asyncio.wait([first])
                done = [first]
            else:
                await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                done = [task for task in running if task.done()]
            for task in done:
                place = running.pop(task)
                try:
                    yield place, task.result()
                except CallError as error:
                    if not return_errors:
                        raise
                    yield place, error
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _called(call: Callable[[Body], Awaitable[Result]], body: Body) -> Result:
    return await call(body)


async def _each(bodies: Iterable[Body]) -> AsyncIterator[Body]:
    for body in bodies:
        yield body


def map_blocking(
    submit: "Callable[[Body], Future[Result]]",
    bodies: Iterable[Body],
    outstanding: int,
    in_order: bool,
    return_errors: bool,
) -> Generator[tuple[int, Outcome], None, None]:
    """The same for blocking code. The bodies are read in the caller's thread."""
    check(outstanding)
    source = enumerate(bodies)
    running: deque[tuple[int, Future[Result]]] = deque()
    ended: queue.SimpleQueue[tuple[int, Future[Result]]] = queue.SimpleQueue()
    open_calls, more = 0, True
    try:
        while True:
            while more and open_calls < outstanding:
                numbered = next(source, None)
                if numbered is None:
                    more = False
                    break
                number, future = numbered[0], submit(numbered[1])
                open_calls += 1
                running.append((number, future))
                if not in_order:
                    future.add_done_callback(lambda ended_one, number=number: ended.put((number, ended_one)))  # type: ignore[misc]
            if not open_calls:
                return
            place, future = running.popleft() if in_order else ended.get()
            try:
                outcome: Outcome = future.result()
            except CallError as error:
                if not return_errors:
                    raise
                outcome = error
            except CancelledError:
                raise ConnectionLost("the client was closed") from None
            open_calls -= 1
            yield place, outcome
            if not in_order and len(running) > 2 * outstanding:
                running = deque((each, one) for each, one in running if not one.done())
    finally:
        for _, future in running:
            future.cancel()
