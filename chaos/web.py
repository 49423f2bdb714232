"""HTTP peers: calls, a long-poll worker, and a WebSocket for both. They parse and check every byte of a response themselves."""

import asyncio
import base64
import contextlib
import json
import random
import re
import signal
import time
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from chaos.calls import ECHO, PLAIN, SLOW, SLOWEST, STREAM, Caller, Options, Plan, named
from polydomo.client.retry import ReconnectDelay
from polydomo.wire.address import parse_url

SERVICES = {**PLAIN, STREAM: 13.0}
OFFERED = (ECHO, SLOW)
LINES = "application/x-ndjson"
PATIENCE = 30.0  # seconds beyond its timeout that a response may take: the broker may be frozen meanwhile
POLL = 2  # seconds for which a worker's poll waits
LEASE = 3  # seconds for which a worker may hold a request
_STATUS = re.compile(rb"HTTP/1\.1 ([1-5][0-9]{2}) [ -~]*\r\n")


class Malformed(Exception):
    """The broker sent invalid HTTP."""


class Connection:
    """One HTTP connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host

    @classmethod
    async def dial(cls, url: str) -> "Connection":
        """Raises OSError."""
        address = parse_url(url, connect=True)
        async with asyncio.timeout(2.0):
            streams = await asyncio.open_connection(address.host, address.port)
        return cls(*streams, f"{address.host}:{address.port}")

    async def post(self, path: str, body: bytes, **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Raises OSError, EOFError and Malformed."""
        lines = [f"POST {path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        status = _STATUS.fullmatch(await self._reader.readuntil(b"\r\n"))
        if status is None:
            raise Malformed("status line")
        found: dict[str, str] = {}
        while (line := await self._reader.readuntil(b"\r\n")) != b"\r\n":
            name, colon, value = line[:-2].decode("latin-1").partition(": ")
            if not colon or name.lower() in found:
                raise Malformed(f"header {line!r}")
            found[name.lower()] = value
        if found.get("transfer-encoding") == "chunked":
            return int(status[1]), found, await self._chunks()
        size = found.get("content-length", "0" if status[1] == b"204" else "")
        if not size.isdigit():
            raise Malformed("no length")
        return int(status[1]), found, await self._reader.readexactly(int(size))

    async def _chunks(self) -> bytes:
        found = b""
        while True:
            line = await self._reader.readuntil(b"\r\n")
            if not re.fullmatch(rb"[0-9a-f]{1,8}\r\n", line):
                raise Malformed(f"chunk size {line!r}")
            size = int(line, 16)
            piece = await self._reader.readexactly(size + 2)
            if piece[size:] != b"\r\n":
                raise Malformed("the end of a chunk")
            if not size:
                return found
            found += piece[:size]

    def close(self) -> None:
        self._writer.transport.abort()


def joined(frames: list[Any]) -> bytes:
    """The frames of a JSON value."""
    parts = [frame.encode() if isinstance(frame, str) else base64.b64decode(frame["base64"]) for frame in frames]
    return b"".join(parts)


def failure(problem: dict[str, Any]) -> str:
    """The outcome for a problem (RFC 9457)."""
    kind = str(problem["type"]).rpartition(":")[2]
    names = {"timeout": "timeout", "no-worker": "no-service"}
    return names.get(kind, f"failed:{problem.get('code') or kind}")


# --- calls ----------------------------------------------------------------------------------------------------------------------


def http_client(options: Options) -> None:
    asyncio.run(_http_client(Caller(options, SERVICES)))


async def _http_client(caller: Caller) -> None:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, caller.stopping.set)

    async def lane() -> None:
        connection: Connection | None = None
        while not caller.stopping.is_set():
            plan = caller.next()
            began = loop.time()
            outcome = "not-connected"
            try:
                if connection is None:
                    connection = await Connection.dial(caller.options.url)
                outcome = "connection-lost"
                async with asyncio.timeout(caller.options.timeout + PATIENCE):
                    outcome = await _call(caller, connection, plan)
            except TimeoutError:
                outcome = "timeout" if connection is not None else outcome
                _dropped(connection)
                connection = None
            except Malformed as error:
                outcome = f"violation:{error}".replace(" ", "-")
                _dropped(connection)
                connection = None
            except (OSError, EOFError, asyncio.LimitOverrunError):
                _dropped(connection)
                connection = None
            caller.record.ended(plan.call, outcome, loop.time() - began)
            await asyncio.sleep(caller.pause())
        _dropped(connection)

    await asyncio.gather(*(lane() for _ in range(caller.options.lanes)))


def _dropped(connection: Connection | None) -> None:
    if connection is not None:
        connection.close()


async def _call(caller: Caller, connection: Connection, plan: Plan) -> str:
    headers = {"Polydomo_Timeout": f"{caller.options.timeout:g}"}
    if plan.service == STREAM:
        headers["Accept"] = LINES
    status, found, body = await connection.post(f"/v1/call/{plan.service}", plan.body, **headers)
    if status != 200:
        return failure(json.loads(body))
    if found["content-type"] != LINES:
        return caller.record.judge(plan.call, body, plan.expected)
    *parts, last = [json.loads(line) for line in body.splitlines()]
    if last["event"] == "failure":
        return failure(last)
    return caller.record.judge(plan.call, b"".join(joined(row["frames"]) for row in (*parts, last)), plan.expected)


# --- a long-poll worker ---------------------------------------------------------------------------------------------------------


def http_worker(options: Options) -> None:
    asyncio.run(_http_worker(options))


