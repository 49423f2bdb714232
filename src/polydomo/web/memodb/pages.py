"""MemoDB over HTTP, in steps: large Nodes that are stored or shown, long lists, and the arguments of a call."""

from collections.abc import Callable
from hashlib import blake2b
from html import escape
from typing import Final

from polydomo.limits import LISTED_AT_ONCE, MAX_MEMODB_LISTED, MAX_MESSAGE, MAX_NODE_PAGE, SMALL_VALUE, STEP_BYTES
from polydomo.protocols.memo.cid import DAG_CBOR, RAW, Cid
from polydomo.protocols.memo.node import NodeError, cbor_head
from polydomo.protocols.memo.store_api import StoreFault
from polydomo.web.content import JSON, OCTETS, choose
from polydomo.web.memodb.calls import MISSING, MemoService, frame_of
from polydomo.web.memodb.reader import NodeReader
from polydomo.web.memodb.writer import NodeText
from polydomo.web.session import HttpSession
from polydomo.wire.http.head import HttpError, RequestHead
from polydomo.wire.steps import Steps

CBOR: Final = "application/cbor"
HTML: Final = "text/html; charset=utf-8"

# The HTML page that shows a Node. Its content is not trusted, so the page may load nothing.
PAGE: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><h1>{title}</h1>"
    "<pre style='white-space:pre-wrap;overflow-wrap:anywhere'>{text}</pre></html>"
)
PAGE_HEADERS: Final = b"Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\n"
TAG_SIZE: Final = 16  # bytes of the hash in an ETag


def media_for(head: RequestHead, is_octets: bool) -> str:
    """The form of a Node that the client prefers. Raises HttpError."""
    offered = (JSON, CBOR, OCTETS, HTML) if is_octets else (JSON, CBOR, HTML)
    media = choose(head.headers.get("accept", ""), offered)
    if not media:
        raise HttpError(406, f"the Node can be sent as {', '.join(offered)}", close=False)
    return media


def html_page(title: str, text: str) -> bytes:
    if len(text) > MAX_NODE_PAGE:
        text = f"{text[:MAX_NODE_PAGE]} ... (ask for {JSON} or {CBOR} to get all of it)"
    return PAGE.format(title=escape(title), text=escape(text)).encode("utf-8", "surrogatepass")


def send(
    session: HttpSession, head: RequestHead, status: int, media: str, content: bytes, tag: str, cache: bytes
) -> None:
    """Sends a Node, or 304 if the client has it."""
    if media == HTML:
        cache += PAGE_HEADERS
    cache += f'ETag: "{tag}"\r\nVary: Accept\r\n'.encode()
    known = [item.strip().removeprefix("W/") for item in head.headers.get("if-none-match", "").split(",")]
    if status == 200 and (f'"{tag}"' in known or "*" in known) and head.method in ("GET", "HEAD"):
        session.respond(304, cache)
    else:
        session.reply(status, media, content, cache)


class NodeUpload(Steps):
    """A large Node that is being read and stored."""

    def __init__(
        self, memo: MemoService, session: HttpSession, reader: NodeReader, created: "Callable[[HttpSession, Cid], None]"
    ) -> None:
        self.memo = memo
        self.session = session
        self.reader = reader
        self.created = created

    def held(self) -> int:
        return self.reader.held()

    def step(self) -> bool:
        reader = self.reader
        try:
            if not reader.step():
                return False
        except NodeError as error:
            raise HttpError(400, str(error), close=False) from None
        assert reader.cid is not None
        try:
            self.memo.put_data(reader.cid, reader.data)
        except StoreFault as error:
            raise fault(error) from None
        self.created(self.session, reader.cid)
        return True


def fault(error: StoreFault) -> HttpError:
    return HttpError(503, f"the memo store: {error}", close=False)


