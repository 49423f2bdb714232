"""The errors that the libraries raise.

PolydomoError
 +-- CallError                 a call ended without a reply
 |    +-- CallTimeout          ... because its timeout passed (also a TimeoutError)
 |    +-- NoSuchService        ... because no worker offers the service
 |    +-- NoSuchJob            ... because the broker does not have the job, or no longer has it
 |    +-- CallFailed           ... because the broker or the worker reported a failure; has .code and .text
 |    |    +-- Retry           raised by a worker's function: try it again later
 |    |    +-- Permanent       raised by a worker's function: trying it again cannot succeed
 |    +-- ConnectionLost       ... because the connection broke and the call may or may not have run (also a ConnectionError)
 |         +-- NotConnected    ... or could not be opened: the call has not run
 +-- ProtocolViolation         a peer sent bytes that its protocol does not allow
 |    +-- AccessDenied         ... or invalid credentials; has .status, as in ZAP: 300 temporary, 400 denied
 +-- SettingError              a setting, flag or address is invalid; names the key
"""


class PolydomoError(Exception):
    """The base class of all errors that polydomo raises."""


class CallError(PolydomoError):
    """A call ended without a reply."""


class CallTimeout(CallError, TimeoutError):
    """No final reply arrived within the caller's timeout."""


class NoSuchService(CallError):
    """No worker offers the service, according to the broker."""


class NoSuchJob(CallError):
    """The broker has no job with this id: it never existed, or its result has expired."""


class CallFailed(CallError):
    """The broker or the worker reported a failure."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else code)
        # Always strings, even if made from another object such as an exception, because a worker sends them.
        self.code = str(code)
        self.text = str(text)


class Retry(CallFailed):
    """Raised by a worker's function: asks for a retry after ``after`` seconds. Jobs and durable requests are retried; the client of any
    other request gets this failure.

    >>> Retry(after=2.5).code
    'retry:2.5'
    """

    def __init__(self, text: str = "", *, after: float = 0.0) -> None:
        super().__init__(f"retry:{max(0.0, after):g}", text or "the worker asked for another attempt")
        self.after = after


class Permanent(CallFailed):
    """Raised by a worker's function: the request can never succeed, for example because its input is wrong. A job or durable request is not
    retried and is dead at once, with ``text`` as the reason; the client of any other request gets this failure.

    >>> str(Permanent("no such customer"))
    'permanent: no such customer'
    """

    def __init__(self, text: str = "") -> None:
        super().__init__("permanent", text or "the worker reported that another attempt cannot succeed")


class ConnectionLost(CallError, ConnectionError):
    """The connection to the broker broke while the call was open: the call may or may not have run."""


class NotConnected(ConnectionLost):
    """No connection to the broker could be opened in time: the call has not run."""

    refused = False  # the system refused the connection at once: no program listens at the address
    accepted = False  # a program accepted the connection, but did not complete the handshake of a broker


class ProtocolViolation(PolydomoError):
    """A peer sent bytes or a message that its protocol does not allow."""


class AccessDenied(ProtocolViolation):
    """A peer's credentials are rejected. ``status`` is ZAP's: "300" try again later, "400" denied, "500" internal error."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class SettingError(PolydomoError):
    """A setting, a flag or an address is invalid. The message names the key and the expected value."""

    problems: list[str] = []  # all problems, if a whole file was checked; the message describes the first
