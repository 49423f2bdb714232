"""A service in the catalog: it is registered over DBP, and stays registered until its handle is closed."""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from polydomo.client.background import Background
from polydomo.client.catalog import AsyncCatalog, Registration, RegistrationObserver, stay_registered
from polydomo.errors import PolydomoError
from polydomo.protocols.dbp.info import has_function

Entry = dict[str, Any]


class FirstRegistration(RegistrationObserver):
    """Waits for the outcome of the first attempt; later losses are mended by ``stay_registered``."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def registered(self, interval: float) -> None:
        if not self.outcome.done():
            self.outcome.set_result(None)

    def lost(self, error: PolydomoError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class RegisteredService:
    """A service that a client has registered in the catalog. Heartbeats are sent until ``close``, and it is registered again after the
    broker was lost.

    ```python
    async with await client.register("weather", port=8080, function="the weather, over HTTP") as registered:
        await registered.update(function="the weather of yesterday")
    ```
    """

    def __init__(
        self, catalog: AsyncCatalog, information: Registration, forget: "Callable[[RegisteredService], None]"
    ) -> None:
        self.name = str(information["name"])
        self._catalog = catalog
        self._information = information
        self._forget = forget
        self._staying: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @property
    def interval(self) -> float:
        """The agreed heartbeat interval in seconds; 0 if there is none."""
        return self._catalog.interval

    async def open(self) -> None:
        """Registers. Raises NotConnected, or CallFailed with the code ``denied`` and the broker's reason."""
        first = FirstRegistration()
        self._staying = asyncio.ensure_future(stay_registered(self._catalog, self._information, first))
        await asyncio.wait([self._staying, first.outcome], return_when=asyncio.FIRST_COMPLETED)
        try:
            if self._staying.done():
                first.outcome.cancel()
                self._staying.result()  # it was denied
            else:
                first.outcome.result()
        except BaseException:
            await self._end()
            raise

    async def update(self, **changes: object) -> None:
        """Changes fields of the registration. Raises CallFailed with the code ``denied``, or ConnectionLost while the broker is gone."""
        await self._catalog.update(changes)
        self._information.update(changes)  # for the next registration

    async def close(self) -> None:
        """Removes the service from the catalog."""
        self._forget(self)
        if self._staying is not None and not self._staying.done():
            self._catalog.leave()
        await self._end()

    async def _end(self) -> None:
        if self._staying is not None:
            self._staying.cancel()
            await asyncio.gather(self._staying, return_exceptions=True)
        await self._catalog.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class BlockingRegisteredService:
    """A service that a client has registered in the catalog; see ``RegisteredService``.

    ```python
    with client.register("weather", port=8080, function="the weather, over HTTP") as registered:
        registered.update(function="the weather of yesterday")
    ```
    """

    def __init__(self, background: Background, registered: RegisteredService) -> None:
        self._background = background
        self._registered = registered
        self.name = registered.name

    @property
    def interval(self) -> float:
        """The agreed heartbeat interval in seconds; 0 if there is none."""
        return self._registered.interval

    def update(self, **changes: object) -> None:
        """Changes fields of the registration; see ``RegisteredService.update``."""
        self._background.run(self._registered.update(**changes))

    def close(self) -> None:
        """Removes the service from the catalog."""
        self._background.run(self._registered.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class CatalogClient:
    """The catalog for one client: registrations and look-ups."""

    def __init__(self, make: Callable[[], AsyncCatalog]) -> None:
        self._make = make
        self._registered: set[RegisteredService] = set()

    async def register(self, information: Registration) -> RegisteredService:
        registered = RegisteredService(self._make(), information, self._registered.discard)
        await registered.open()
        self._registered.add(registered)
        return registered

    async def lookup(self, name: str, function: str, timeout: float) -> list[Entry]:
        catalog = self._make()
        catalog.timeout = timeout
        async with catalog:
            found = await catalog.with_function(function) if function and not name else (await catalog.look(name))[0]
        entries = [{"name": key, **entry} for key, entry in found.items() if isinstance(entry, dict)]
        return [entry for entry in entries if not function or has_function(entry, [function])]

    async def close(self) -> None:
        for registered in list(self._registered):
            await registered.close()
