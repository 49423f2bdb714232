"""The parts of the broker that built-in services show and change."""

from polydomo.broker.catalog.directory import Directory
from polydomo.broker.guard.access import Access
from polydomo.broker.guard.logins import Logins
from polydomo.broker.guard.memory import MemoryAccount
from polydomo.broker.jobs.durable import Durable
from polydomo.broker.limiting.limiter import Limiter
from polydomo.broker.observe.figures import Figures
from polydomo.broker.observe.history.history import FigureHistory
from polydomo.broker.observe.monitor import Monitor
from polydomo.broker.observe.schemas import Schemas
from polydomo.broker.sharing.memoised import Memoiser
from polydomo.broker.state import State
from polydomo.broker.topics.publishing import Publishing
from polydomo.broker.workers.control import Control


class Parts:
    __slots__ = (
        "access", "control", "directory", "durable", "figures", "history", "limiter", "logins", "memoiser", "memory", "monitor",
        "publishing", "schemas", "state",
    )  # fmt: skip

    def __init__(self, state: State) -> None:
        """The other attributes are set by ``Broker``, once."""
        self.state = state
        self.access: Access
        self.control: Control
        self.directory: Directory
        self.durable: Durable | None = None  # durable jobs, if this process has the job store
        self.figures: Figures
        self.history: FigureHistory
        self.limiter: Limiter
        self.logins: Logins
        self.memoiser: Memoiser | None = None  # set if services are memoised
        self.memory: MemoryAccount
        self.monitor: Monitor
        self.publishing: Publishing
        self.schemas: Schemas
