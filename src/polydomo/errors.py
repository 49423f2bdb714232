"""The errors that the libraries raise.

PolydomoError
 +-- CallError                 a call ended without a reply
 |    +-- CallTimeout          ... because its timeout passed (also a TimeoutError)
 |    +-- NoSuchService        ... because no worker offers the service
 |    +-- NoSuchJob            ... because the broker has no such job, or no longer
 |    +-- CallFailed           ... because the broker or the worker said so; has .code and .text
 |    |    +-- Retry           raised by a worker's function: try it again later
 |    +-- ConnectionLost       ... because the connection broke and the call may or may not have run (also a ConnectionError)
 |         +-- NotConnected    ... or could not be made: the call has not run
 +-- ProtocolViolation         a peer sent bytes that its protocol does not allow
 |    +-- AccessDenied         ... or credentials that are not accepted; has .status, as in ZAP: 300 temporary, 400 denied
 +-- SettingError              a setting, flag or address is wrong; names the key
"""


class PolydomoError(Exception):
    """The root of every error polydomo raises on purpose."""


class CallError(PolydomoError):
    """A call ended without a reply."""


class CallTimeout(CallError, TimeoutError):
    """No final reply arrived within the caller's timeout."""


class NoSuchService(CallError):
    """No worker offers the service, according to the broker."""


class NoSuchJob(CallError):
    """The broker has no job of this id: there never was one, or its result is no longer kept."""


class CallFailed(CallError):
    """The broker or the worker reported a failure."""

    def __init__(self, code: str, text: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else code)
        self.code = str(code)  # whatever it was made from, such as another exception: a worker must be able to send it
        self.text = str(text)


class Retry(CallFailed):
    """Raised by a worker's function: the request should be tried again, after ``after`` seconds. Jobs and durable requests are; the client
    of any other request gets this failure.

    >>> Retry(after=2.5).code
    'retry:2.5'
    """

    def __init__(self, text: str = "", *, after: float = 0.0) -> None:
        super().__init__(f"retry:{max(0.0, after):g}", text)
        self.after = after


class ConnectionLost(CallError, ConnectionError):
    """The connection to the broker broke while the call was open: it may or may not have run."""


class NotConnected(ConnectionLost):
    """No connection to the broker could be made in time: the call has not run."""


class ProtocolViolation(PolydomoError):
    """A peer sent bytes or a message that its protocol does not allow."""


class AccessDenied(ProtocolViolation):
    """A peer's credentials are not accepted. ``status`` is ZAP's: "300" try again later, "400" denied, "500" internal error."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class SettingError(PolydomoError):
    """A setting, a flag or an address makes no sense; the message names the key and says what would."""

    problems: list[str] = []  # all of them, where a file was checked as a whole and the message is about the first
