"""``polydomo memo put``, ``get``, ``call``, ``evaluate``, ``heads`` and ``refs``: the Nodes of the memo store, as MemoDB's commands do."""

import json as jsons
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from polydomo.cli.common import options
from polydomo.cli.common.options import ANSWER_TIME, Json, Timeout, To
from polydomo.cli.common.render import show_json
from polydomo.cli.inspect.memo import commands

if TYPE_CHECKING:
    from polydomo.cli.inspect.memo_http import MemoApi

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ARG]...", help="Arguments: CIDs, or Nodes as MemoDB JSON, such as 2 or '\"text\"'."),
]
Raw = Annotated[bool, typer.Option("--raw", help="Write the bytes of a byte string instead of JSON.")]
OnlyCid = Annotated[bool, typer.Option("--cid", help="Print the CID of the result instead of the result.")]

# A link in MemoDB JSON. In a string with this text, the quotes would be escaped.
CID = re.compile(r'"cid":\s*"([^"]+)"')


def add_to(app: typer.Typer) -> None:
    """The commands are added to the group of ``memo`` when this module is imported."""


@commands.command()
def put(
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="A Node as MemoDB JSON, such as '{\"map\": {\"n\": 1}}'; - reads standard input.")
    ],
    raw: Annotated[bool, typer.Option("--raw", help="NODE is a byte string, not JSON.")] = False,
    head: Annotated[str, typer.Option("--head", metavar="NAME", help="Let this head point to the Node.")] = "",
    to: To = None,
    timeout: Timeout = ANSWER_TIME,
) -> None:  # fmt: skip
    """Store a Node and print its CID.

    **Examples**

    - `polydomo memo put '{"map": {"width": 640}}'`
    - `polydomo memo put --raw --head picture - <picture.png`
    """
    from polydomo.cli.inspect.memo_http import JSON, OCTETS

    content = sys.stdin.buffer.read() if node == "-" else node.encode("utf-8", "surrogateescape")
    with _api(to, timeout) as api:
        cid = api.put(content, OCTETS if raw else JSON)
        if head:
            api.set_head(head, cid)
    typer.echo(cid)


@commands.command()
def get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A CID, or the head /head/NAME, whose Node is shown.")],
    raw: Raw = False,
    depth: Annotated[int, typer.Option(metavar="N", min=0, help="Show linked Nodes too, to this depth.")] = 0,
    to: To = None,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """Print a Node as MemoDB JSON. Exits with status 4 if it is not in the store.

    **Examples**

    - `polydomo memo get uAXEAAQI`
    - `polydomo memo get /head/picture --raw >picture.png`
    """
    with _api(to, timeout) as api:
        cid = api.link(name) if name.startswith("/head/") else name.removeprefix("/cid/")
        _show(api, cid, raw, depth)


@commands.command()
def call(
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="Name of the function, which is a service.")],
    arguments: Arguments = None,
    cid: OnlyCid = False,
    raw: Raw = False,
    to: To = None,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """Print the stored result of a call; without arguments, list the stored calls of the function.

    Nothing is computed. Exits with status 4 if the call has no result in the store.

    **Examples**

    - `polydomo memo call add 2 3`
    - `polydomo memo call add`
    """
    from polydomo.cli.inspect.memo_http import call_path

    with _api(to, timeout) as api:
        if not arguments:
            for path in api.names(call_path(function, []).rstrip("/")):
                typer.echo(path)
            return
        _result(api, api.link(call_path(function, _cids(api, arguments))), cid, raw)


