"""Sends a program's log records to the broker, which collects them.

```python
import logging
import polydomo.logs

logging.getLogger().addHandler(polydomo.logs.Handler("tcp://127.0.0.1:5246", service="billing"))
```

Then `polydomo logs` shows the program's log. A record that a worker's function logs carries the request's id, so
`polydomo logs --request ID` shows the records of all workers that handled the request.
"""

import json
import logging
import math
import threading

from polydomo.client import publisher
from polydomo.client.publisher import Publisher
from polydomo.client.security import Security
from polydomo.limits import LOG_QUEUE, LOG_QUEUE_BYTES, MAX_LOG_RECORD, MAX_TOPIC
from polydomo.worker.call import running

_STANDARD = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_LEVELS = (
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO, "info"),
)


class Handler(logging.Handler):
    """Publishes each record to a broker, under ``log.`` and the service's name.

    It never blocks the program: records go to a bounded queue, and a background thread sends them. If the queue is full, records are
    dropped and counted in ``dropped``, and a later record reports the number. When the program exits, queued records are sent for at
    most a second. ``service`` is used for records logged outside a worker's function; inside, it is the service being served.
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
        self._reported = 0  # dropped records that have been reported

    @property
    def dropped(self) -> int:
        return self._publisher.dropped

    def emit(self, record: logging.LogRecord) -> None:
        if threading.current_thread().name == "polydomo-publisher" or record.name == publisher.log.name:
            return  # do not send records logged by the sending code: that would never end
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
        """Sends queued records, for at most a second."""
        self._publisher.close()
        super().close()


def content_of(handler: logging.Handler, record: logging.LogRecord, service: str = "") -> dict[str, object]:
    """A record in the form the broker collects; see ``docs/logs.md``."""
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
    """A value that JSON can represent."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return str(value)


def _encoded(content: dict[str, object]) -> bytes:
    """Encodes the record as JSON, truncated to the broker's limit: first the fields, then the message."""
    whole = json.dumps(content).encode()
    if len(whole) > MAX_LOG_RECORD:
        fields = {"cut": f"the record has {len(whole)} bytes, the limit is {MAX_LOG_RECORD}"}
        content = {**content, "message": str(content["message"])[: MAX_LOG_RECORD // 12], "fields": fields}
        whole = json.dumps(content).encode()
    return whole
