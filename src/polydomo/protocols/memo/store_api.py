"""The interface of the memo store for the pure core: MemoDB's Nodes, heads and calls, and replies of memoised services by key.

``stores.memo.MemoStore`` keeps them on disk; this class keeps them in memory, for tests and the simulator.
"""

from polydomo.limits import MAX_MEMODB_LISTED
from polydomo.native import mypyc_attr
from polydomo.protocols.memo.cid import Cid


def packed(args: "list[Cid]") -> bytes:
    """The arguments of a call as one key."""
    return b"".join([bytes((len(cid.raw),)) + cid.raw for cid in args])


class StoreFault(Exception):
    """The store cannot read or write a value: the disk is full, its share of the disk is used up, the value is damaged, or another process
    holds a lock."""


@mypyc_attr(allow_interpreted_subclasses=True)
class MemoValues:
    """In memory, without limits."""

    def __init__(self) -> None:
        self._nodes: dict[Cid, bytes] = {}
        self._heads: dict[str, Cid] = {}
        self._calls: dict[str, dict[tuple[Cid, ...], Cid]] = {}
        self._replies: dict[bytes, tuple[str, bytes]] = {}

    def memory(self) -> int:
        """Bytes held in memory."""
        return sum(map(len, self._nodes.values())) + sum(len(body) for _, body in self._replies.values())

    def node(self, cid: Cid) -> bytes | None:
        """The bytes that the CID identifies."""
        content = cid.content()
        return content if content is not None else self._nodes.get(cid)

    def put_node(self, cid: Cid, data: bytes) -> None:
        if cid.content() is None:
            self._nodes[cid] = data

    def head(self, name: str) -> Cid | None:
        return self._heads.get(name)

    def heads(self, after: str = "", most: int = MAX_MEMODB_LISTED) -> "list[str]":
        """In order, those that follow the name ``after``."""
        return sorted(name for name in self._heads if name > after)[:most]

    def set_head(self, name: str, cid: Cid) -> None:
        self._heads[name] = cid

    def call(self, func: str, args: "list[Cid]") -> Cid | None:
        """The stored result of a call, if there is one."""
        return self._calls.get(func, {}).get(tuple(args))

    def funcs(self, after: str = "", most: int = MAX_MEMODB_LISTED) -> "list[str]":
        return sorted(name for name in self._calls if name > after)[:most]

    def calls(self, func: str, after: "list[Cid] | None" = None, most: int = MAX_MEMODB_LISTED) -> "list[list[Cid]]":
        """Arguments in the order of ``packed``, those that follow ``after``."""
        last = packed(after or [])
        found = sorted((packed(list(args)), list(args)) for args in self._calls.get(func, {}))
        return [args for key, args in found if key > last][:most]

    def set_call(self, func: str, args: "list[Cid]", result: Cid) -> None:
        self._calls.setdefault(func, {})[tuple(args)] = result

    def delete_calls(self, func: str) -> int:
        return len(self._calls.pop(func, {}))

    def reply(self, key: bytes) -> bytes | None:
        """The reply stored under this key, as a body of frames."""
        found = self._replies.get(key)
        return found[1] if found is not None else None

    def put_reply(self, key: bytes, service: str, version: str, body: bytes) -> None:
        self._replies[key] = service, body

    def remove_replies(self, service: str) -> int:
        """Removes the replies of one service, or of all with a prefix if the name ends with ``*``."""
        star = service.endswith("*")
        gone = [
            key
            for key, (name, _) in self._replies.items()
            if name == service or (star and name.startswith(service[:-1]))
        ]
        for key in gone:
            del self._replies[key]
        return len(gone)

    def replies(self) -> "list[dict[str, object]]":
        return []

    def stats(self) -> "dict[str, object]":
        return {"replies": len(self._replies)}
