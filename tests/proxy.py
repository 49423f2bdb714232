"""A bad network between two programs, for tests that do not live on an event loop: one TCP route of ``chaos.proxy``.

```python
with Proxy("tcp://127.0.0.1:5246") as proxy:
    connect_to(proxy.url)
    proxy.delay(0.05)   # whatever goes through takes that much longer
    proxy.hold()        # nothing comes through, and nobody is told: a cable pulled out
    proxy.release()     # ... and put in again: what was held comes now
    proxy.cut()         # every connection is reset, and what was under way is lost
    proxy.refuse()      # nobody can connect
    proxy.accept()
```

Everything may be called from any thread; it has happened when the call returns.
"""

import random
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from chaos.proxy import BOTH, Route
from polydomo.client.background import Background
from polydomo.wire.address import parse_url


class Proxy:
    url = ""

    def __init__(self, target: str) -> None:
        address = parse_url(target, connect=True)
        self._route = Route("proxy", (address.host, address.port), random.Random(1))
        self._background = Background(self, "proxy")

    def __enter__(self) -> Self:
        self._background.run(self._route.open())
        self.url = self._route.url
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._background.run(self._route.close())
        self._background.stop()

    @property
    def connections(self) -> int:
        """Ever made."""
        return self._route.counts.connections

    def delay(self, seconds: float) -> None:
        self._change(delay=seconds)

    def hold(self) -> None:
        self._change(held=frozenset(BOTH))

    def release(self) -> None:
        self._change(held=frozenset())

    def refuse(self) -> None:
        self._change(refused=True)

    def accept(self) -> None:
        self._change(refused=False)

    def cut(self) -> None:
        """Also ends a ``hold``."""

        async def now() -> None:
            self._route.cut()
            self._route.set(replace(self._route.weather, held=frozenset()))

        self._background.run(now())

    def _change(self, **weather: Any) -> None:
        async def now() -> None:
            self._route.set(replace(self._route.weather, **weather))

        self._background.run(now())
