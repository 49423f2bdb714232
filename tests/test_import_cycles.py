"""The import graph of the package has no cycle. Imports under ``TYPE_CHECKING`` and inside functions count: a module that names another one
anywhere cannot be understood, or moved, without it."""

import ast
import subprocess
import sys
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


def test_the_rules_of_requests_are_loaded_without_the_parts_above_them() -> None:
    code = """
import sys
import polydomo.broker.requests.dispatch, polydomo.broker.requests.outcomes, polydomo.broker.workers.registration
print(*sorted(name for name in sys.modules if name.startswith("polydomo.broker.")))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    loaded = set(result.stdout.split())
    assert "polydomo.broker.state" in loaded
    parts = (
        "broker",
        "jobs.durable",
        "jobs.titanic",
        "topics.publishing",
        "cluster.bridging",
        "observe.monitor",
        "sharing.keyed",
    )
    assert not loaded & {f"polydomo.broker.{part}" for part in parts}


def test_no_rule_names_the_facade() -> None:
    """``Broker`` puts the parts together; a rule or a part takes ``State`` and small interfaces."""
    edges = graph(SOURCE)
    users = {
        module
        for module in edges
        if module.startswith("polydomo.broker.") and "polydomo.broker.broker" in edges[module]
    }
    assert users == set()
    rules = {
        module for module in edges if module.startswith("polydomo.broker.") and "polydomo.broker.state" in edges[module]
    }
    assert not edges["polydomo.broker.state"] & rules, "the state imports a rule"
