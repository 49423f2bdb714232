"""``polydomo completion`` and ``polydomo man``: a shell completion script and a man page, generated from the commands."""

import asyncio
import re
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polydomo.cli.common.render import natural

if TYPE_CHECKING:
    from collections.abc import Iterator

TYPER = "typer.completion"  # does not name what it exports
VARIABLE = "_POLYDOMO_COMPLETE"  # set by the completion scripts
SHELLS = ("bash", "zsh", "fish", "powershell")
ASK_TIME = 0.5  # seconds to wait for the broker's list of services; short, because the user is waiting at the prompt


def add_to(app: typer.Typer) -> None:
    app.command()(completion)
    app.command(name="man")(manual)


def enable() -> None:
    """Registers the shells that may ask for completions. Called only if one asks."""
    import_module(TYPER).completion_init()


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help=f"{', '.join(SHELLS[:-1])} or {SHELLS[-1]}.")],
) -> None:
    """Print a shell completion script for commands, options and service names.

    **Examples**

    - `source <(polydomo completion bash)`: for this shell; add the line to `~/.bashrc` for all shells
    - `polydomo completion zsh > ~/.zfunc/_polydomo`: needs `fpath+=~/.zfunc` before `compinit` in `~/.zshrc`
    - `polydomo completion fish > ~/.config/fish/completions/polydomo.fish`
    """
    from polydomo.errors import SettingError

    if shell not in SHELLS:
        raise SettingError(f"SHELL: must be one of {', '.join(SHELLS)}, not {shell!r}")
    script = import_module(TYPER).get_completion_script(prog_name="polydomo", complete_var=VARIABLE, shell=shell)
    typer.echo(script)


def service_names(ctx: Any, incomplete: str) -> list[str]:
    """Completes a service name from the services that have workers. Without a broker there are no completions."""
    from polydomo.cli.common import options
    from polydomo.cli.inspect.inspection import fetch

    try:
        url = options.address(ctx.params.get("to"))
        rows = asyncio.run(asyncio.wait_for(fetch(url, "services", ASK_TIME), ASK_TIME))
        return sorted(
            (row["name"] for row in rows if row["workers"] and row["name"].startswith(incomplete)), key=natural
        )
    except Exception:  # an error must not appear in the middle of a command line
        return []


def manual(ctx: typer.Context) -> None:
    """Print the man page in man(7) format.

    **Examples**

    - `polydomo man | man -l -`
    - `polydomo man > /usr/local/share/man/man1/polydomo.1`
    """
    typer.echo("\n".join(page(ctx.find_root().command)))


def page(group: Any) -> "Iterator[str]":
    from polydomo import __version__

    yield f'.TH POLYDOMO 1 "" "polydomo {__version__}" "User Commands"'
    yield ".SH NAME"
    yield r"polydomo \- one broker for the whole Majordomo family of messaging protocols"
    yield ".SH SYNOPSIS"
    yield ".B polydomo"
    yield r"\fICOMMAND\fR [\fIOPTION\fR]..."
    yield ".SH COMMANDS"
    for name, command in sorted(_commands(group, "polydomo")):
        yield f'.SS "{_roff(_usage(name, command))}"'
        yield from _text(command.help or "")
        for param in command.params:
            if param.param_type_name == "option" and not param.hidden and param.help:
                yield ".TP"
                yield rf"\fB{_roff(', '.join(param.opts))}\fR {_roff(_value(param))}".rstrip()
                yield _roff(_plain(param.help))
    yield ".SH EXIT STATUS"
    for status, meaning in STATUSES:
        yield ".TP"
        yield rf"\fB{status}\fR"
        yield meaning
    yield ".SH ENVIRONMENT"
    yield ".TP"
    yield r"\fBPOLYDOMO_TO\fR"
    yield "Address of the broker, for commands that have \\-\\-to."
    yield ".TP"
    yield r"\fBPOLYDOMO_\fISETTING\fR"
    yield r"A setting of the broker, such as POLYDOMO_LIMITS_MAX_MESSAGE; \fBpolydomo config\fR lists them all."


STATUSES = (
    ("0", "It worked."),
    ("1", "The call failed, or another error occurred."),
    ("2", "A flag, a setting or an address is invalid, or the broker cannot start."),
    ("3", "No reply arrived in time."),
    ("4", "No worker offers the service."),
    ("5", "No broker answers, or the connection broke."),
    ("130", "Ctrl\\-C."),
)


def _commands(group: Any, path: str) -> "Iterator[tuple[str, Any]]":
    for name in group.list_commands(None):
        command = group.commands[name]
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        elif not command.hidden:
            yield f"{path} {name}", command


def _usage(name: str, command: Any) -> str:
    arguments = [
        param.metavar or str(param.name).upper() for param in command.params if param.param_type_name == "argument"
    ]
    return " ".join([name, *arguments])


def _value(param: Any) -> str:
    if getattr(param, "is_flag", False):
        return ""
    return str(param.metavar or "VALUE")


def _text(help_text: str) -> "Iterator[str]":
    """The paragraphs and examples of a command's help."""
    for paragraph in re.split(r"\n\s*\n", help_text.strip()):
        yield ".PP"
        for line in paragraph.splitlines():
            stripped = line.strip()
            if stripped.startswith("- "):
                yield ".br"
                stripped = stripped[2:]
            yield _roff(_plain(stripped))


def _plain(text: str) -> str:
    """Removes Markdown markup."""
    return re.sub(r"\*\*(.+?)\*\*", r"\1", text).replace("`", "")


def _roff(text: str) -> str:
    """
    >>> _roff(".hidden --to 'x'")
    "\\\\&.hidden \\\\-\\\\-to 'x'"
    """
    made = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{made}" if made.startswith((".", "'")) else made
