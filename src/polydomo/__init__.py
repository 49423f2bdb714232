"""One broker for the whole Majordomo family of messaging protocols.

A worker and a client, for a broker started with ``polydomo up``:

```python
from polydomo import Worker

worker = Worker()

@worker.service("echo")
def echo(call):
    return call.body

worker.run()
```

```python
from polydomo import Client

with Client() as client:
    print(client.call("echo", "hello").text)
```
"""

from typing import TYPE_CHECKING

from polydomo.errors import (
    AccessDenied,
    CallError,
    CallFailed,
    CallTimeout,
    ConnectionLost,
    NoSuchJob,
    NoSuchService,
    NotConnected,
    Permanent,
    PolydomoError,
    ProtocolViolation,
    Retry,
    SettingError,
)

if TYPE_CHECKING:
    from polydomo.client import AsyncCatalog, AsyncClient, Client, Message, Result, Retries, Security
    from polydomo.model.flows.flow import Flow
    from polydomo.model.retry_policy import Backoff
    from polydomo.worker import AsyncWorker, Call, Worker

__version__ = "0.2.0"

__all__ = [
    "AccessDenied",
    "AsyncCatalog",
    "AsyncClient",
    "AsyncWorker",
    "Backoff",
    "Call",
    "CallError",
    "CallFailed",
    "CallTimeout",
    "Client",
    "ConnectionLost",
    "Flow",
    "Message",
    "NoSuchJob",
    "NoSuchService",
    "NotConnected",
    "Permanent",
    "PolydomoError",
    "ProtocolViolation",
    "Result",
    "Retries",
    "Retry",
    "Security",
    "SettingError",
    "Worker",
    "__version__",
]

_LAZY = {
    "AsyncCatalog": "polydomo.client",
    "AsyncClient": "polydomo.client",
    "Client": "polydomo.client",
    "Message": "polydomo.client",
    "Result": "polydomo.client",
    "Retries": "polydomo.client",
    "Backoff": "polydomo.model.retry_policy",
    "Flow": "polydomo.model.flows.flow",
    "Security": "polydomo.client",
    "AsyncWorker": "polydomo.worker",
    "Call": "polydomo.worker",
    "Worker": "polydomo.worker",
}


def __getattr__(name: str) -> object:
    # Import asyncio and the libraries lazily: they are slow to import, and the broker does not need them.
    if name in _LAZY:
        from importlib import import_module

        value = getattr(import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'polydomo' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
