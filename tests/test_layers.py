"""The import rules of the layers: who may import whom, and what stays free of I/O, clocks and randomness."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "polydomo"

# A module may import only from its own layer and from those before it.
LAYERS = [
    "wire",
    "model",
    "protocols",
    "web",
    "broker",
    "stores",
    "server",
    "client",
    "worker",
    "journal",
    "pipeline",
    "spark",
    "cli",
]

OPEN = {"errors", "limits", "native", "visible"}  # to everybody
EDGES = {"keys", "scratch", "tls", "transports"}  # to every layer that does I/O
PURE = {"wire", "model", "protocols", "web", "broker"}

# Layers that may import less than their place in the order would allow.
NARROWER = {
    "broker": {"wire", "model", "protocols", "broker"},  # HTTP is an application of the broker
    "stores": {"wire", "model", "protocols", "broker", "stores"},
    "client": {"wire", "model", "protocols", "client"},  # a program that only calls services carries no broker
    "worker": {"wire", "model", "protocols", "client", "worker"},
    "pipeline": {"model", "journal", "pipeline"},
    "spark": {"model", "protocols", "client", "worker", "journal", "spark"},  # executors carry no broker
}

IMPURE_MODULES = set(
    "asyncio concurrent ctypes fcntl glob http importlib logging mmap multiprocessing os pathlib pynng pyspark queue "
    "random sched secrets select selectors shutil signal socket socketserver ssl subprocess tempfile threading time "
    "urllib uuid uvloop zmq".split()
)
PURE_NAMES = re.compile(r"http\.HTTPStatus|urllib\.parse(\.\w+)?")  # of modules that are impure otherwise
IMPURE_CALLS = {"open", "print", "input", "__import__"}


def allowed(layer: str) -> set[str]:
    edges = set() if layer in PURE else EDGES
    return OPEN | edges | NARROWER.get(layer, set(LAYERS[: LAYERS.index(layer) + 1]))


def imports(tree: ast.AST, package: list[str]) -> list[tuple[int, str]]:
    """Every import in the module as (line, dotted name); ``from a import b`` counts as ``a.b``. ``package`` resolves relative ones."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = [*base, *(node.module.split(".") if node.module else [])]
            found += [(node.lineno, ".".join([*start, alias.name])) for alias in node.names]
    return found


def violations(path: str, text: str) -> list[str]:
    """What the module at ``path`` (relative to the package, with slashes) does that its layer does not allow."""
    parts = path.removesuffix(".py").split("/")
    layer = parts[0]
    tree = ast.parse(text)
    found = []
    for line, name in imports(tree, ["polydomo", *parts[:-1]]):
        top, _, rest = name.partition(".")
        if top == "pyspark" and layer not in ("pipeline", "spark"):
            found.append(f"{path}:{line}: {layer} imports pyspark; only pipeline may")
        elif top in IMPURE_MODULES and layer in PURE and not PURE_NAMES.fullmatch(name):
            found.append(f"{path}:{line}: {layer} is pure and imports {top}")
        elif top == "polydomo" and layer in LAYERS:
            target = rest.split(".")[0]
            # the command line, the outermost layer, may use the public names of the package as any program would
            if target not in allowed(layer) and not target.startswith("__") and layer != "cli":
                found.append(f"{path}:{line}: {layer} imports {name}")
    if layer in PURE:
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
                found.append(f"{path}:{node.lineno}: {layer} is pure and calls {node.func.id}()")
    return found


def modules() -> list[str]:
    return sorted(str(path.relative_to(SOURCE).as_posix()) for path in SOURCE.rglob("*.py"))


def test_there_is_something_to_check() -> None:
    assert {"errors.py", "limits.py", "wire/link.py", "model/session.py"} <= set(modules())


@pytest.mark.parametrize("path", modules())
def test_module_keeps_to_its_layer(path: str) -> None:
    assert violations(path, (SOURCE / path).read_text(encoding="utf-8")) == []


