"""eMQP: the commands, as the constant bytes in front of each message. ``session.py`` is the broker's side, ``ends.py`` the other one."""

HEADER = b"eMQP/1.0"
PREFIX = b"\x01\x00\x01\x08" + HEADER  # the first bytes of every eMQP message

REQUEST = PREFIX + b"\x01\x07REQUEST"
REPLY = PREFIX + b"\x01\x05REPLY"
READY = PREFIX + b"\x01\x05READY"
PUBLISH = PREFIX + b"\x01\x07PUBLISH"
ACK = PREFIX + b"\x01\x03ACK"
HEARTBEAT = PREFIX + b"\x01\x09HEARTBEAT"
DISCONNECT = PREFIX + b"\x01\x0aDISCONNECT"
KBYE = PREFIX + b"\x01\x04KBYE"
CANCEL = PREFIX + b"\x01\x06CANCEL"  # extension
REVOKE = PREFIX + b"\x01\x06REVOKE"  # extension

EXPIRED = b"timeout"  # last frame of a CANCEL whose deadline passed

EVENTMQ = "eventmq"  # dialects
DOCUMENT = "document"

WORKER = b"worker"  # the types of an INFORM
SCHEDULER = b"scheduler"
SCHEDULER_RIGHT = (
    "emqp-scheduler"  # the name for which a scheduler needs the right to offer: it gets the schedules of all clients
)

REQUEST_SIZE = len(REQUEST)
REPLY_SIZE = len(REPLY)  # READY has the same size

TOKEN_HEAD = b"\x01\x0c"  # the head of a frame with a token, and more to follow
JOB = REQUEST + TOKEN_HEAD
ANSWER = REPLY + TOKEN_HEAD
