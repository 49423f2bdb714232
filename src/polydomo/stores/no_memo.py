"""A memo store that could not be opened: it is empty, and every write fails with the reason. The rest of the broker is not affected."""

from polydomo.protocols.memo.cid import Cid
from polydomo.protocols.memo.store_api import MemoValues, StoreFault


class NoMemoStore(MemoValues):
    def __init__(self, why: str) -> None:
        super().__init__()
        self._why = why

    def put_node(self, cid: Cid, data: bytes) -> None:
        if cid.content() is None:
            raise StoreFault(self._why)

    def set_head(self, name: str, cid: Cid) -> None:
        raise StoreFault(self._why)

    def set_call(self, func: str, args: "list[Cid]", result: Cid) -> None:
        raise StoreFault(self._why)

    def put_reply(self, key: bytes, service: str, version: str, body: bytes) -> None:
        raise StoreFault(self._why)

    def close(self) -> None:
        pass
