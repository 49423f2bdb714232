"""The names of all commands, and the modules that define them.

A command's module is imported when the command is looked up: ``polydomo call`` does not import the other commands. Only the help, the
man page and the completion of shells need all of them.
"""

from functools import cache
from importlib import import_module
from typing import Any, Final

import typer

MARKUP: Final = "markdown"  # of the commands' docstrings

# The headings of the help in order, and under each its commands and their modules.
PANELS = {
    "Broker": {
        "up": "broker.up",
        "dev": "dev.dev",
        "config": "broker.config",
        "discover": "calls.discover",
        "doctor": "broker.doctor",
        "backup": "broker.backup",
        "restore": "broker.backup",
    },
    "Call and serve": {
        "call": "calls.call",
        "work": "calls.work",
        "catalog": "calls.catalog",
        "register": "calls.catalog",
        "update": "calls.catalog",
    },
    "Topics": {"publish": "calls.publish", "subscribe": "calls.publish"},
    "Durable jobs": {
        "submit": "jobs.submit",
        "result": "jobs.jobs",
        "cancel": "jobs.jobs",
        "jobs": "jobs.jobs",
        "job": "jobs.jobs",
        "dead": "jobs.dead",
        "schedule": "jobs.schedule",
        "flow": "flows.flow",
    },
    "Control": {
        "pause": "inspect.control",
        "resume": "inspect.control",
        "drain": "inspect.control",
        "limit": "inspect.limit",
    },
    "Inspect": {
        "services": "inspect.inspection",
        "workers": "inspect.inspection",
        "requests": "inspect.inspection",
        "clients": "inspect.inspection",
        "status": "inspect.inspection",
        "watch": "inspect.watch",
        "open": "inspect.browse",
        "logs": "inspect.logs",
        "memo": "inspect.memo",
    },
    "Journal and messages": {
        "trace": "journal.search",
        "tap": "inspect.tap",
        "spans": "journal.spans",
        "replay": "journal.replay",
        "journal": "journal.journal",
    },
    "Tables and reports (Spark)": {
        "pipeline": "pipeline.pipeline",
        "query": "pipeline.query",
        "report": "pipeline.report",
        "spark": "pipeline.spark",
    },
    "Benchmark": {"bench": "bench.bench"},
    "Help and shell integration": {"help": "help", "completion": "completion", "man": "completion"},
    "Access control": {"keys": "broker.keys", "access": "broker.access", "context": "calls.context"},
}
MODULES = {command: module for commands in PANELS.values() for command, module in commands.items()}
PARTS = {
    "pipeline.pipeline": ("pipeline.stream", "pipeline.maintain"),
    "inspect.memo": ("inspect.memo_nodes",),
}  # modules that add subcommands to the group of another module


def names() -> list[str]:
    """All commands, in the order of the help."""
    return list(MODULES)


@cache
def find(name: str) -> Any:
    """Imports a command; None if there is no command of that name."""
    return commands_of(MODULES[name])[name] if name in MODULES else None


@cache
def commands_of(module: str) -> dict[str, Any]:
    """Imports a module, and builds the commands that it defines."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=MARKUP)
    app.callback()(_group)  # otherwise typer makes no group of a single command
    for part in (module, *PARTS.get(module, ())):
        import_module(f"polydomo.cli.{part}").add_to(app)
    built: Any = typer.main.get_command(app)
    for name, command in built.commands.items():
        command.rich_help_panel = _panel_of(name)
    return dict(built.commands)


def _group() -> None:
    pass


def _panel_of(name: str) -> str:
    return next(title for title, commands in PANELS.items() if name in commands)
