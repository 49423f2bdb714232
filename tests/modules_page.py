"""``python -m tests.modules_page``: writes docs/modules.md, the list of all modules, from the first sentences of their docstrings."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "polydomo"
PAGE = ROOT / "docs" / "modules.md"

HEAD = """# Modules

Use this page to find the module for a task. It lists every module of `src/polydomo`, by layer, with its purpose;
[architecture.md](architecture.md) explains how the layers work together. `python -m tests.modules_page` writes it from the docstrings.
"""


def modules() -> list[Path]:
    """All modules, relative to the package."""
    return [path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py")) if path.name != "__init__.py"]


def purpose(module: Path) -> str:
    """The first sentence of its docstring, as Markdown."""
    text = ast.get_docstring(ast.parse((SOURCE / module).read_text(encoding="utf-8"))) or ""
    first = re.split(r"(?<=[^.]\.)\s", " ".join(text.split("\n\n")[0].split()), maxsplit=1)[0]
    return first.replace("``", "`").replace("|", r"\|").removesuffix(".")


def page() -> str:
    layers: dict[str, list[Path]] = {}
    for module in modules():
        layers.setdefault("polydomo" if module.parent == Path() else module.parts[0], []).append(module)
    from tests.test_layers import LAYERS

    parts = [HEAD]
    for layer in [*LAYERS, "polydomo"]:
        rows = [f"| `{module}` | {purpose(module)} |\n" for module in layers.pop(layer)]
        parts.append(f"\n## {layer}\n\n| module | purpose |\n|---|---|\n" + "".join(rows))
    assert not layers, f"not a layer: {sorted(layers)}"
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
