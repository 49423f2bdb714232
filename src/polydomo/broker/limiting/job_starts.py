"""Durable jobs in the queues of services with limits: only the leader of their store may start them."""

from polydomo.model.records import Session


class JobStarts:
    """Durable jobs, which only the leader of their store may start."""

    def __init__(self, session: Session) -> None:
        self.session = session  # that sends their attempts

    def allowed(self) -> bool:
        raise NotImplementedError

    def withdraw(self) -> None:
        """Takes all attempts out of the queues."""
