"""Detects replies that the library hides: a reply to a call that already has its final reply. The library drops it; here it is counted."""

from collections.abc import Callable

from chaos.record import Record
from polydomo.protocols.ends import ClientEnd, Event, Frames, Reply

KEPT = 10_000  # ids of one connection that are remembered


def watched(make: Callable[[], ClientEnd], record: Record, name: str) -> Callable[[], ClientEnd]:
    """Wraps the ends that ``make`` returns and watches what they receive. ``name`` is the prefix of the ids of this client's calls."""
    begin = name.encode() + b"."

    def made() -> ClientEnd:
        end = make()
        receive = end.receive
        answered: dict[str, None] = {}

        def look(message: Frames) -> list[Event]:
            events: list[Event] = []
            try:
                events = receive(message)
            finally:  # a second reply gives no event or, if the protocol has no ids, a violation
                for call in [] if events else ids(message, begin):
                    if call in answered:
                        record.second(call)
            for event in events:
                if isinstance(event, Reply) and event.final:
                    answered.update(dict.fromkeys(ids(event.body, begin)))
                    while len(answered) > KEPT:
                        del answered[next(iter(answered))]
            return events

        end.receive = look  # type: ignore[method-assign]
        return end

    return made


def ids(frames: Frames, begin: bytes) -> list[str]:
    """The ids of calls in a message.

    >>> ids([b"", b"MDPC01", b"echo", b"client-mdx.1.7|xyz"], b"client-mdx.1.")
    ['client-mdx.1.7']
    """
    for frame in frames:
        at = frame.find(begin)
        if at >= 0:
            return [frame[at : frame.index(b"|", at)].decode()]
    return []
