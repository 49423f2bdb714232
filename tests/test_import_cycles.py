"""The import graph of the package has no cycle. Imports under ``TYPE_CHECKING`` and inside functions count: a module that names another one
anywhere cannot be understood, or moved, without it."""

import ast
from pathlib import Path

from tests.test_layers import SOURCE, imports

Graph = dict[str, set[str]]


def graph(root: Path) -> Graph:
    """module -> the modules of the package that it imports"""
    paths = {}
    for path in root.rglob("*.py"):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: Graph = {}
    for module, path in paths.items():
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        found[module] = set()
        for _, name in imports(ast.parse(path.read_text(encoding="utf-8")), package):
            while name and name not in paths:  # ``from module import name``
                name = name.rpartition(".")[0]
            if name and name != module:
                found[module].add(name)
    return found


def cycles(edges: Graph) -> list[list[str]]:
    """Groups of modules that all reach each other (Tarjan's strongly connected components)."""
    found: list[list[str]] = []
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in sorted(edges[module]):
            if other not in number:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], number[other])
        if lowest[module] == number[module]:
            place = stack.index(module)
            group = stack[place:]
            del stack[place:]
            if len(group) > 1:
                found.append(sorted(group))

    for module in sorted(edges):
        if module not in number:
            visit(module)
    return found


def test_the_package_has_no_import_cycle() -> None:
    assert cycles(graph(SOURCE)) == []


def test_the_check_finds_cycles(tmp_path: Path) -> None:
    root = tmp_path / "sample"
    (root / "sub").mkdir(parents=True)
    (root / "__init__.py").write_text("")
    (root / "sub" / "__init__.py").write_text("from sample.sub.a import A")
    (root / "sub" / "a.py").write_text("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sample import b")
    (root / "b.py").write_text("def f():\n    from .sub import c")
    (root / "sub" / "c.py").write_text("import sample.sub.a")
    (root / "alone.py").write_text("import sample.b")
    assert cycles(graph(root)) == [["sample.b", "sample.sub.a", "sample.sub.c"]]
