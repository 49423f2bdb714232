"""A thousand calls at once over one connection, with asyncio on both sides.

Prints:

    1000 replies, sum of squares 332833500
"""

import asyncio
import os

from polydomo import AsyncClient, AsyncWorker, Call

URL = os.environ.get("POLYDOMO_TO", "tcp://127.0.0.1:5246")

worker = AsyncWorker(URL, concurrency=8)


@worker.service("example.square")
async def square(call: Call) -> str:
    return str(int(call.text) ** 2)


async def main() -> None:
    async with worker, AsyncClient(URL) as client:
        replies = await asyncio.gather(*(client.call("example.square", str(n)) for n in range(1000)))
        print(f"{len(replies)} replies, sum of squares {sum(int(reply.text) for reply in replies)}")


asyncio.run(main())
