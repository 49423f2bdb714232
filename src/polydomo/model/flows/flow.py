"""A flow as a program describes it: services that are called, and which results each call gets."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from polydomo.errors import SettingError
from polydomo.limits import FLOW_PART, FLOW_PART_EDGES, KIB, MAX_FLOW_EDGES, MAX_FLOW_NODES, MAX_NODE_NAME, MIB
from polydomo.model.flows.messages import check_frames, check_name
from polydomo.model.retry_policy import Backoff

Row = dict[str, object]

INLINE = 4 * KIB  # characters of text that are written into the description of a node; longer text is a frame
PART_HEADER = 128 * KIB  # bytes of the description of nodes in one message: half of what the broker accepts
PART_BODY = 4 * MIB  # bytes of arguments in one message


class FlowNode:
    """One call of a flow. Pass it to another call as an argument, and that call gets its result."""

    __slots__ = ("flow", "frames", "name", "needs", "number", "row")

    def __init__(self, flow: "Flow", number: int, name: str) -> None:
        self.flow = flow
        self.number = number
        self.name = name
        self.row: Row = {"name": name}
        self.frames: list[bytes] = []
        self.needs: set[int] = set()

    def __repr__(self) -> str:
        return f"<node {self.name!r} of flow {self.flow.name!r}>"


class FlowPart:
    """The nodes of one message."""

    __slots__ = ("first", "frames", "nodes")

    def __init__(self, first: int) -> None:
        self.first = first
        self.nodes: list[Row] = []
        self.frames: list[bytes] = []


class Flow:
    """A graph of calls. ``call`` and ``map`` add nodes; ``Client.start`` runs it.

    ``on_failure``: if a node fails for good, nodes that do not need it continue (``continue``), or the flow is cancelled (``cancel``).
    ``reuse``: the default for all nodes; see ``call``.
    """

    def __init__(self, name: str, on_failure: str = "continue", reuse: bool = False) -> None:
        if on_failure not in ("continue", "cancel"):
            raise SettingError(f"on_failure: {on_failure!r} must be continue or cancel")
        self.name = name
        self.on_failure = on_failure
        self.reuse = reuse
        self.nodes: list[FlowNode] = []
        self.edges = 0
        self._by_name: dict[str, FlowNode] = {}
        self._generated: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, name: str) -> FlowNode:
        return self._by_name[name]

    def call(
        self,
        service: str,
        *arguments: object,
        name: str = "",
        after: Sequence[FlowNode] = (),
        retries: int | Backoff | None = None,
        run_timeout: float | None = None,
        priority: int = 0,
        allow_failure: bool = False,
        by_reference: bool = False,
        reuse: bool | None = None,
        group: str = "",
        **named: object,
    ) -> FlowNode:
        """Adds a call of a service. An argument is bytes, text, a JSON value, a node, or a list of nodes. The worker gets one frame for
        each argument, and for a list of nodes one for each of them. A typed service gets its parameters. With arguments by name, the
        worker gets one JSON object.

        ``name`` is unique in the flow, and generated if it is not given. ``after``: nodes that must end before it, without their results.
        ``retries``, ``run_timeout``, ``priority`` and ``group`` are those of ``submit_job``. ``allow_failure``: if it fails, nodes that
        need it run and get the failure as a value, the JSON object ``{"error": ..., "text": ...}``. ``by_reference``: it gets the ids of
        jobs instead of results, and a list of nodes as one frame, a JSON list of ids. ``reuse``: if a call with the same service and the
        same arguments has been run before, its result is used.
        """
        return self.add(
            service,
            arguments,
            named,
            name=name,
            after=after,
            retries=retries,
            run_timeout=run_timeout,
            priority=priority,
            allow_failure=allow_failure,
            by_reference=by_reference,
            reuse=reuse,
            group=group,
        )

    def add(
        self,
        service: str,
        arguments: Sequence[object],
        named: "Mapping[str, object]",
        name: str = "",
        after: Sequence[FlowNode] = (),
        retries: int | Backoff | None = None,
        run_timeout: float | None = None,
        priority: int = 0,
        allow_failure: bool = False,
        by_reference: bool = False,
        reuse: bool | None = None,
        group: str = "",
    ) -> FlowNode:
        """``call`` with its arguments in a list and a dictionary, whose names may be those of options of ``call``."""
        node = FlowNode(self, len(self.nodes), name or self._new_name(service))
        if len(self.nodes) >= MAX_FLOW_NODES:
            raise SettingError(f"node {node.name!r}: the flow has more than {MAX_FLOW_NODES:,} nodes (MAX_FLOW_NODES)")
        if node.name in self._by_name:
            raise SettingError(f"node {node.name!r}: the flow has another node with this name")
        if len(node.name.encode("utf-8", "surrogateescape")) > MAX_NODE_NAME:
            raise SettingError(f"node {node.name!r:.50}: a name has at most {MAX_NODE_NAME} bytes (MAX_NODE_NAME)")
        row = node.row
        row["service"] = service
        if arguments and named:
            raise SettingError(f"node {node.name!r}: give arguments by position or by name, not both")
        given = [*arguments, *named.values()]
        try:
            check_name(node.name)
            check_frames(arguments, by_reference)
        except SettingError as error:
            raise SettingError(f"node {node.name!r}: {error}") from None
        row["args"] = [self._argument(node, value, bool(named)) for value in given]
        if named:
            row["names"] = list(named)
        if after:
            row["after"] = ranges([self._number(node, one) for one in after])
        if retries is not None:
            row["retries"] = retries.to_json() if isinstance(retries, Backoff) else retries
        if run_timeout is not None:
            row["timeout_us"] = round(run_timeout * 1e6)
        if priority:
            row["priority"] = priority
        if allow_failure:
            row["allow_failure"] = True
        if by_reference:
            row["by_reference"] = True
        if self.reuse if reuse is None else reuse:
            row["reuse"] = True
        if group:
            row["group"] = group
        if self.edges + len(node.needs) > MAX_FLOW_EDGES:
            raise SettingError(f"node {node.name!r}: the flow has more than {MAX_FLOW_EDGES:,} edges (MAX_FLOW_EDGES)")
        self.edges += len(node.needs)
        self.nodes.append(node)
        self._by_name[node.name] = node
        if not name:
            self._generated[service] = self._generated.get(service, 0) + 1
        return node

    def map(
        self,
        service: str,
        items: Iterable[object],
        *more: object,
        after: Sequence[FlowNode] = (),
        retries: int | Backoff | None = None,
        run_timeout: float | None = None,
        priority: int = 0,
        allow_failure: bool = False,
        by_reference: bool = False,
        reuse: bool | None = None,
        group: str = "",
    ) -> list[FlowNode]:
        """Adds one call for each item, with ``more`` as further arguments of each. Returns the nodes."""
        return [
            self.add(
                service,
                (item, *more),
                {},
                after=after,
                retries=retries,
                run_timeout=run_timeout,
                priority=priority,
                allow_failure=allow_failure,
                by_reference=by_reference,
                reuse=reuse,
                group=group,
            )
            for item in items
        ]

    def _new_name(self, service: str) -> str:
        number = self._generated.get(service, 0) + 1
        name = service if number == 1 else f"{service}-{number}"
        while name in self._by_name:
            number += 1
            name = f"{service}-{number}"
        return name

    def _number(self, node: FlowNode, given: object) -> int:
        if not isinstance(given, FlowNode) or given.flow is not self:
            raise SettingError(f"node {node.name!r}: {given!r:.100} is not a node of this flow")
        node.needs.add(given.number)
        return given.number

    def _argument(self, node: FlowNode, value: object, named: bool) -> object:
        """An argument as the broker reads it. With a name, it is JSON."""
        if isinstance(value, FlowNode):
            return self._number(node, value)
        if isinstance(value, list) and all(isinstance(one, FlowNode) for one in value):
            return ranges([self._number(node, one) for one in value])
        if isinstance(value, str) and not named:
            if len(value) <= INLINE:
                return value
            node.frames.append(value.encode())
        elif isinstance(value, bytes | bytearray | memoryview) and not named:
            node.frames.append(bytes(value))
        else:
            try:
                node.frames.append(msgspec.json.encode(value))
            except TypeError as error:
                raise SettingError(f"node {node.name!r}: an argument has no JSON form: {error}") from None
        return None

    # --- for the client

    def services(self) -> list[str]:
        return sorted({str(node.row["service"]) for node in self.nodes})

    def fingerprint(self) -> str:
        """Equal for flows with the same nodes."""
        digest = hashlib.sha256()
        for node in self.nodes:
            digest.update(json.dumps(node.row, separators=(",", ":")).encode())
            for frame in node.frames:
                digest.update(b"%d:%b" % (len(frame), frame))
        return digest.hexdigest()[:32]

    def parts(self) -> Iterator[FlowPart]:
        """The nodes, in messages that the broker accepts."""
        part = FlowPart(0)
        header = body = edges = 0
        for node in self.nodes:
            size = len(json.dumps(node.row, separators=(",", ":")))
            content = sum(len(frame) for frame in node.frames)
            if part.nodes and (
                len(part.nodes) >= FLOW_PART
                or header + size > PART_HEADER
                or body + content > PART_BODY
                or edges + len(node.needs) > FLOW_PART_EDGES
            ):
                yield part
                part = FlowPart(node.number)
                header = body = edges = 0
            part.nodes.append(node.row)
            part.frames.extend(node.frames)
            header += size
            body += content
            edges += len(node.needs)
        yield part


def ranges(numbers: Sequence[int]) -> list[object]:
    """Writes three or more successive numbers as one range.

    >>> ranges([1, 2, 3, 4, 9, 7, 8])
    [[1, 4], 9, 7, 8]
    """
    found: list[object] = []
    at = 0
    while at < len(numbers):
        end = at
        while end + 1 < len(numbers) and numbers[end + 1] == numbers[end] + 1:
            end += 1
        if end - at >= 2:
            found.append([numbers[at], numbers[end]])
        else:
            found.extend(numbers[at : end + 1])
        at = end + 1
    return found
