"""A program's own log records, collected by the broker.

```python
import logging
import polydomo.logs

logging.getLogger().addHandler(polydomo.logs.Handler("tcp://127.0.0.1:5246", service="billing"))
```

From then on `polydomo logs` shows what the program logs. In a worker's function a record carries the request that is being served, so that
`polydomo logs --request 42` shows everything that was logged on its behalf, by whichever workers it went through.
"""

import json
import logging
import math
import threading

from polydomo.client.publisher import Publisher
from polydomo.client.security import Security
from polydomo.limits import LOG_QUEUE, LOG_QUEUE_BYTES, MAX_LOG_RECORD, MAX_TOPIC
from polydomo.worker.context import running

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_LEVELS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


class Handler(logging.Handler):
    """Publishes each record to a broker, under ``log.`` and the service's name.

    It never makes the program wait: records wait in a bounded line, from which a thread of its own sends them. What the line cannot
    hold is dropped; how much is counted in ``dropped`` and told with a record of its own as soon as there is room again. ``service`` is
    for records logged outside of a worker's function; inside, the service that is being served is named.
    """

    def __init__(
        self,
        to: str | None = None,
        service: str = "",
        level: int | str = logging.NOTSET,
        max_records: int = LOG_QUEUE,
        max_bytes: int = LOG_QUEUE_BYTES,
        *,
        key: str = "",
        server_key: str = "",
        context: str = "",
        security: Security | None = None,
    ) -> None:
        super().__init__(level)
        self.service = service
        self._publisher = Publisher(
            to, max_records, max_bytes, key=key, server_key=server_key, context=context, security=security
        )
        self._told = 0  # drops that a record has told of

    @property
    def dropped(self) -> int:
        return self._publisher.dropped

    def emit(self, record: logging.LogRecord) -> None:
        if threading.current_thread().name == "polydomo-publisher":
            return  # what the sending itself logs would never end
        try:
            dropped = self._publisher.dropped
            if self._publish(record) and dropped > self._told:
                gone = logging.makeLogRecord(
                    {
                        "name": record.name,
                        "levelno": logging.WARNING,
                        "msg": "%d log records were dropped",
                        "args": (dropped - self._told,),
                    }
                )
                if self._publish(gone):
                    self._told = dropped
        except Exception:
            self.handleError(record)

    def _publish(self, record: logging.LogRecord) -> bool:
        content = content_of(self, record, self.service)
        service = content["service"]
        topic = b"log." + str(service).encode("utf-8", "replace")
        return self._publisher.publish(topic[:MAX_TOPIC], _encoded(content))

    def flush(self) -> None:
        if not self._publisher.closed:
            self._publisher.flush()

    def close(self) -> None:
        """Sends what waits, for a second at most."""
        self._publisher.close()
        super().close()


def content_of(handler: logging.Handler, record: logging.LogRecord, service: str = "") -> dict[str, object]:
    """A record as the broker collects it; see ``docs/logs.md``."""
    call = running()
    fields = {name: _plain(value) for name, value in vars(record).items() if name not in _STANDARD}
    fields["logger"] = record.name
    if record.exc_info or record.exc_text:
        fields["exception"] = record.exc_text or logging.Formatter().formatException(record.exc_info)  # type: ignore[arg-type]
    return {
        "service": call.service if call is not None else service or record.name,
        "level": next((name for number, name in _LEVELS if record.levelno >= number), "debug"),
        "time": record.created,
        "message": handler.format(record) if handler.formatter is not None else record.getMessage(),
        "fields": fields,
        "request": call.request if call is not None else "",
    }


def _plain(value: object) -> object:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)


def _encoded(content: dict[str, object]) -> bytes:
    """As JSON, cut to what the broker takes: first the fields, then the message."""
    whole = json.dumps(content).encode()
    if len(whole) > MAX_LOG_RECORD:
        fields = {"cut": f"{len(whole)} bytes, the bound is {MAX_LOG_RECORD}"}
        content = {**content, "message": str(content["message"])[: MAX_LOG_RECORD // 12], "fields": fields}
        whole = json.dumps(content).encode()
    return whole
