"""Values that are passed on without typer's validation, and what a short command does not import."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from polydomo.cli import loading
from polydomo.cli.common.values import Plain
from tests.cli.shell import COMMAND

GIVEN: tuple[Any, ...] = (None, "", "x", "5", "2s", "500ms", True, False, 0, 5, 0.5, (), ("a",), ("a", "b"), ("5", ""))


def commands() -> Iterator[tuple[str, Any]]:
    for name in loading.names():
        command = loading.find(name)
        for each in (command, *getattr(command, "commands", {}).values()):
            yield each.name, each


def outcome(process: Any, ctx: Any, value: Any) -> Any:
    try:
        return process(ctx, value)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        return type(error), str(error)


@pytest.mark.skipif(not hasattr(typer.core, "_TyperParameter"), reason="this typer does not use pydantic")
def test_plain_values_become_what_typer_makes_of_them() -> None:
    plain = 0
    for name, command in commands():
        ctx = command.context_class(command, info_name=name)
        for param in command.params:
            original = type(param).process_value.__get__(param)
            passed = Plain(param)
            for value in (*GIVEN, param.default):
                if passed.is_plain(value):
                    plain += 1
                    expected, actual = outcome(original, ctx, value), outcome(passed, ctx, value)
                    if passed.several:  # typer makes lists of both
                        expected, actual = list(expected), list(actual)
                    assert actual == expected and type(actual) is type(expected), (name, param.name, value)
    assert plain > 500


@pytest.mark.parametrize("command", ["services", "call echo x --timeout 1s"])
def test_a_short_command_imports_neither_validators_nor_tables(command: str) -> None:
    code = (
        "import sys; from polydomo.cli.main import app\n"
        "try: app(prog_name='polydomo')\n"
        "except SystemExit as end: assert end.code == 5, end.code\n"
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'pydantic', 'rich', 'pyarrow', 'numpy', 'pandas', 'websockets'}))"
    )
    words = [*command.split(), "--to", "tcp://127.0.0.1:1"]
    result = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, timeout=COMMAND
    )
    assert result.stdout == "[]\n"
