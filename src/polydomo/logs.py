"""A program's own log records, collected by the broker.

```python
import logging
import polydomo.logs

logging.getLogger().addHandler(polydomo.logs.Handler("tcp://127.0.0.1:5246", service="billing"))
```

From then on `polydomo logs` shows what the program logs. In a worker's function a record carries the request that is being served, so that
`polydomo logs --request ID` shows everything that was logged for it, by all workers that took part.
"""

import json
import logging
import math
import threading

from polydomo.client import publisher
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

    It never makes the program wait: records go to a bounded queue, and a background thread sends them. Records that the queue cannot hold
    are dropped and counted in ``dropped``; a record of its own reports the number as soon as there is room again. When the program exits,
    what is queued is sent, for a second at most. ``service`` is used for records that are logged outside of a worker's function; inside,
    it is the service that is being served.
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
        self._reported = 0  # dropped records that a record has reported

    @property
    def dropped(self) -> int:
        return self._publisher.dropped

    def emit(self, record: logging.LogRecord) -> None:
        if threading.current_thread().name == "polydomo-publisher" or record.name == publisher.log.name:
            return  # records that the sending itself logs would never end
        try:
            dropped = self._publisher.dropped
            if self._publish(record) and dropped > self._reported:
                gone = logging.makeLogRecord(
                    {
                        "name": record.name,
                        "levelno": logging.WARNING,
                        "msg": "%d log records were dropped",
                        "args": (dropped - self._reported,),
                    }
                )
                if self._publish(gone):
                    self._reported = dropped
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
        """Sends what is queued, for a second at most."""
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
