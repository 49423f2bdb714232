"""Failures that workers report: what they say about the next attempt, and the reason that is stored."""

import math
from typing import Final

from polydomo.limits import MAX_JOB_DELAY
from polydomo.model.jobs.messages import PERMANENT_CODES, RETRY_CODE
from polydomo.model.outcomes import FAILED

# What a worker says about the next attempt when it reports a failure, besides a delay in seconds.
NOT_SAID: Final = -1.0  # nothing: the job's backoff decides
NEVER: Final = math.inf  # another attempt cannot succeed


def retry_after(code: str) -> float:
    """What a worker's failure code says about the next attempt: the delay in seconds of ``retry:SECONDS``, NEVER for a permanent failure,
    NOT_SAID for any other code.

    >>> retry_after("retry:2.5"), retry_after("permanent"), retry_after("invalid-arguments")
    (2.5, inf, inf)
    >>> retry_after("failed"), retry_after("retry:x"), retry_after("retry:nan")
    (-1.0, -1.0, -1.0)
    """
    if code in PERMANENT_CODES:
        return NEVER
    word, colon, seconds = code.partition(":")
    if word != RETRY_CODE or not colon:
        return NOT_SAID
    try:
        wait = float(seconds)
    except ValueError:
        return NOT_SAID
    return min(wait, MAX_JOB_DELAY) if wait >= 0.0 else NOT_SAID


def failure_reason(code: str, text: str) -> str:
    """Why an attempt failed, from what its worker reported. It is never empty.

    >>> failure_reason("permanent", "no such customer"), failure_reason("failed", "KeyError: 'x'")
    ('permanent: no such customer', "KeyError: 'x'")
    >>> failure_reason("retry:5", ""), failure_reason("busy", ""), failure_reason("failed", "")
    ('the worker asked for another attempt', 'busy', 'the worker reported a failure without a reason')
    """
    if 0.0 <= retry_after(code) < NEVER:
        return text or "the worker asked for another attempt"
    if code != FAILED:
        return f"{code}: {text}" if text else code
    return text or "the worker reported a failure without a reason"


def stored_text(text: str) -> str:
    r"""Text that every store accepts: PostgreSQL stores no NUL, and UTF-8 has no lone surrogates.

    >>> stored_text("caf\u00e9"), stored_text("a\0b \udc80")
    ('café', 'a\\x00b \\udc80')
    """
    text = text.replace("\0", "\\x00")
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
