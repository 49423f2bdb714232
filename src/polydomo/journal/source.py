"""Where the value of a journal column comes from: fields of the recorded event, and how they are converted.

Each column of ``schema`` names its source once, in words: a method of ``SourceValues`` and its arguments.

    get NAME                        the field as it is
    clock NAME                      a time of the broker's clock
    moment NAME                     the same for a time that is 0 if it never happened
    epoch NAME                      microseconds since the epoch; 0 if it never happened
    text NAME ...                   the first of these names, given as bytes, that is not empty
    body NAME, body_cut NAME        the recorded part of a payload; 1 if the payload is longer
    bucket NAME                     the bucket of a duration in the histograms
    request_id ACCEPTED NUMBER
    principal NAME CONNECTION       the principal that the event names, or else that of the connection
    of_peer CONNECTION PART         a fact about the peer of a connection
    of_run PART                     a fact that all rows of a run share

``recording/chunk.py`` reads the values event by event, in plain Python, for the tap, the simulator and rows that are not written yet;
``files/columns.py`` those of a whole chunk at once, with numpy, for the writer's thread.
"""

from typing import Any, Final

GIVEN: Final = ("get", "text", "epoch", "body", "principal")  # sources whose first field the recorder gives


def fields(source: "tuple[str, ...]") -> "tuple[str, ...]":
    """The fields of the event among the words of a source."""
    return source[1:-1] if source[0] in ("of_peer", "of_run") else source[1:]


class SourceValues:
    """The values of one event, or of all events of one form in a chunk: each is then an array, or one value that all share.

    A form of event derives further fields with these methods and arithmetic, which do the same for single values and for arrays.
    """

    def get(self, name: str) -> Any:
        """A field of the event."""
        raise NotImplementedError

    def pick(self, test: Any, yes: Any, no: Any) -> Any:
        raise NotImplementedError

    def equals(self, name: str, value: str) -> Any:
        raise NotImplementedError

    def span(self, start: Any, end: Any) -> Any:
        """Microseconds between two times of the broker's clock."""
        raise NotImplementedError

    def of_run(self, part: str) -> Any:
        raise NotImplementedError
