"""The results of a run: the table, and every check that failed."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from chaos.calls import FAR
from chaos.record import Submitted, Tally, owner
from chaos.stage import LIBRARY
from polydomo.limits import ATTEMPTS

NEVER = "never ended"
OURS = ("never-reads.", "probe.")  # calls that faults and checks make; they are not recorded
SHOWN = 10  # examples shown of each kind
MIB = 1024 * 1024
LATEST = (
    45.0  # seconds that a call may take: its timeout, the longest freeze, and a margin for a machine that stands still
)
MAX_MEMORY = 400 * MIB  # of the idle broker: Python, Arrow's buffers, and a margin; a leak would be gigabytes


@dataclass
class Report:
    seconds: float = 0.0
    peers: int = 0
    crowd: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    memory: int = 0
    most_memory: int = 0
    files: int = 0
    musts: dict[str, list[str]] = field(default_factory=dict)  # what must be 0, with examples
    tally: Tally = field(default_factory=Tally)
    survivors: set[str] = field(default_factory=set)  # clients that ran at the end, with their incarnation
    audited: int = 0  # rows of the journal

    def must(self, what: str, cases: list[str]) -> None:
        self.musts.setdefault(what, []).extend(cases)

    @property
    def failed(self) -> bool:
        return any(self.musts.values())

    def judge(self, tally: Tally) -> None:
        """Checks that need only the records."""
        self.tally = tally
        calls = tally.calls
        self.must("calls that never ended", [name for name, call in calls.items() if self.outcome(name, call) == NEVER])
        self.must("outcomes delivered twice", tally.twice)
        self.must("replies to the wrong call or client", tally.wrong)
        self.must("replies that differ from what the worker sent", tally.garbled)
        endings = [f"{name}: {call.outcome}" for name, call in calls.items()]
        self.must(
            "errors that are not the library's own, or violations",
            [e for e in endings if "untyped" in e or "violation" in e],
        )
        late = [
            f"{e}, after {c.took / 1000:.1f} s"
            for e, c in zip(endings, calls.values(), strict=True)
            if c.took > LATEST * 1000
        ]
        self.must("calls that ended long after their timeout", late)
        often = [
            f"{name}: executed {call.executions} times, sent at most {call.attempts}"
            for name, call in calls.items()
            # over a bridge, each attempt of the near broker is a request with its own attempts at the far broker
            if call.executions > ATTEMPTS ** (2 if call.service == FAR else 1) * call.attempts
            and kind_of(name) in (*LIBRARY, "blocking")
        ]
        self.must("calls executed more often than attempts allow", often)
        self.must(
            "calls executed that no client submitted", [name for name in tally.unknown if not name.startswith(OURS)]
        )
        self.must(
            f"MiB of the broker at rest over {MAX_MEMORY // MIB}",
            [f"{self.memory // MIB}"] if self.memory > MAX_MEMORY else [],
        )

    def outcomes(self) -> Counter[str]:
        return Counter(self.outcome(name, call) for name, call in self.tally.calls.items())

    def outcome(self, name: str, call: Submitted) -> str:
        return call.outcome or (NEVER if owner(name) in self.survivors else "its client was killed")

    def table(self) -> str:
        calls = self.tally.calls
        outcomes = self.outcomes()
        rows: list[tuple[str, str]] = [
            (
                "load",
                f"{self.peers} peers as separate processes, {self.crowd:,} idle peers, for {self.seconds:.0f} s",
            ),
            ("", f"{len(calls):,} requests submitted, {self.tally.executions:,} executions"),
            ("", ", ".join(f"{name} {count:,}" for name, count in Counter(map(kind_of, calls)).most_common())),
            ("faults", f"{self.faults.total():,} injected"),
            *(("", f"{name:<36}{count:>6,}") for name, count in sorted(self.faults.items(), key=lambda item: -item[1])),
            ("outcomes", ""),
            *(("", f"{name:<36}{count:>6,}") for name, count in outcomes.most_common()),
            (
                "broker",
                f"{self.memory / MIB:.0f} MiB at rest, {self.most_memory / MIB:.0f} MiB at most, {self.files} files open",
            ),
            ("", f"{self.restarts} restarts of both brokers; {self.audited:,} rows of their journals audited"),
            ("must be 0", ""),
            *(("", f"{what:<60}{len(cases):>4}") for what, cases in self.musts.items()),
        ]
        lines = [f"{head:<11}{text}" for head, text in rows]
        for what, cases in self.musts.items():
            if cases:
                lines += ["", f"{what}:", *(f"  {case}" for case in cases[:SHOWN])]
                if len(cases) > SHOWN:
                    lines.append(f"  ... and {len(cases) - SHOWN} more")
        return "\n".join(line.rstrip() for line in lines)


def kind_of(call: str) -> str:
    """
    >>> kind_of("client-pyzmq-mdp1.2.17")
    'pyzmq-mdp1'
    """
    return owner(call).partition(".")[0].removeprefix("client-")


def audit(data: Path) -> tuple[int, list[str]]:
    """Checks every rule on every row that all runs of the broker wrote."""
    from polydomo.journal.reading.audit import audit
    from polydomo.journal.reading.reader import Reader
    from polydomo.journal.schema import KINDS

    reader = Reader([data / "near" / "journal", data / "far" / "journal"])
    rows = [row for kind in KINDS for row in reader.rows(kind)]
    return len(rows), reader.problems + [str(breach) for breach in audit(rows)]
