"""``polydomo publish`` and ``polydomo subscribe``: topics from the shell."""

import asyncio
import json as json_text
import os
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.broker.reserved_names import MONITOR
from polydomo.cli.calls.call import json_frame, read_body
from polydomo.cli.common import options
from polydomo.cli.common.options import To
from polydomo.cli.common.render import clean, on_terminal

if TYPE_CHECKING:
    from polydomo.client.message import Message


def add_to(app: typer.Typer) -> None:
    app.command()(publish)
    app.command()(subscribe)


def publish(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the message.")],
    body: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BODY]...", help="Frames of the message; - reads standard input."),
    ] = None,
    to: To = None,
    lines: Annotated[bool, typer.Option("--lines", help="Publish each line of standard input as a message.")] = False,
) -> None:
    """Publish a message under a topic.

    Subscribers with a matching prefix receive it, and the broker keeps it as the topic's last value. A message without a body removes
    the last value. The command exits once everything is sent to the broker; subscribers do not confirm delivery.

    **Examples**

    - `polydomo publish weather.oslo snow`
    - `polydomo publish camera.1 - <picture.png`
    - `tail -f access.log | polydomo publish web.access --lines`
    """
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.errors import SettingError

    if lines and body:
        raise SettingError("--lines: reads messages from standard input; remove BODY")
    if topic.startswith(MONITOR.decode()):
        raise SettingError(f"TOPIC: only the broker publishes under {MONITOR.decode()!r}")
    url = options.address(to)
    name = os.fsencode(topic)
    with needs_broker(url):
        asyncio.run(send(url, name, lines_of_input() if lines else one(read_body(body) if body else [])))


async def send(url: str, topic: bytes, bodies: AsyncIterator[list[bytes]]) -> None:
    from polydomo.client.connection import connect
    from polydomo.client.security import target
    from polydomo.errors import PolydomoError
    from polydomo.limits import CONNECT_TIME
    from polydomo.protocols.pubsub.ends import PublisherEnd

    lost: list[PolydomoError] = []
    end = PublisherEnd()
    connection = await connect(target(url), end, lambda event: None, lost.append, CONNECT_TIME)
    async for frames in bodies:
        await connection.writable()
        if not connection.alive:
            break
        end.publish(topic, frames)
        connection.flush_soon()
    if connection.alive:
        connection.close("everything is published")
        await connection.gone
    elif lost:
        raise lost[0]


async def one(frames: list[bytes]) -> AsyncIterator[list[bytes]]:
    yield frames


async def lines_of_input() -> AsyncIterator[list[bytes]]:
    """Yields each line of standard input, without the line end."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        yield [line.removesuffix(b"\n").removesuffix(b"\r")]


def subscribe(
    prefix: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PREFIX]...", help="Topic prefixes to subscribe to.  [default: all topics]"),
    ] = None,
    to: To = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", metavar="N", min=1, help="Exit after N messages.")
    ] = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="Write the bytes of each message unchanged, without the topic.")
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Write one JSON object per message; binary frames are base64.")
    ] = False,
) -> None:
    """Print messages of topics: first the last value of each topic, then new messages as they arrive.

    It reconnects when the broker restarts; press Ctrl-C to stop.

    **Examples**

    - `polydomo subscribe weather.`
    - `polydomo subscribe weather.oslo --count 1 --raw`
    - `polydomo subscribe log. --json | jq -r .topic`
    """
    from polydomo.cli.common.exit_status import needs_broker, through_restarts
    from polydomo.errors import SettingError

    if raw and json:
        raise SettingError("--raw and --json: choose one")
    url = options.address(to)
    prefixes = [os.fsencode(each) for each in prefix or [""]]
    receiver = Receiver(url, prefixes, count, raw, json)
    with needs_broker(url):
        asyncio.run(through_restarts(receiver.follow))


class Receiver:
    """Prints messages, reconnecting as needed, until the count is reached."""

    def __init__(self, url: str, prefixes: list[bytes], count: int | None, raw: bool, json: bool) -> None:
        self.url = url
        self.prefixes = prefixes
        self.count = count
        self.raw = raw
        self.json = json
        self.printed = 0

    async def follow(self) -> None:
        from polydomo.cli.common.exit_status import following
        from polydomo.client.subscriber import AsyncSubscriber

        async with AsyncSubscriber(self.url, *self.prefixes) as subscriber:
            following(self.url)
            async for topic, message in subscriber:
                self._print(topic, message)
                self.printed += 1
                if self.printed == self.count:
                    return

    def _print(self, topic: str, message: "Message") -> None:
        if self.raw:
            sys.stdout.buffer.write(b"".join(message))
            sys.stdout.buffer.flush()
        elif self.json:
            typer.echo(json_text.dumps({"topic": topic, "frames": [json_frame(frame) for frame in message]}))
        else:
            typer.echo("  ".join([clean(topic), *(shown(frame) for frame in message)]))


def shown(frame: bytes) -> str:
    """Formats a frame on one line. Control characters are escaped on a terminal, line ends everywhere.

    >>> shown(b"snow\\n"), shown(b"\\xff")
    ('snow\\\\n', '\\\\xff')
    """
    text = frame.decode("utf-8", "backslashreplace")
    return clean(text) if on_terminal() else text.replace("\r", "\\r").replace("\n", "\\n")
