"""The operations of flows on a job store, besides ``Finish``, which stores the outcome of a node and releases others.

A flow is stored in parts, so that a large one blocks neither the loop nor the store: ``BeginFlow``, any number of ``PutNodes``, and
``OpenFlow``, which makes it run. Until then it does not exist for clients. Whatever concerns many nodes is done in slices by ``Settle``:
the store knows what is left to do, so that a new leader continues.
"""

from polydomo.broker.flows.flow import FlowRow, NodeFacts, NodeRow, Settled
from polydomo.broker.flows.growth import Growth
from polydomo.broker.jobs.job import Job
from polydomo.broker.jobs.ops import ALWAYS, NEVER, Finish, Op
from polydomo.errors import SettingError


class BeginFlow(Op):
    """Stores a new flow without its nodes. If its id or key already exists, ``existing`` is that flow and nothing is stored; one of another
    content that is still being stored is replaced."""

    retained = False
    repeat = NEVER  # its client begins again

    def __init__(self, row: FlowRow) -> None:
        super().__init__()
        self.row = row
        self.existing: FlowRow | None = None

    def forget(self) -> None:
        self.existing = None


class PutNodes(Op):
    """Stores some nodes and the edges that lead to them: pairs of numbers, from a node to one that needs it. ``done`` is false if the flow
    is not being stored. Nodes that exist are left as they are."""

    retained = False
    repeat = NEVER  # the ``OpenFlow`` behind it would find them missing; its client begins again

    def __init__(self, flow: str, principal: str, nodes: "list[NodeRow]", edges: "list[tuple[int, int]]") -> None:
        super().__init__()
        self.flow = flow
        self.principal = principal  # only the one that has begun the flow may add nodes
        self.nodes = nodes
        self.edges = edges
        self.done = False

    def size(self) -> int:
        return sum([len(node.body) for node in self.nodes])


class OpenFlow(Op):
    """Makes a flow run whose nodes are all stored. ``row`` is None if there is no such flow; ``missing`` is how many nodes it lacks, or how
    many edges it has beyond those that were announced."""

    retained = False

    def __init__(self, id: str, principal: str, now: float) -> None:
        super().__init__()
        self.id = id
        self.principal = principal
        self.now = now
        self.row: FlowRow | None = None
        self.missing = 0

    def forget(self) -> None:
        self.row = None
        self.missing = 0


class StartFlow(Op):
    """Stores a flow and makes it run, in one transaction. If its id or key exists, nothing is stored, and ``existing`` is that flow."""

    retained = False

    def __init__(self, row: FlowRow, growth: Growth) -> None:
        super().__init__()
        self.row = row
        self.growth = growth
        self.existing: FlowRow | None = None

    def size(self) -> int:
        return len(self.growth.text)


class ReadGrowth(Op):
    """Reads a flow outside of the loop, because that may take long. ``growth`` is None if it is not valid, and ``problem`` says why."""

    writes = False

    def __init__(self, text: bytes) -> None:
        super().__init__()
        self.text = text
        self.growth: Growth | None = None
        self.problem = ""

    def read(self) -> None:
        try:
            self.growth = Growth(self.text)
        except SettingError as error:
            self.problem = str(error)


class Grow(Finish):
    """The outcome of a node whose worker answered with a flow: the same transaction adds its nodes, and the last one replaces the node."""

    def __init__(self, job: Job, growth: Growth) -> None:
        super().__init__(job)
        self.growth = growth

    def size(self) -> int:
        return len(self.growth.text)


class Settle(Op):
    """One slice of what is left to do in a flow: release nodes, tell others that a node has ended, cancel or reset nodes, delete them."""

    repeat = ALWAYS

    def __init__(self, id: str, now: float) -> None:
        super().__init__()
        self.id = id
        self.now = now
        self.recheck = False  # find all open nodes again: an answer that named some of them was lost
        self.settled = Settled()

    def renew(self, now: float) -> None:
        super().renew(now)
        self.now = now


class ChangeFlow(Op):
    """Cancels a flow, runs what failed in it again, or removes it: ``state`` is CANCELLING, RETRYING or REMOVING. ``row`` is None if there
    is no such flow, and ``done`` is false if its state does not allow the change."""

    def __init__(self, id: str, state: str, reason: str, now: float) -> None:
        super().__init__()
        self.id = id
        self.state = state
        self.reason = reason
        self.now = now
        self.row: FlowRow | None = None
        self.done = False

    def forget(self) -> None:
        self.row = None
        self.done = False


class Gather(Op):
    """Reads the results that a node gets, and puts them into its body. ``problem`` says why that is impossible, and ``too_large`` that it
    is because of their size."""

    writes = False

    def __init__(self, job: Job, most: int) -> None:
        super().__init__()
        self.job = job
        self.most = most  # bytes
        self.input: bytes | None = None
        self.problem = ""
        self.too_large = False


class GetFlow(Op):
    """Reads one flow, and with ``node`` the node of that name and its job. Each is None if it does not exist."""

    writes = False

    def __init__(self, id: str, node: str | None = None) -> None:
        super().__init__()
        self.id = id
        self.node = node
        self.row: FlowRow | None = None
        self.found: NodeRow | None = None
        self.job: Job | None = None


class SelectFlows(Op):
    """Reads flows, the newest first."""

    writes = False

    def __init__(self, state: str, most: int, principal: str | None = None) -> None:
        super().__init__()
        self.principal = principal  # only its flows; None: those of all principals
        self.state = state  # "": any
        self.most = most
        self.rows: list[FlowRow] = []


class SelectNodes(Op):
    """Reads nodes of a flow: by number, or with ``by_end`` those that have ended, in that order. ``after`` is the number or the position
    after which it begins."""

    writes = False

    def __init__(self, id: str, after: int, most: int, by_end: bool) -> None:
        super().__init__()
        self.id = id
        self.after = after
        self.most = most
        self.by_end = by_end
        self.edges = False  # also read the edges that lead to these nodes
        self.row: FlowRow | None = None
        self.nodes: list[NodeFacts] = []
        self.needs: list[tuple[int, int]] = []
