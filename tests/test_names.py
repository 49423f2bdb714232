"""Rules about names and comments that a formatter does not check."""

import ast
import re
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "polydomo"

# Names of more than one class, and why each is right in both places.
ALLOWED = {
    "Broker": "the core, and the broker that `polydomo.testing` starts for users' tests",
    "Worker": "a worker as the broker knows it, and the public class that programs use",
    "Column": "of the journal, and of a table of the pipeline (public)",
}


def class_names(directory: Path) -> dict[str, set[str]]:
    """The modules that define a class of each name."""
    modules: dict[str, set[str]] = defaultdict(set)
    for path in directory.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                modules[node.name].add(str(path.relative_to(directory)))
    return modules


def test_no_two_modules_define_a_class_of_the_same_name() -> None:
    """If this fails: name the new class by what it is (``ReconnectDelay``, not ``Backoff``)."""
    shared = {name: sorted(modules) for name, modules in class_names(SOURCE).items() if len(modules) > 1}
    assert {name: modules for name, modules in shared.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) <= set(shared), "no longer needed"


# ruff breaks a line that is too long because of its comment: the code gets brackets of its own, and the comment hangs behind them.
HANGING = re.compile(r"^( *)[^\n#]*[(\[]\n\1    [^\n]*\n\1[)\]][^\n#]*  # (?!fmt|type|noqa)", re.MULTILINE)


def test_no_comment_hangs_behind_a_bracket() -> None:
    """If this fails: write the comment on the line above."""
    hanging = [
        f"{path.relative_to(SOURCE)}:{text.count(chr(10), 0, match.start()) + 1}"
        for path in SOURCE.rglob("*.py")
        for text in [path.read_text(encoding="utf-8")]
        for match in HANGING.finditer(text)
    ]
    assert hanging == []
