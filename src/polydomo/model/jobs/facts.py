"""The data that a worker of a durable job gets besides the body: the job's id and key, and the request's headers and trace context.

eMQP and HTTP have headers for it. MDX and DCP carry id and key as a mark, ``job:ID:KEY``: in the id frame of MDX, which a worker returns
unread, and as a metadata part of DCP. MDP and memo01 have no field for them.
"""

JOB_MARK = b"job:"
MAX_MARK = 255  # bytes: one short frame


class JobFacts:
    __slots__ = ("headers", "id", "key", "trace")

    def __init__(self, id: str, key: str, headers: str, trace: str) -> None:
        self.id = id
        self.key = key  # idempotency key; "" for none
        self.headers = headers  # of an eMQP request, in EventMQ's notation
        self.trace = trace  # W3C traceparent

    def mark(self) -> bytes:
        """Id and key in one short frame; b"" if they do not fit.

        >>> JobFacts("01ABC", "a:b", "", "").mark()
        b'job:01ABC:a:b'
        """
        text = JOB_MARK + self.id.encode() + b":" + self.key.encode("utf-8", "replace")
        return text if len(text) <= MAX_MARK else b""


def read_mark(frame: bytes) -> "tuple[str, str]":
    """The id and the key in a mark; both are "" if it is none.

    >>> read_mark(b"job:01ABC:a:b"), read_mark(b"any other id")
    (('01ABC', 'a:b'), ('', ''))
    """
    if not frame.startswith(JOB_MARK):
        return "", ""
    id, _, key = frame[len(JOB_MARK) :].decode("utf-8", "replace").partition(":")
    return id, key
