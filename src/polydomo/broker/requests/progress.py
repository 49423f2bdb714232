"""Progress of running requests. A worker may report as often as it likes: at most ten reports of a request are passed on in a second, and
the last one is always among them. Only the last report is kept.

Reports are ``PROGRESS_INTERVAL`` apart, which is a little more than a tenth of a second: so the one that is passed on in front of the
final reply, without waiting, is the tenth at most.
"""

from polydomo.broker.state import State
from polydomo.limits import MAX_PROGRESS_TEXT, PROGRESS_INTERVAL
from polydomo.model.records import DONE, PARKED, Request, RequestProgress, Session


class DueProgress:
    """The timer of a report that waits."""

    __slots__ = ("progress", "request")

    def __init__(self, request: Request, progress: RequestProgress) -> None:
        self.request = request
        self.progress = progress


def take(state: State, request: Request, session: Session, share: float, text: str) -> None:
    """The worker that holds the request reports. Its connection is charged for the text."""
    progress = _written(request, session, share, text)
    if progress.waits:
        return
    if state.now < progress.next:
        progress.waits = True
        state.timers.add(state.now, progress.next, DueProgress(request, progress))
    else:
        _pass_on(state, request, progress)


def due(state: State, item: DueProgress) -> None:
    request, progress = item.request, item.progress
    if progress.waits and request.state != DONE and request.history.progress is progress:
        _pass_on(state, request, progress)


def pass_last(state: State, request: Request) -> None:
    """The worker has answered: a report that waits goes in front of its reply."""
    progress = request.history.progress
    if progress is not None and progress.waits and request.state != DONE:
        _pass_on(state, request, progress)


def show(request: Request, share: float, text: str) -> None:
    """The progress of the job that a parked request waits for. It was limited where the worker reported it."""
    if request.state == PARKED:
        _written(request, request.session, share, text)
        request.session.send_progress(request, share, text)


def drop(request: Request) -> None:
    """The attempt, or the request, has ended."""
    progress = request.history.progress
    if progress is not None:
        progress.held_for.partial_bytes -= len(progress.text)
        request.history.progress = None


def _written(request: Request, session: Session, share: float, text: str) -> RequestProgress:
    history = request.own_history()
    progress = history.progress
    if progress is None:
        progress = history.progress = RequestProgress(session)
    text = text[:MAX_PROGRESS_TEXT]
    progress.held_for.partial_bytes += len(text) - len(progress.text)
    progress.share = share
    progress.text = text
    return progress


def _pass_on(state: State, request: Request, progress: RequestProgress) -> None:
    progress.waits = False
    progress.next = state.now + PROGRESS_INTERVAL
    request.session.send_progress(request, progress.share, progress.text)