class NodePage(Steps):
    """A stored Node that is being shown: its text, and the hash of that."""

    def __init__(
        self,
        memo: MemoService,
        session: HttpSession,
        head: RequestHead,
        kind: int,
        data: bytes,
        depth: int,
        cache: bytes,
    ) -> None:
        self.session = session
        self.head = head
        self.cache = cache
        self.media = media_for(head, kind == RAW)
        self.content = b""
        self.text: NodeText | None = None
        if self.media == CBOR:
            self.content = cbor_head(2, len(data)) + data if kind == RAW else data
        elif self.media == OCTETS:
            self.content = data
        else:
            self.text = NodeText(kind, data, memo.store.node, depth)
        self.hash = blake2b(digest_size=TAG_SIZE)
        self.hashed = 0

    def held(self) -> int:
        return len(self.content) + (self.text.held() if self.text is not None else 0)

    def step(self) -> bool:
        if self.text is not None:
            try:
                if not self.text.step():
                    return False
            except NodeError as error:
                raise HttpError(413, str(error), close=False) from None
            except StoreFault as error:
                raise fault(error) from None
            out = self.text.out
            self.text = None
            if self.media == HTML:
                shown = bytes(out[: 4 * MAX_NODE_PAGE]).decode(
                    "utf-8", "ignore" if len(out) > 4 * MAX_NODE_PAGE else "strict"
                )
                self.content = html_page(self.head.path, shown)
            else:
                self.content = bytes(out)
            return False
        self.hash.update(memoryview(self.content)[self.hashed : self.hashed + STEP_BYTES])
        self.hashed += STEP_BYTES
        if self.hashed < len(self.content):
            return False
        send(self.session, self.head, 200, self.media, self.content, self.hash.hexdigest(), self.cache)
        return True


class ListPage(Steps):
    """A long list of addresses, which is read from the store part by part. ``after`` returns those that follow the last one."""

    def __init__(
        self,
        memo: MemoService,
        session: HttpSession,
        head: RequestHead,
        after: "Callable[[int], list[str]]",
        cache: bytes,
    ) -> None:
        self.memo = memo
        self.session = session
        self.head = head
        self.after = after
        self.cache = cache
        self.out = bytearray()
        self.count = 0

    def held(self) -> int:
        return len(self.out)

    def step(self) -> bool:
        most = min(LISTED_AT_ONCE, MAX_MEMODB_LISTED - self.count)
        try:
            found = self.after(most)
        except StoreFault as error:
            raise fault(error) from None
        for uri in found:
            text = uri.encode("utf-8", "replace")
            self.out += cbor_head(3, len(text)) + text
        self.count += len(found)
        if found and self.count < MAX_MEMODB_LISTED:
            return False
        data = cbor_head(4, self.count) + bytes(self.out)
        self.session.http.run(NodePage(self.memo, self.session, self.head, DAG_CBOR, data, 0, self.cache))
        return True


class Following:
    """The names of a list, part by part."""

    def __init__(self, names: "Callable[[str, int], list[str]]", uri_of: "Callable[[str], str]") -> None:
        self.names = names
        self.uri_of = uri_of
        self.last = ""

    def next(self, most: int) -> "list[str]":
        found = self.names(self.last, most)
        if found:
            self.last = found[-1]
        return [self.uri_of(name) for name in found]


class Arguments(Steps):
    """The arguments of a call, in the form that workers get. ``then`` is given their frames; ``failed`` the reason if one is not known,
    or if they are too large together."""

    def __init__(
        self,
        memo: MemoService,
        args: "list[Cid]",
        then: "Callable[[list[bytes]], None]",
        failed: "Callable[[str], None]",
    ) -> None:
        self.memo = memo
        self.args = args
        self.then = then
        self.failed = failed
        self.frames: list[bytes] = []
        self.known: dict[Cid, bytes] = {}  # an argument that occurs again is not read again
        self.size = 0
        self.text: NodeText | None = None

    def held(self) -> int:
        return sum(map(len, self.known.values())) + (self.text.held() if self.text is not None else 0)

    def step(self) -> bool:
        if len(self.frames) == len(self.args):
            self.then(self.frames)
            return True
        cid = self.args[len(self.frames)]
        found = self.known.get(cid)
        try:
            if found is None:
                found = self._frame(cid)
        except StoreFault as error:
            raise fault(error) from None
        except NodeError as error:
            self.failed(str(error))
            return True
        if found is None:
            return False
        self.size += len(found)
        if self.size > MAX_MESSAGE:
            self.failed(f"the arguments have more than {MAX_MESSAGE:,} bytes together (limits.max_message)")
            return True
        self.known[cid] = found
        self.frames.append(found)
        return False

    def _frame(self, cid: Cid) -> bytes | None:
        """None: its text is not complete yet. Raises NodeError."""
        if self.text is None:
            data = self.memo.store.node(cid)
            if data is None:
                raise NodeError(MISSING + cid.text())
            if cid.content_type == RAW:
                return data
            if len(data) <= SMALL_VALUE:
                known, node = self.memo.get(cid)
                if not known:
                    raise NodeError(MISSING + cid.text())
                return frame_of(node)
            if data[0] >> 5 == 3:  # a text: without the head of its CBOR
                return data[1 + (1 << (data[0] & 31) - 24) :]
            self.text = NodeText(cid.content_type, data, self.memo.store.node)
        if not self.text.step():
            return None
        found = bytes(self.text.out)
        self.text = None
        return found
