"""A bar for each stage of a flow, on a terminal."""

from typing import Any, TextIO

from polydomo.cli.flows.stages import stages_of
from polydomo.client.flows import FlowStep

Row = dict[str, Any]

WIDTH = 30  # characters of a bar
MOST = 20  # stages that are shown one by one; the others share the last bar


class StageBars:
    def __init__(self, flow: Row, output: TextIO) -> None:
        self._output = output
        self._stage_of: dict[str, int] = {}
        self._services: dict[int, dict[str, None]] = {}
        self._total: dict[int, int] = {}
        self._ended: dict[int, set[str]] = {}
        self._failed: dict[int, set[str]] = {}
        stages = stages_of(flow)
        for row in flow["nodes"]:
            stage = min(stages[row["number"]], MOST - 1)
            self._stage_of[row["node"]] = stage
            self._services.setdefault(stage, {})[row["service"]] = None
            self._total[stage] = self._total.get(stage, 0) + 1
            self._ended.setdefault(stage, set())
            self._failed.setdefault(stage, set())
        self._drawn = False
        self._draw()

    def count(self, step: FlowStep) -> None:
        stage = self._stage_of.get(step.node, 0)
        self._ended[stage].add(step.node)
        (self._failed[stage].discard if step.state == "done" else self._failed[stage].add)(step.node)
        self._draw()

    def _draw(self) -> None:
        lines = [self._line(stage) for stage in sorted(self._total)]
        if self._drawn:
            self._output.write(f"\x1b[{len(lines)}A")
        self._drawn = True
        self._output.write("".join(f"\x1b[2K{line}\n" for line in lines))
        self._output.flush()

    def _line(self, stage: int) -> str:
        total, ended, failed = self._total[stage], len(self._ended[stage]), len(self._failed[stage])
        full = WIDTH * ended // total
        services = ", ".join(self._services[stage])
        name = services if len(services) <= 24 else services[:21] + "..."
        note = f", {failed:,} failed" if failed else ""
        return f"{name:24} [{'#' * full}{'.' * (WIDTH - full)}] {ended:,}/{total:,}{note}"
