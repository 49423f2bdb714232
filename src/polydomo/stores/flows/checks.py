"""Checksums of stored flows and nodes. They cover what does not change; counters and states are verified by the rules of flows."""

from struct import Struct
from zlib import crc32

from polydomo.broker.flows.flow import FlowRow, NodeRow

WHOLE = Struct("<I")
NODE = "the stored node is damaged"
FLOW = "the stored flow is damaged"


def node_checks(node: NodeRow) -> bytes:
    numbers = b"%d %d %d" % (node.number, node.priority, node.allowed)
    if node.replaces >= 0:
        numbers += b" %d" % node.replaces
    text = "\0".join((node.flow, node.name, node.job, node.settings)).encode()
    return WHOLE.pack(crc32(b"\0".join((numbers, node.service, text, node.body))))


def node_damage(node: NodeRow) -> str:
    """Why a node that was not released before cannot be used; "" if it can. The body of a released one is that of its job."""
    return NODE if not node.tries and node.checks != node_checks(node) else ""


def flow_checks(row: FlowRow) -> bytes:
    numbers = b"%d %d %r %r" % (row.total - row.added, row.edges, row.kept, row.kept_failed)
    text = "\0".join((row.id, row.name, row.principal, row.fingerprint, row.on_failure)).encode()
    return WHOLE.pack(crc32(numbers + b"\0" + text))