def test_the_architecture_page_lists_what_each_layer_may_import() -> None:
    page = (SOURCE.parent.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.split("| layer | imports from |")[1].split("\n\n")[0]
    observed = {}
    for line in table.splitlines()[2:]:
        layer, others = (cell.strip() for cell in line.strip("|").split("|"))
        observed[layer.strip("`")] = (
            set(re.findall(r"`(\w+)`", others)) if others != "every layer" else set(LAYERS[:-1])
        )
    used: dict[str, set[str]] = {layer: set() for layer in LAYERS}
    for path in modules():
        parts = path.removesuffix(".py").split("/")
        if parts[0] in LAYERS:
            names = imports(ast.parse((SOURCE / path).read_text(encoding="utf-8")), ["polydomo", *parts[:-1]])
            used[parts[0]] |= {name.split(".")[1] for _, name in names if name.startswith("polydomo.")} & set(LAYERS)
    for layer in LAYERS:
        assert used[layer] - {layer} <= observed[layer] <= allowed(layer) - {layer}, layer


def test_every_directory_is_a_known_layer() -> None:
    directories = {path.split("/")[0] for path in modules() if "/" in path}
    assert directories <= {*LAYERS, "spark", "demo"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("wire/zmtp.py", "from polydomo.model.broker_api import BrokerApi"),
        ("wire/zmtp.py", "import polydomo.model.session"),
        ("wire/zmtp.py", "from ..protocols import session"),
        ("wire/zmtp.py", "from .. import broker"),
        ("wire/zmtp.py", "from polydomo import Client"),
        ("protocols/mdp.py", "from polydomo.broker.broker import Broker"),
        ("broker/broker.py", "from polydomo.server import settings"),
        ("broker/broker.py", "import time"),
        ("broker/broker.py", "import asyncio.events"),
        ("broker/broker.py", "from random import Random"),
        ("broker/broker.py", "from os import path"),
        ("broker/broker.py", "def f():\n    import socket"),
        ("broker/broker.py", "if TYPE_CHECKING:\n    import zmq"),
        ("wire/http/head.py", "from http import client"),
        ("wire/http/head.py", "import http"),
        ("wire/http/head.py", "import http.client"),
        ("wire/http/head.py", "from urllib import request"),
        ("wire/http/head.py", "import urllib.request"),
        ("wire/http/head.py", "import urllib"),
        ("broker/broker.py", "print('x')"),
        ("protocols/dbp/session.py", "f = open('x')"),
        ("broker/core.py", "from polydomo.keys import read_pair"),
        ("server/run.py", "from polydomo.client import AsyncClient"),
        ("server/run.py", "from polydomo.cli.main import app"),
        ("server/run.py", "from polydomo.testing import Broker"),
        ("client/aio.py", "from polydomo.server.settings.settings import Settings"),
        ("client/aio.py", "from polydomo.broker.broker import Broker"),
        ("client/aio.py", "from polydomo.worker.aio import AsyncWorker"),
        ("worker/aio.py", "from polydomo.server.logs import setup"),
        ("journal/files/writer.py", "from polydomo.pipeline import tables"),
        ("pipeline/tables.py", "from polydomo.wire import frames"),
        ("pipeline/tables.py", "from polydomo.server.settings.settings import Settings"),
        ("journal/reading/reader.py", "import pyspark"),
        ("cli/main.py", "from pyspark.sql import SparkSession"),
        ("testing.py", "import pyspark"),
    ],
)
def test_the_checker_catches(path: str, text: str) -> None:
    assert len(violations(path, text)) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "wire/zmtp.py",
            "import struct\nfrom polydomo.errors import ProtocolViolation\nfrom polydomo import limits",
        ),
        ("wire/zmtp.py", "from . import frames\nfrom .link import Link\nfrom ..limits import MAX_FRAME"),
        ("wire/zmtp.py", "from polydomo import __version__"),
        (
            "broker/broker.py",
            "from polydomo.model.broker_api import BrokerApi\nfrom polydomo.wire.frames import Body",
        ),
        ("server/run.py", "import asyncio, time, logging\nfrom polydomo.broker.broker import Broker"),
        ("worker/aio.py", "from polydomo.client.connection import Connection"),
        ("pipeline/tables.py", "import pyspark\nfrom polydomo.journal.schema import COLUMNS"),
        ("cli/main.py", "from polydomo import Client\nfrom polydomo.server.settings.settings import Settings"),
        ("testing.py", "from polydomo.server.run import Server\nfrom polydomo.client import Client"),
        ("__init__.py", "from polydomo.client import Client"),
        (
            "wire/http/head.py",
            "from http import HTTPStatus\nfrom urllib.parse import quote\nimport urllib.parse\nfrom urllib import parse",
        ),
        # a name that only looks like one of ours, or like an impure module
        ("wire/zmtp.py", "import polydomo_extras\nimport timeit_like"),
    ],
)
def test_the_checker_lets_pass(path: str, text: str) -> None:
    assert violations(path, text) == []
