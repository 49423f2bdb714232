"""Flows from the shell: ``flow start``, ``ls``, ``show``, ``watch``, ``result``, ``cancel``, ``retry``, ``rm`` and ``graph``."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.calls.call import write_raw, write_text
from polydomo.cli.common import options
from polydomo.cli.common.exchange import Timeout, with_client
from polydomo.cli.common.options import Json, To
from polydomo.cli.common.render import PrintedColumn, clock, show, show_json
from polydomo.cli.flows.reading import read_file
from polydomo.errors import CallFailed, SettingError

if TYPE_CHECKING:
    from polydomo.client.aio import AsyncClient

Row = dict[str, Any]

Id = Annotated[str, typer.Argument(metavar="ID", help="The id that `polydomo flow start` printed.")]
FlowFile = Annotated[str, typer.Argument(metavar="FILE", help="A flow in TOML or JSON; - reads standard input.")]

flow_commands = typer.Typer(no_args_is_help=True, help="Run graphs of durable jobs: start, follow, retry.")


def add_to(app: typer.Typer) -> None:
    app.add_typer(flow_commands, name="flow")


@flow_commands.command("start")
def start(
    file: FlowFile,
    to: To = None,
    idempotency_key: Annotated[
        str | None,
        typer.Option("--idempotency-key", metavar="TEXT", help="Starting the same key again returns the same run."),
    ] = None,
    follow: Annotated[bool, typer.Option("--watch", help="Follow the flow until it ends.")] = False,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """Start a flow and print its id once the broker has stored it.

    **Examples**

    - `polydomo flow start nightly.toml --idempotency-key 2026-11-16`
    - `polydomo flow start - --watch <nightly.json`
    """
    flow = read_file(file)

    async def ask(client: "AsyncClient") -> str:
        return (await client.start(flow, idempotency_key)).id

    id = with_client(to, timeout, ask)
    if json:
        show_json({"flow": id})
    else:
        typer.echo(id)
    if follow:
        watch(id, to, False, timeout)


@flow_commands.command("ls")
def ls(
    to: To = None,
    state: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="running, cancelling, retrying, done, failed or cancelled."),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Show at most N flows.")] = 100,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """List flows, the newest first."""
    found: list[Row] = with_client(to, timeout, lambda client: client.flows(state or "", limit))
    if json:
        show_json(found)
    else:
        show(FLOWS, [cells(row) for row in found])


FLOWS = [
    PrintedColumn("flow"),
    PrintedColumn("name"),
    PrintedColumn("state"),
    PrintedColumn("done", right=True),
    PrintedColumn("failed", right=True),
    PrintedColumn("created"),
    PrintedColumn("ended", spare=1),
    PrintedColumn("key", spare=2),
    PrintedColumn("reason", folds=True),
]


def cells(row: Row) -> list[str]:
    failed = row["dead"] + row["skipped"] + row["cancelled"]
    return [
        row["flow"],
        row["name"],
        row["state"],
        f"{row['done']}/{row['total']}",
        str(failed) if failed else "",
        clock(row["created"]),
        clock(row["ended"]),
        row["key"],
        row["reason"],
    ]


async def whole(client: "AsyncClient", id: str) -> Row:
    """A flow with all its nodes and edges."""
    return await client.flow(id).graph()


@flow_commands.command("show")
def show_flow(
    id: Id,
    to: To = None,
    all: Annotated[bool, typer.Option("--all", help="Show each node, also of long fan-outs.")] = False,
    json: Json = False,
    timeout: Timeout = 30.0,
) -> None:
    """Show a flow as a tree: each node below one that it needs, with its state, attempts and times."""
    from polydomo.cli.flows.tree import NODES, tree

    found: Row = with_client(to, timeout, lambda client: whole(client, id))
    if json:
        show_json(found)
        return
    show(FLOWS, [cells(found)])
    typer.echo("")
    show(NODES, tree(found, all))


@flow_commands.command("watch")
def watch(id: Id, to: To = None, json: Json = False, timeout: Timeout = 30.0) -> None:
    """Follow a flow until it ends: a bar for each stage, or one line for each node if the output is not a terminal.

    A stage is the number of nodes on the longest way to a node. A line with "running" has the progress that a worker reported. Exits with
    status 1 if the flow fails or is cancelled.
    """
    from polydomo.cli.flows.bars import StageBars

    async def ask(client: "AsyncClient") -> Row:
        run = client.flow(id)
        bars = StageBars(await run.graph(), sys.stdout) if sys.stdout.isatty() and not json else None
        async for step in run.watch():
            if bars is not None:
                if step.state != "running":
                    bars.count(step)
            elif json:
                row = {"node": step.node, "state": step.state, "done": step.done, "total": step.total, "job": step.job}
                if step.share is not None:
                    row |= {"share": step.share, "text": step.text}
                show_json(row)
            else:
                told = f": {step.share:.0%} {step.text}".rstrip() if step.share is not None else ""
                typer.echo(f"{step.done}/{step.total} {step.state} {step.node}{told}")
        return await run.info()

    ended: Row = with_client(to, timeout, ask)
    if ended["state"] != "done":
        failed = ended["dead"] + ended["skipped"] + ended["cancelled"]
        raise CallFailed(ended["state"], ended["reason"] or f"{failed} of {ended['total']} nodes are not done")


@flow_commands.command("result")
def result(
    id: Id,
    node: Annotated[
        str | None, typer.Argument(metavar="NODE", help="The name of a node.  [default: the last one]")
    ] = None,
    to: To = None,
    wait: Annotated[float, options.time_option("Wait this long for the result.", least=0.0)] = 0.0,
    raw: Annotated[bool, typer.Option("--raw", help="Write the bytes of the result unchanged.")] = False,
    timeout: Timeout = 30.0,
) -> None:
    """Print the result of a node.

    Exits with status 1 if the node is dead, skipped or cancelled, 3 if it has no result yet, 4 if there is no such flow or node.
    """

    async def ask(client: "AsyncClient") -> Any:
        run = client.flow(id)
        return await run.result(node if node is not None else await run.last(), wait)

    found = with_client(to, timeout, ask)
    (write_raw if raw else write_text)(found)


@flow_commands.command("cancel")
def cancel(id: Id, to: To = None, json: Json = False, timeout: Timeout = 30.0) -> None:
    """Start no more nodes of a flow, and cancel those that are open."""
    row: Row = with_client(to, timeout, lambda client: client.flow(id).cancel())
    show_json(row) if json else typer.echo(f"{row['state']} {row['flow']}")


@flow_commands.command("retry")
def retry(id: Id, to: To = None, json: Json = False, timeout: Timeout = 30.0) -> None:
    """Run what is dead, skipped or cancelled in a flow again, and keep what is done."""
    row: Row = with_client(to, timeout, lambda client: client.flow(id).retry())
    show_json(row) if json else typer.echo(f"{row['state']} {row['flow']}")


@flow_commands.command("rm")
def rm(id: Id, to: To = None, timeout: Timeout = 30.0) -> None:
    """Remove a flow that has ended, and its results."""
    with_client(to, timeout, lambda client: client.flow(id).remove())
    typer.echo(f"removed {id}")


@flow_commands.command("graph")
def graph(
    id: Id,
    to: To = None,
    form: Annotated[str, typer.Option("--format", metavar="FORM", help="mermaid, dot or svg.")] = "mermaid",
    timeout: Timeout = 30.0,
) -> None:
    """Print a flow as a graph: Mermaid, Graphviz's DOT, or SVG.

    **Examples**

    - `polydomo flow graph 01KDVDNA000000000000000000`
    - `polydomo flow graph 01KDVDNA000000000000000000 --format svg >nightly.svg`
    """
    from polydomo.cli.flows.graph import FORMS

    if form not in FORMS:
        raise SettingError(f"--format: {form!r} must be {', '.join(FORMS)}")
    found: Row = with_client(to, timeout, lambda client: whole(client, id))
    typer.echo(FORMS[form](found), nl=False)
