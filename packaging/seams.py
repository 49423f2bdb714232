"""Seams for the compiled core: functions that mutants and tests replace.

Compiled code calls its functions directly, so replacing an attribute of a module or class has no effect on it. For tests, the core is
therefore compiled from a copy in which each function that some test replaces first looks in a table (``polydomo/seams.py``, which only the
copy has). ``sim/replacing.py`` fills that table, or patches the attribute where the core is interpreted. Released builds have no seams.

What is replaced is found in the calls ``swap(stack, OWNER, "NAME", ...)`` and ``set_limit(stack, "NAME", ...)`` of the simulator and the
tests, so nothing has to be listed by hand.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent

PACKAGE = "polydomo"
TABLE = '''"""Functions of the core that a test has replaced, by name. Made by packaging/seams.py; released builds do not have it."""

from typing import Any

REPLACED: dict[str, Any] = {}
'''
SUFFIX = "__original"


class SeamError(Exception):
    """A function cannot be given a seam."""


def _calls(tree: ast.AST, function: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == function:
            yield node


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _imports(tree: ast.AST) -> dict[str, str]:
    """The full name of everything that a file imports from the package, by its name in the file."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == PACKAGE:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def wanted(files: list[Path]) -> tuple[set[str], set[str]]:
    """The full names of functions, and the names of limits, that these files replace."""
    functions, limits = set(), set()
    for path in files:
        text = path.read_text(encoding="utf-8")
        if "swap(" not in text and "set_limit(" not in text:
            continue
        tree = ast.parse(text)
        imports = _imports(tree)
        for call in _calls(tree, "swap"):
            if len(call.args) > 2 and isinstance(call.args[1], ast.Name) and call.args[1].id in imports:
                functions.add(f"{imports[call.args[1].id]}.{_text(call.args[2])}")
        for call in _calls(tree, "set_limit"):
            if len(call.args) > 1 and _text(call.args[1]):
                limits.add(_text(call.args[1]))
    return functions, limits


def _stub(function: ast.FunctionDef, key: str, owner: str) -> str:
    """A function with the same signature that calls the replacement, or the original."""
    arguments = function.args
    if function.decorator_list or arguments.vararg or arguments.kwarg:
        raise SeamError(f"{key} is decorated or takes any number of arguments, and can have no seam")
    passed = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]]
    passed += [f"{argument.arg}={argument.arg}" for argument in arguments.kwonlyargs]
    original = f"{owner}.{function.name}" if owner else function.name  # in a class: not what a subclass has
    kind = ast.unparse(function.returns) if function.returns else "None"
    result = "ignored: object" if kind == "None" else f"result: {kind}"
    return f"""
def {function.name}({ast.unparse(arguments)}) -> {kind}:
    if REPLACED:
        replacement = REPLACED.get({key!r})
        if replacement is not None:
            {result} = replacement({", ".join(passed)})
            return{"" if kind == "None" else " result"}
    return {original}{SUFFIX}({", ".join(passed)})
"""


def _find(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    owner, _, function = name.rpartition(".")
    for node in tree.body:
        body = node.body if isinstance(node, ast.ClassDef) and node.name == owner else [] if owner else [node]
        for inner in body:
            if isinstance(inner, ast.FunctionDef) and inner.name == function:
                return inner
    return None


def _add(path: Path, names: list[tuple[str, str]]) -> None:
    """Adds the seams to one file: pairs of the name inside the module and the full name."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = text.splitlines()
    first = next(node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom))
    lines[first.lineno - 1] = f"from {PACKAGE}.seams import REPLACED; {lines[first.lineno - 1]}"
    for name, key in names:
        function = _find(tree, name)
        if function is None:
            raise SeamError(f"{key} is replaced by a test, and is not a function that is defined there")
        line = lines[function.lineno - 1]
        stub = indent(_stub(function, key, name.rpartition(".")[0]), " " * function.col_offset)
        lines[function.lineno - 1] = stub + line.replace(f"def {function.name}", f"def {function.name}{SUFFIX}", 1)
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")


def _unfix(path: Path, names: set[str]) -> None:
    """Makes constants of a module variables, which compiled code reads when it needs them."""
    text = path.read_text(encoding="utf-8")
    for name in names:
        text, count = re.subn(rf"^{name}: Final = (?=[\d(])", f"{name}: float = ", text, flags=re.MULTILINE)
        if count != 1:
            raise SeamError(f"{name} is not a plain number of limits.py")
    path.write_text(text, encoding="utf-8")


def copy_with_seams(root: Path, target: Path, compiled: list[str]) -> None:
    """Copies what the compiler needs from ``root`` to ``target``, with seams in the modules that are compiled."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root / "src", target / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    shutil.copy(root / "pyproject.toml", target)
    files = sorted(path for folder in ("sim", "tests") for path in (root / folder).rglob("*.py"))
    functions, limits = wanted(files)
    by_module: dict[str, list[tuple[str, str]]] = {}
    modules = {name.removeprefix("src/").removesuffix(".py").replace("/", "."): name for name in compiled}
    for key in sorted(functions):
        module = max((name for name in modules if key.startswith(f"{name}.")), key=len, default="")
        if module:  # otherwise it is interpreted, and is patched
            by_module.setdefault(module, []).append((key.removeprefix(f"{module}."), key))
    for module, names in by_module.items():
        _add(target / modules[module], names)
    _unfix(target / "src" / PACKAGE / "limits.py", limits)
    (target / "src" / PACKAGE / "seams.py").write_text(TABLE, encoding="utf-8")
