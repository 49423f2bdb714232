"""How requests end: outcomes, reasons and failures."""

from polydomo.limits import MAX_FAILURE_CODE, MAX_FAILURE_TEXT

# --- outcomes ----------------------------------------------------------------------------------------------------------

OK = "ok"  # a final reply
NO_WORKER = "no-worker"  # waited too long for a service without workers
TIMEOUT = "timeout"  # the deadline passed
GAVE_UP = "gave-up"  # lost with its worker ``attempts`` times
INTERRUPTED = "interrupted"  # the worker was lost after a partial reply had reached the client
FAILED = "failed"  # the worker reported a failure
TOO_LARGE = "too-large"  # held partial replies exceeded the message limit
CANCELLED = "cancelled"  # the client disconnected or cancelled it
REFUSED = "refused"  # a limit was reached, or the name is not allowed
SHUTDOWN = "shutdown"  # the broker is shutting down
DENIED = "denied"  # the client's principal lacks the right
OUTCOMES = (OK, NO_WORKER, TIMEOUT, GAVE_UP, INTERRUPTED, FAILED, TOO_LARGE, CANCELLED, REFUSED, SHUTDOWN, DENIED)
REUSED = "reused"  # in the journal, of a job: the stored reply to an equal call is its result
KEY_REUSED = "key-reused"  # code of a failure: an open request has this key and another body
CLIENT_CANCELLED = "cancelled by the client"  # reasons
CLIENT_TIMEOUT = "the client's timeout passed"
ABANDON = b"polydomo.abandon"  # the service by which clients of protocols without a message for it cancel a request
ABANDON_MARK = b" "  # in its body, between the id and "timeout"
FAILURE_MARK = b"polydomo-failure"  # second frame of a failure where a protocol can carry one: "" mark code text


def read_failure(code: bytes, text: bytes) -> "tuple[str, str]":
    """A failure that a worker reported, within the limits of both parts."""
    return code[:MAX_FAILURE_CODE].decode("utf-8", "replace"), text[:MAX_FAILURE_TEXT].decode("utf-8", "replace")
