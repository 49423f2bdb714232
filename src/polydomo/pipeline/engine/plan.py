"""What a batch has to do: made by the driver, sent to every task."""

from dataclasses import dataclass, field
from datetime import datetime

from polydomo.pipeline.engine.messages import ONCE, OTHER_RUNS, to_bridges, to_payload, to_run, to_unit
from polydomo.pipeline.tables.capacity import Objective


@dataclass(frozen=True)
class HourItem:
    """One run in one hour: a part of its requests (those whose number leaves ``part`` when divided by ``parts``)."""

    unit: str
    run: int
    messages: tuple[str, ...]  # paths of segments
    requests: tuple[str, ...]
    other_messages: tuple[str, ...] = ()  # of other runs in the hour
    part: int = 0
    parts: int = 1
    peek: bool = False  # the hour is not made anew: only what it has of requests over bridges is wanted


@dataclass(frozen=True)
class RunItem:
    """One run: the audit of its new rows, and the presence of its workers."""

    run: int
    units: tuple[str, ...]  # in which the presence of its workers is asked for
    messages: tuple[str, ...] = ()  # paths of segments with rows that are not audited yet
    requests: tuple[str, ...] = ()
    base: int = 0  # the sequence number of the saved state to begin with; 0 is none
    state: tuple[str, ...] = ()  # paths of that state
    workers: str = ""  # path of the saved presence of its workers
    facts: str = ""  # path of what is known of the run
    breaches: str = ""  # path of the breaches that were found before
    all_messages: tuple[str, ...] = ()  # paths of all segments of the run, for an audit from the beginning
    all_requests: tuple[str, ...] = ()
    new: bool = True  # whether there are rows to audit


@dataclass(frozen=True)
class Payload:
    """The payloads of a service or of topics that become a table of their own."""

    pattern: str  # a service or topic; ``*`` at the end stands for any rest
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
    units: list[str] = field(default_factory=list)  # hours that are made anew
    spills: dict[str, list[str]] = field(
        default_factory=dict
    )  # unit -> files with work of its workers, from later hours
    since: datetime | None = None
    until: datetime | None = None
    objectives: dict[str, Objective] = field(default_factory=dict)
    payloads: list[Payload] = field(default_factory=list)
    known_runs: dict[int, RunItem] = field(default_factory=dict)  # runs with a saved state that are not in ``runs``
    partial: bool = False  # ``since`` or ``until`` cut the audit: no state is saved
    once: dict[str, str] = field(default_factory=dict)  # hour -> file with what happened in it that must happen once
    once_breaches: str = ""  # paths of the breaches that were found before, and of where they are published
    once_facts: str = ""
    floor: str = ""  # the first hour that the tables keep
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
