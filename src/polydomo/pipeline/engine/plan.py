"""The plan of a batch: created by the driver, sent to every task."""

from dataclasses import dataclass, field
from datetime import datetime

from polydomo.pipeline.engine.messages import ONCE, OTHER_RUNS, to_bridges, to_payload, to_run, to_unit
from polydomo.pipeline.tables.capacity import Objective


@dataclass(frozen=True)
class HourItem:
    """One run in one hour, or a part of it: the requests with ``number % parts == part``."""

    unit: str
    run: int
    messages: tuple[str, ...]  # paths of segments
    requests: tuple[str, ...]
    other_messages: tuple[str, ...] = ()  # of other runs in the hour
    part: int = 0
    parts: int = 1
    peek: bool = False  # the hour is not recomputed: only its bridged requests are read


@dataclass(frozen=True)
class RunItem:
    """One run: its new rows to audit, and the hours for which the presence of its workers is needed."""

    run: int
    units: tuple[str, ...]  # hours for which the presence of its workers is needed
    messages: tuple[str, ...] = ()  # paths of segments with rows that were not audited yet
    requests: tuple[str, ...] = ()
    base: int = 0  # the sequence number of the saved state to start from; 0: none
    state: tuple[str, ...] = ()  # paths of that state
    workers: str = ""  # path of the saved presence of its workers
    facts: str = ""  # path of the saved facts about the run
    breaches: str = ""  # path of the known breaches
    all_messages: tuple[str, ...] = ()  # paths of all segments of the run, for an audit from the beginning
    all_requests: tuple[str, ...] = ()
    new: bool = True  # whether there are rows to audit


@dataclass(frozen=True)
class Payload:
    """The payloads of a service, or of topics, that become a table."""

    pattern: str  # a service or topic; may end with ``*``
    format: str  # json or arrow
    name: str  # the table is ``payloads_<name>``
    columns: tuple[tuple[str, str], ...] = ()  # declared names and types; empty: inferred


@dataclass
class Plan:
    roots: list[str]  # journals
    tables: str  # directory of the tables
    staging: str  # where the tasks write
    hours: list[HourItem] = field(default_factory=list)
    runs: dict[int, RunItem] = field(default_factory=dict)
    units: list[str] = field(default_factory=list)  # hours to recompute
    spills: dict[str, list[str]] = field(
        default_factory=dict
    )  # unit -> files in which later hours saved work that was done in it
    since: datetime | None = None
    until: datetime | None = None
    objectives: dict[str, Objective] = field(default_factory=dict)
    payloads: list[Payload] = field(default_factory=list)
    known_runs: dict[int, RunItem] = field(default_factory=dict)  # runs with a saved state that are not in ``runs``
    partial: bool = False  # ``since`` or ``until`` cut the audit: no state is saved
    once: dict[str, str] = field(default_factory=dict)  # hour -> file of its events that must happen only once
    once_breaches: str = (
        ""  # path of the known breaches of ONCE rules; ``once_facts``: of the hours in which they are published
    )
    once_facts: str = ""
    floor: str = ""  # the first hour that retention keeps
    memory: str = "700MB"  # for one task
    threads: int = 1
    keys: dict[int, list[str]] = field(default_factory=dict)

    def addresses(self, stage: int) -> list[str]:
        """The tasks of stage 2 and 3."""
        if stage not in self.keys:
            runs = [*(to_run(run) for run in sorted(self.runs)), OTHER_RUNS]
            hours = [to_bridges(unit) if stage == 2 else to_unit(unit) for unit in self.units]
            payloads = [to_payload(one.name) for one in self.payloads] if stage == 2 else []
            self.keys[stage] = [*runs, *hours, *payloads, *([ONCE] if stage == 2 else [])]
        return self.keys[stage]

    def slot(self, stage: int, address: str) -> int:
        """The number of the task that handles an address."""
        known = self.addresses(stage)
        return known.index(address) if address in known else known.index(OTHER_RUNS)