@commands.command()
def evaluate(
    function: Annotated[str, typer.Argument(metavar="FUNCTION", help="Name of the function, which is a service.")],
    arguments: Arguments = None,
    cid: OnlyCid = False,
    raw: Raw = False,
    to: To = None,
    timeout: Annotated[float, options.time_option("Time for the evaluation, such as 5m.")] = 60.0,
) -> None:
    """Print the result of a call, computed by a worker if it is not in the store.

    A worker of any protocol gets one frame per argument. Exits with status 3 if there is no result in time; the evaluation goes on.

    **Examples**

    - `polydomo memo evaluate upper '"text"'`
    - `polydomo memo evaluate resize uAXEABYIYfBiF 50 --raw >small.png`
    """
    from polydomo.cli.inspect.memo_http import POLL, call_path
    from polydomo.errors import CallTimeout, SettingError

    if not arguments:
        raise SettingError("ARG: a call has one argument or more")
    end = time.monotonic() + timeout
    with _api(to, POLL + ANSWER_TIME) as api:
        path = call_path(function, _cids(api, arguments))
        while (found := api.evaluate(path, max(1.0, end - time.monotonic()))) is None:
            if time.monotonic() >= end:
                raise CallTimeout(f"no result of {function} within {timeout:g} s")
        _result(api, found, cid, raw)


@commands.command()
def heads(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Show this head only.")] = "",
    cid: Annotated[str, typer.Argument(metavar="[CID]", help="Let the head point to this CID.")] = "",
    to: To = None,
    json: Json = False,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """List the heads with their CIDs, show one, or set one.

    **Examples**

    - `polydomo memo heads`
    - `polydomo memo heads picture uAXEABYIYfBiF`
    """
    from polydomo.cli.inspect.memo_http import head_path

    with _api(to, timeout) as api:
        if cid:
            api.set_head(name, cid)
        paths = [head_path(name)] if name else api.names("/head")
        found = {path.removeprefix("/head/"): api.link(path) for path in paths}
    if json:
        show_json(found)
        return
    for each, link in found.items():
        typer.echo(link if name else f"{each}  {link}")


@commands.command()
def refs(
    cid: Annotated[str, typer.Argument(metavar="CID", help="CID of a Node.")],
    links: Annotated[bool, typer.Option("--links", help="List the CIDs that the Node links to instead.")] = False,
    to: To = None,
    timeout: Timeout = ANSWER_TIME,
) -> None:
    """List what refers to a Node: heads, and stored calls that have it as an argument or as their result.

    It reads all stored calls, which takes a while in a large store.

    **Examples**

    - `polydomo memo refs uAXEABYIYfBiF`
    - `polydomo memo refs uAXEABYIYfBiF --links`
    """
    with _api(to, timeout) as api:
        if links:
            for found in dict.fromkeys(CID.findall(api.get(f"/cid/{cid}").decode("utf-8", "surrogatepass"))):
                typer.echo(found)
            return
        for path in api.names("/head"):
            if api.link(path) == cid:
                typer.echo(path)
        for function in api.names("/call"):
            for path in api.names(function):
                if cid in path.rpartition("/")[2].split(",") or api.link(path) == cid:
                    typer.echo(path)


@contextmanager
def _api(to: str | None, timeout: float) -> "Iterator[MemoApi]":
    from polydomo.cli.common.exit_status import needs_broker
    from polydomo.cli.inspect.inspection import ask
    from polydomo.cli.inspect.memo_http import MemoApi

    url = options.address(to)
    code = ask(to, "login", timeout).get("code", "")  # with access control, HTTP knows us by it
    with needs_broker(url), MemoApi(url.partition(",")[0], code, timeout) as api:
        yield api


def _cids(api: "MemoApi", arguments: list[str]) -> list[str]:
    """Arguments as CIDs. A Node is stored first."""
    return [api.put(word.encode("utf-8", "surrogateescape")) if _is_json(word) else word for word in arguments]


def _is_json(word: str) -> bool:
    try:
        jsons.loads(word)
    except ValueError:
        return False
    return True


def _result(api: "MemoApi", found: str, only_cid: bool, raw: bool) -> None:
    if only_cid:
        typer.echo(found)
    else:
        _show(api, found, raw)


def _show(api: "MemoApi", cid: str, raw: bool, depth: int = 0) -> None:
    from polydomo.cli.inspect.memo_http import OCTETS

    if raw:
        sys.stdout.buffer.write(api.get(f"/cid/{cid}", OCTETS))
        sys.stdout.buffer.flush()
        return
    content = api.get(f"/cid/{cid}?depth={depth}")
    sys.stdout.buffer.write(content.rstrip() + b"\n")
    sys.stdout.buffer.flush()
