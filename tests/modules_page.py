"""``python -m tests.modules_page``: writes docs/modules.md, the list of all packages, from the first sentences of their docstrings."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "polydomo"
PAGE = ROOT / "docs" / "modules.md"

HEAD = """# Modules

Use this page to find the module for a task. It lists the packages of `src/polydomo`, by layer, with their modules;
[architecture.md](architecture.md) explains how the layers work together. `python -m tests.modules_page` writes it from the docstrings.

| package | purpose | modules |
|---|---|---|
"""


def packages() -> dict[Path, list[str]]:
    """The names of the modules of each package; packages relative to ``SOURCE``, in the order of the layers."""
    from tests.test_layers import LAYERS

    modules: dict[Path, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        names = modules.setdefault(path.parent.relative_to(SOURCE), [])
        if path.name not in ("__init__.py", "__main__.py"):
            names.append(path.stem)
    order = ["", *LAYERS]
    return dict(sorted(modules.items(), key=lambda item: (order.index(str(item[0]).split("/")[0].strip(".")), item[0])))


def purpose(package: Path) -> str:
    """The first sentence of its docstring, as Markdown."""
    text = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text(encoding="utf-8"))) or ""
    first = re.split(r"(?<=[^.]\.)\s", " ".join(text.split("\n\n")[0].split()), maxsplit=1)[0]
    return first.replace("``", "`").replace("|", r"\|").removesuffix(".")


def page() -> str:
    rows = [
        f"| `{'polydomo' if package == Path() else package}` | {purpose(package)} | {', '.join(names)} |\n"
        for package, names in packages().items()
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
