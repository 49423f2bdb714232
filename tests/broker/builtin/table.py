"""``python -m tests.broker.builtin.table``: writes the table of built-in services in docs/monitoring.md from their registry."""

from collections.abc import Iterator
from pathlib import Path

from polydomo.broker.broker import Broker
from polydomo.broker.builtin.service import ITSELF, PROCESSES, BuiltinService
from tests.entropy import Counting

PAGE = Path(__file__).parents[3] / "docs" / "monitoring.md"
HEAD = "| service | right | over HTTP | answer |\n|---|---|---|---|\n"
RIGHTS = {ITSELF: "by the body", PROCESSES: "none: only other processes of this broker"}


def rows() -> Iterator[str]:
    for service in Broker(0.0, Counting()).builtin.by_name.values():
        yield row(service)
        if service.variant is not None:
            yield row(service.variant)


def row(service: BuiltinService) -> str:
    right = RIGHTS.get(service.right, f"`{service.right}`")
    path = f"`GET {service.path}`" if service.path else ""
    return f"| `{service.name.decode()}` | {right} | {path} | {service.says} |\n"


def parts(page: str) -> tuple[str, str, str]:
    """What precedes the table in the page, the table, and what follows it."""
    before, head, rest = page.partition(HEAD)
    assert head, f"{PAGE}: the head of the table is missing"
    table = "".join(line for line in rest.splitlines(keepends=True)[: rest.split("\n\n")[0].count("\n") + 1])
    return before, table, rest[len(table) :]


if __name__ == "__main__":
    before, _, after = parts(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(before + HEAD + "".join(rows()) + after, encoding="utf-8")
