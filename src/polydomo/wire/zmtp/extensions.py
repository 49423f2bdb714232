"""Extensions that two polydomo peers agree on while they connect.

Each side lists its extensions in one property of its ZMTP metadata, ``X-Polydomo-Extensions``. ZMTP requires peers to ignore unknown
properties, so other implementations are not affected. A listener answers with its own list only if the peer sent one.

The value is a list of words separated by spaces, some with a number: ``credit=1000 cancel deadline return key max-message=67108864``.
Unknown words and invalid numbers are ignored, so that later versions can add more.
"""

from typing import Final

PROPERTY: Final = b"X-Polydomo-Extensions"
MAX_DIGITS: Final = 15  # of a number; a longer one is ignored

# Each word in the order of the list, and the attribute of ``Extensions`` that it sets.
WORDS: Final[dict[bytes, str]] = {
    b"credit": "credit",
    b"cancel": "cancel",
    b"deadline": "deadline",
    b"return": "give_back",
    b"key": "key",
    b"cancel-jobs": "cancel_jobs",
    b"deadline-jobs": "deadline_jobs",
    b"window": "window",
    b"fail": "fail",
    b"origin": "origin",
    b"catalog": "catalog",
    b"options": "options",
    b"progress": "progress",
    b"max-message": "max_message",
}
NUMBERED: Final[tuple[bytes, ...]] = (b"credit", b"max-message")  # words with a number


class Extensions:
    """The extensions of one side. docs/protocols/extensions.md describes each word."""

    __slots__ = (
        "cancel",
        "cancel_jobs",
        "catalog",
        "credit",
        "deadline",
        "deadline_jobs",
        "fail",
        "give_back",
        "key",
        "max_message",
        "options",
        "origin",
        "progress",
        "window",
    )

    def __init__(
        self,
        credit: int = 0,
        cancel: bool = False,
        deadline: bool = False,
        give_back: bool = False,
        max_message: int = 0,
        key: bool = False,
        cancel_jobs: bool = False,
        deadline_jobs: bool = False,
        window: bool = False,
        fail: bool = False,
        origin: bool = False,
        catalog: bool = False,
        options: bool = False,
        progress: bool = False,
    ) -> None:
        self.credit = credit  # workers may name a window; a broker names the largest one, a worker 1
        self.cancel = cancel  # requests can be cancelled
        self.deadline = deadline  # MDX requests can carry a deadline
        self.give_back = give_back  # an eMQP or DCP worker can return one request without disconnecting
        self.cancel_jobs = cancel_jobs  # DCP and eMQP workers understand that a request was cancelled
        self.deadline_jobs = deadline_jobs  # MDX, DCP and eMQP workers understand how much time a request has left
        self.window = (
            window  # eMQP and DCP workers can name a window, too, and release requests that they have not started
        )
        self.fail = fail  # an eMQP or DCP worker can report a permanent failure, with a code and a text
        self.origin = origin  # a request over a bridge names the principal that caused it
        self.catalog = catalog  # entries of the catalog cross a bridge
        self.progress = progress  # workers can report how far a request is, and clients get it
        self.key = key  # MDX requests can carry an idempotency key
        self.options = options  # MDX requests, and requests over a bridge, can carry named options
        self.max_message = max_message  # bytes of one message that this side accepts; 0: it does not say

    def encode(self) -> bytes:
        """
        >>> Extensions(credit=8, cancel=True).encode()
        b'credit=8 cancel'
        """
        words: list[bytes] = []
        for word, name in WORDS.items():
            if word in NUMBERED:
                number: int = getattr(self, name)
                if number:
                    words.append(b"%b=%d" % (word, number))
            elif getattr(self, name):
                words.append(word)
        return b" ".join(words)


NO_EXTENSIONS: Final = Extensions()  # a peer without extensions; never modified


def parse(value: bytes) -> Extensions:
    """
    >>> found = parse(b"credit=8 max-message=x unknown cancel")
    >>> found.credit, found.max_message, found.cancel, found.deadline
    (8, 0, True, False)
    """
    found = Extensions()
    for part in value.split():
        word, _, number = part.partition(b"=")
        name = WORDS.get(word)
        if name is None:
            continue
        if word in NUMBERED:
            setattr(found, name, _number(number))
        else:
            setattr(found, name, True)
    return found


def _number(text: bytes) -> int:
    return int(text) if text.isdigit() and len(text) <= MAX_DIGITS else 0
