"""Arrow record batches in partial replies as one table, for people: `polydomo call spark.sql "SELECT ..."`."""

import json
from typing import TYPE_CHECKING, Any

import typer

from polydomo.cli.common.render import PrintedColumn, clean, on_terminal, show

if TYPE_CHECKING:
    from polydomo.client.message import Result

MARK = b"\xff\xff\xff\xff"  # what an Arrow IPC stream begins with; no UTF-8 text does


class ArrowTable:
    """Prints batches as they come. In a pipe, the columns are as wide as those of the first batch, and have one heading."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._widths: list[int] = []

    def write(self, frame: bytes) -> bool:
        """False if the frame is not an Arrow IPC stream, or pyarrow is not installed."""
        if not frame.startswith(MARK):
            return False
        try:
            import pyarrow as pa

            from polydomo.pipeline.query.cells import cell, plain
        except ImportError:
            return False
        try:
            table = pa.ipc.open_stream(frame).read_all()
        except (pa.ArrowException, OSError, ValueError):
            return False
        numeric = [pa.types.is_integer(field.type) or pa.types.is_floating(field.type) for field in table.schema]
        columns = [PrintedColumn(field.name, right) for field, right in zip(table.schema, numeric, strict=True)]
        rows = [[cell(plain(value)) for value in row.values()] for row in table.to_pylist()]
        if on_terminal():
            show(columns, rows)
        else:
            self._write_lines(columns, [[clean(cell) or "-" for cell in row] for row in rows])
        return True

    def _write_lines(self, columns: list[PrintedColumn], rows: list[list[str]]) -> None:
        names = [column.title for column in columns]
        lines = rows
        if names != self._names:
            self._names = names
            lines = [[name.upper() for name in names], *rows]
            self._widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        for line in lines:
            cells = zip(line, self._widths, columns, strict=True)
            text = [cell.rjust(width) if column.right else cell.ljust(width) for cell, width, column in cells]
            typer.echo("  ".join(text).rstrip())

    def summary(self, part: "Result") -> bool:
        """The final reply of spark.sql, on standard error. False if it is something else, or no table was written."""
        if not part.final or len(part) != 1 or (not self._names and not on_terminal()):
            return False
        try:
            found: Any = json.loads(part[0])
        except ValueError:
            return False
        if not isinstance(found, dict) or not {"rows", "seconds", "schema"} <= found.keys():
            return False
        more = "; more were left out" if found.get("truncated") else ""
        typer.echo(f"{found['rows']:,} rows in {found['seconds']:.2f} s{more}", err=True)
        return True
