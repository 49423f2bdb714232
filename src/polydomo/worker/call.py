"""What a service function gets, and what it may give back."""

from polydomo.client.message import Message, encode
from polydomo.protocols.ends import Job


class Call(Message):
    """One request: its frames (it is a list of them), and what else the protocol tells.

    >>> call = Call(Job(b"echo", [b"one", b"two"]))
    >>> call.service, call.body, call.text, call[1]
    ('echo', b'onetwo', 'onetwo', b'two')
    """

    __slots__ = ("attempt", "cancelled", "headers", "job", "key", "request", "service", "timeout")

    def __init__(self, job: Job) -> None:
        super().__init__(job.body)
        self.service = job.service.decode(errors="replace")
        self.request = job.attempt.decode(errors="replace")  # what the broker knows the request by
        self.attempt = attempt_number(
            job.attempt
        )  # 1 is the first; more: it may have run before. 0: the protocol does not tell
        self.job = job.job  # the id of the durable job, "" if it is none or the protocol does not tell
        self.key = job.key  # its idempotency key, likewise
        self.headers = job.headers  # where the protocol has them (eMQP); one without a value has ""
        self.cancelled = False  # its caller does not wait any more: the result is not sent
        self.timeout = job.timeout  # seconds the broker will wait, where the protocol tells; 0 otherwise


def attempt_number(token: bytes) -> int:
    """The number of an attempt, from what the broker calls it: 12 hexadecimal digits, of which the last three are the number.

    >>> attempt_number(b"00000002a003"), attempt_number(b"another broker's")
    (3, 0)
    """
    try:
        return int(token[9:], 16) if len(token) == 12 and int(token, 16) >= 0 else 0
    except ValueError:
        return 0


def body_of(value: object) -> list[bytes]:
    """The body that a function's return value, or a value it yielded, stands for.

    >>> body_of("text"), body_of([b"two", "frames"]), body_of(None)
    ([b'text'], [b'two', b'frames'], [])
    """
    if value is None:
        return []
    if isinstance(value, bytes | str | bytearray | memoryview):
        return encode((value,))
    if isinstance(value, list | tuple):
        return encode(value)
    raise TypeError(f"a service gives bytes, str, a list of those, or None, not {type(value).__name__}")
