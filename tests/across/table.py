"""Runs the matrix and writes its result down: ``python -m tests.across.table`` renews docs/protocols/matrix.md."""

from pathlib import Path

from tests.across.cases import CASES
from tests.across.kinds import CLIENTS, PAIRS, WORKERS

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "matrix.md"

Results = dict[tuple[str, str, str], str]  # client, worker, case -> what was seen

INTRODUCTION = """\
# Every client with every worker

Each of the {clients} clients below is tested with each of the {workers} workers in {cases} cases: {runs} runs on the pure core, with the
bytes of both peers passing through real links and with a simulated clock. One call of each pair is also made over real sockets,
with libzmq, NNG and plain HTTP as the peers. `guide-php` is the dialect of MDP/0.1 that the Guide's PHP worker uses, `guide-digits` that
of its C# and Haskell workers. `rfc18`, `rfc18-req` (RFC 18 through a REQ socket), `majortomo`, `libmdp` and `zmq-mdp2` are the dialects
of MDP/0.2. `dagbox` is DCP with types of four bytes, as DagBox's own workers speak it.
`dcp-addressed` is a client of DCP that puts its own identity in front
of its requests, `emqp-document` a client of eMQP as its document prints it: the command READY, and no headers.

`python -m tests.across.table` generates this page from the results of the runs, and a test fails if it is out of date. The cases are in
`tests/across/cases.py`, the peers in `tests/across/kinds.py`.

Number of cases that pass, out of {cases}; one row per client, one column per worker:
"""

CATALOG = """
## DBP

DBP has no clients that send requests; a service that registers over DBP may take them. DBP clients find the services of all other protocols
in the catalog, each with its protocol and the broker's address, and clients of the other protocols can call what they found there.
`tests/across/test_catalog.py` tests it for each protocol.
"""


def run() -> Results:
    """Raises a group with the errors of all cases that do not hold; a note at each names the pair and the case."""
    results: Results = {}
    errors: list[Exception] = []
    for client, worker in PAIRS:
        for case, (_, check) in CASES.items():
            try:
                results[client, worker, case] = check(CLIENTS[client], WORKERS[worker])
            except Exception as error:
                error.add_note(f"client {client}, worker {worker}, case {case}")
                errors.append(error)
    if errors:
        raise ExceptionGroup("cases of the matrix that do not hold", errors)
    return results


def render(results: Results) -> str:
    clients = list(dict.fromkeys(client for client, _, _ in results))
    workers = list(dict.fromkeys(worker for _, worker, _ in results))
    out = [INTRODUCTION.format(clients=len(clients), workers=len(workers), cases=len(CASES), runs=len(results))]
    held = {(c, w): str(sum((c, w, case) in results for case in CASES)) for c in clients for w in workers}
    out += grid([[name] for name in clients], [[name] for name in workers], held)
    for case, (title, check) in CASES.items():
        seen = {(c, w): results[c, w, case] for c in clients for w in workers}
        out += ["", f"## {title}", "", " ".join((check.__doc__ or "").split()), ""]
        if len(set(seen.values())) == 1:
            out.append(f"All {len(seen)} pairs: {seen[clients[0], workers[0]]}.")
        else:
            out += grid(
                alike({c: [seen[c, w] for w in workers] for c in clients}),
                alike({w: [seen[c, w] for c in clients] for w in workers}),
                seen,
            )
    return "\n".join(out) + "\n" + CATALOG


def alike(looks: dict[str, list[str]]) -> list[list[str]]:
    """The names in groups of those that look the same, in order."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, look in looks.items():
        groups.setdefault(tuple(look), []).append(name)
    return list(groups.values())


def grid(rows: list[list[str]], columns: list[list[str]], cells: dict[tuple[str, str], str]) -> list[str]:
    lines = ["| client \\ worker | " + " | ".join(", ".join(column) for column in columns) + " |"]
    lines.append("|---" * (len(columns) + 1) + "|")
    for row in rows:
        lines.append(f"| {', '.join(row)} | " + " | ".join(cells[row[0], column[0]] for column in columns) + " |")
    return lines


if __name__ == "__main__":
    PAGE.write_text(render(run()), encoding="utf-8")
    print(f"wrote {PAGE}")
