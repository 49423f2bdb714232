"""A partial reply of a job, as it is stored, and where it stands in the stream of the job.

Each attempt of a job that sends partial replies begins a new sequence: 1, 2, ... ``attempt`` tells the sequences apart and only grows, also
over crashes of the broker and after a dead job was retried. So it may be ahead of the number of the job's attempt. Number 0 is never shown:
it says that the parts of earlier attempts are not those of the result.
"""

from polydomo.errors import SettingError

MAX_POSITION = 10**9

Position = tuple[int, int]  # attempt and number


class StoredPart:
    __slots__ = ("attempt", "body", "damaged", "first_kept", "job", "number", "stop")

    def __init__(self, job: str, attempt: int, number: int, stop: int, body: bytes) -> None:
        self.job = job
        self.attempt = attempt
        self.number = number
        self.stop = (
            stop  # bytes of the attempt's parts up to the end of this one: where the rest of the joined result begins
        )
        self.body = body  # encoded with framing
        self.first_kept = 0  # parts of this attempt before this one are dropped when it is stored
        self.damaged = False  # its data changed on disk


def write_position(position: Position) -> str:
    """
    >>> write_position((2, 17))
    '2.17'
    """
    return f"{position[0]}.{position[1]}"


def read_position(text: str) -> Position:
    """The position of the last part that a client has: ``2.17`` is the 17th of the second attempt, and a number alone is in the first one.
    Raises SettingError.

    >>> read_position("2.17"), read_position("5"), read_position("")
    ((2, 17), (1, 5), (0, 0))
    """
    if not text:
        return 0, 0
    attempt, dot, number = text.partition(".")
    values = [attempt, number] if dot else ["1", attempt]
    if not all(value.isascii() and value.isdigit() and len(value) < 10 for value in values):
        raise SettingError(f"after: {text[:40]!r} is not the id of a partial reply, such as 2.17, or a number")
    return int(values[0]), int(values[1])
