"""MDX: the commands, and the constant bytes in front of each message. ``session.py`` is the broker's side, ``ends.py`` the other one."""

from functools import lru_cache

from polydomo.model.outcomes import FAILURE_MARK
from polydomo.wire.frames import DELIMITER, join, more

# Frame 1, between client and broker.
REQUEST = b"\x01"
PARTIAL = b"\x02"
FINAL = b"\x03"
# Frame 1, between worker and broker.
READY = b"\x01"
WORK = b"\x02"  # the draft's name is REQUEST here too
WORKER_PARTIAL = b"\x03"
WORKER_FINAL = b"\x04"
PING = b"PING"
PONG = b"PONG"
LEAVE = b"\x06"  # DISCONNECT
# Frame 1, of the extensions.
WITHIN = b"WITHIN"  # client: a REQUEST with a deadline; to a worker: the same
KEYED = b"KEYED"  # client: a REQUEST with an idempotency key, and a deadline or 0
WITH = b"WITH"  # client: a REQUEST with named options
CANCEL = b"CANCEL"  # client: a request is not wanted any more; to a worker: the same
CREDIT = b"CREDIT"  # worker: how many requests it may hold, and how many it runs at once
REVOKE = b"REVOKE"  # to a worker: release the request if it has not been started
RELEASED = b"RELEASED"  # worker: it will not run the request
PROGRESS = b"PROGRESS"  # worker: how far a request is; to a client: the same
KEPT = b"KEPT"  # worker: it has started the request
EXPIRED = b"timeout"  # last frame of a client's CANCEL whose deadline passed
TIME = b"within"  # options of WITH: the deadline in milliseconds ...
KEY = b"key"  # ... and the idempotency key; ``model.request_options`` has the others
MAX_OPTIONS = 8  # named options of one request
MAX_WITHIN = 10  # digits of a deadline in milliseconds: 115 days

DISCONNECT_HEADER = b"MDPW02"  # 'Frame 0: "MDPW02" (six bytes, representing MDP/Worker v0.2)'
DISCONNECT = join([DISCONNECT_HEADER, LEAVE])

FAILURE = more([b"", FAILURE_MARK])  # the first frames of a failure body
SHORT = [bytes((1, size)) for size in range(256)]  # the head of a short frame with more to follow
TOKEN_FRAME = b"\x01\x0c"  # the head of a frame with a token, and more to follow
DELIMITER_AND_MORE = DELIMITER + b"\x01"  # the empty frame, and the start of a short frame with more to follow


class MdxConstants:
    """The constant bytes for one pair of headers, shared by all sessions that use them."""

    def __init__(self, client: bytes, worker: bytes) -> None:
        self.client = client
        self.worker = worker
        self.request = more([client, REQUEST])
        self.within = more([client, WITHIN])
        self.keyed = more([client, KEYED])
        self.with_options = more([client, WITH])
        self.partial = more([client, PARTIAL])
        self.final = more([client, FINAL])
        self.work = more([worker, WORK])
        self.work_within = more([worker, WITHIN])
        self.worker_partial = more([worker, WORKER_PARTIAL])
        self.worker_final = more([worker, WORKER_FINAL])
        self.ping = join([worker, PING])
        self.pong = join([worker, PONG])
        self.cancel = more([worker, CANCEL])
        self.revoke = more([worker, REVOKE])
        self.progress = more([client, PROGRESS])
        self.request_size = len(self.request)
        self.worker_size = len(self.worker_final)
        self.ping_size = len(self.ping)
        self.within_size = len(self.within)
        self.keyed_size = len(self.keyed)
        self.with_size = len(self.with_options)


@lru_cache(maxsize=16)  # a broker has one pair of headers; tests have a few
def words_for(client: bytes, worker: bytes) -> MdxConstants:
    return MdxConstants(client, worker)