async def _http_worker(options: Options) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    dice = random.Random(options.seed)

    async def lane(service: str) -> None:
        worker: dict[str, str] = {}
        backoff = ReconnectDelay(most=0.5)
        while not stop.is_set():
            connection: Connection | None = None
            try:
                connection = await Connection.dial(options.url)
                while not stop.is_set():
                    await _work(options, connection, service, worker, dice)
                    backoff.reset()
            except (OSError, EOFError, KeyError, asyncio.LimitOverrunError):
                await asyncio.sleep(backoff.next())
            finally:
                _dropped(connection)

    await asyncio.gather(*(lane(service) for service in OFFERED for _ in range(options.lanes)))


async def _work(
    options: Options, connection: Connection, service: str, worker: dict[str, str], dice: random.Random
) -> None:
    """One poll, and the reply to the request that it returned. Raises KeyError if the broker refuses the poll."""
    async with asyncio.timeout(POLL + PATIENCE):
        path = f"/v1/work/{service}?wait={POLL}&lease={LEASE}"
        status, found, body = await connection.post(path, b"", **worker)
    if status == 204:
        return
    worker["Polydomo_Worker"] = found["polydomo-worker"]
    options.record.executing(named(body))
    if service == SLOW:
        await asyncio.sleep(dice.random() * SLOWEST)
    async with asyncio.timeout(PATIENCE):  # 409: the broker has requeued the request
        await connection.post("/v1/reply", body, Polydomo_Token=found["polydomo-token"])


# --- WebSocket ------------------------------------------------------------------------------------------------------------------


def _dial(options: Options) -> connect:
    url = options.url.replace("tcp://", "ws://") + "/v1/ws"
    return connect(url, open_timeout=2.0, close_timeout=1.0, ping_interval=None, max_size=None, compression=None)


def websocket_client(options: Options) -> None:
    asyncio.run(_WebSocketClient(options).run())


class _WebSocketClient:
    """Several calls at a time over one connection. The id of a call is its name."""

    def __init__(self, options: Options) -> None:
        self.caller = Caller(options, SERVICES)
        self.options = options
        self.open: dict[str, tuple[Plan, list[bytes], asyncio.Future[str]]] = {}
        self.ended: set[str] = set()
        self.socket: ClientConnection | None = None

    async def run(self) -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self.caller.stopping.set)
        connected = asyncio.ensure_future(self._stay_connected())
        await asyncio.gather(*(self._lane() for _ in range(self.options.lanes)))
        connected.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await connected

    async def _stay_connected(self) -> None:
        backoff = ReconnectDelay(most=0.5)
        while True:
            try:
                async with _dial(self.options) as self.socket:
                    backoff.reset()
                    async for text in self.socket:
                        self._take(json.loads(text))
            except (OSError, WebSocketException, TimeoutError):
                pass
            finally:
                self.socket = None
                for _, _, future in self.open.values():
                    if not future.done():
                        future.set_result("connection-lost")
            await asyncio.sleep(backoff.next())

    def _take(self, message: dict[str, Any]) -> None:
        call = str(message.get("id", ""))
        if message["op"] not in ("partial", "final", "failure"):
            return
        if call not in self.open:
            if call in self.ended:
                self.caller.record.second(call)
            return  # a call that timed out may still be answered
        plan, parts, future = self.open[call]
        if message["op"] != "failure":
            parts.append(joined(message["frames"]))
        if message["op"] != "partial" and not future.done():
            self.ended.add(call)
            reply = message["op"] == "final"
            future.set_result(
                self.caller.record.judge(call, b"".join(parts), plan.expected) if reply else failure(message["problem"])
            )

    async def _lane(self) -> None:
        caller = self.caller
        while not caller.stopping.is_set():
            plan = caller.next()
            began = time.monotonic()
            caller.record.ended(plan.call, await self._call(plan), time.monotonic() - began)
            await asyncio.sleep(caller.pause())

    async def _call(self, plan: Plan) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.open[plan.call] = plan, [], future
        asked = {"op": "call", "id": plan.call, "service": plan.service, "frames": [plan.body.decode()]}
        try:
            if self.socket is None:
                return "not-connected"
            async with asyncio.timeout(self.options.timeout + PATIENCE):
                await self.socket.send(json.dumps({**asked, "timeout": self.options.timeout}))
                return await future
        except TimeoutError:
            return "timeout"
        except WebSocketException:
            return "connection-lost"
        finally:
            del self.open[plan.call]


def websocket_worker(options: Options) -> None:
    asyncio.run(_websocket_worker(options))


async def _websocket_worker(options: Options) -> None:
    """Offers one service per connection, and serves ``lanes`` requests at a time."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    dice = random.Random(options.seed)

    async def serve(socket: ClientConnection, job: dict[str, Any]) -> None:
        body = joined(job["frames"])
        options.record.executing(named(body))
        if job["service"] == SLOW:
            await asyncio.sleep(dice.random() * SLOWEST)
        with contextlib.suppress(WebSocketException):
            await socket.send(
                json.dumps({"op": "reply", "token": job["token"], "frames": job["frames"], "final": True})
            )

    async def offer(service: str) -> None:
        backoff = ReconnectDelay(most=0.5)
        while not stop.is_set():
            running: set[asyncio.Task[None]] = set()
            try:
                async with _dial(options) as socket:
                    await socket.send(json.dumps({"op": "work", "service": service, "credit": options.lanes}))
                    backoff.reset()
                    async for text in socket:
                        message = json.loads(text)
                        if message["op"] == "job":
                            task = asyncio.create_task(serve(socket, message))
                            running.add(task)
                            task.add_done_callback(running.discard)
            except (OSError, WebSocketException, TimeoutError):
                pass
            for task in list(running):
                task.cancel()
            await asyncio.sleep(backoff.next())

    offers = [asyncio.ensure_future(offer(service)) for service in OFFERED]
    await stop.wait()
    for task in offers:
        task.cancel()
    await asyncio.gather(*offers, return_exceptions=True)
