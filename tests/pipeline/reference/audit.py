"""``audit`` and ``audit_rules``: the breaches that the journal's own audit finds in Python, and which rules it could check."""

from collections import Counter, defaultdict

from polydomo.journal import schema
from polydomo.journal.reading import rules
from polydomo.journal.reading.audit import audit
from tests.pipeline.reference.basics import Row, moment
from tests.pipeline.reference.journal import Journal


def audit_and_rules(journal: Journal) -> tuple[list[Row], list[Row]]:
    by_seq: dict[tuple[int, int], Row] = {(row["run"], row["seq"]): row for row in journal.rows}
    life = journal.life
    breaches = []
    for breach in audit(journal.rows):
        seq = breach.proof[-1][1]
        rule = rules.BY_ID[breach.rule]
        row = by_seq.get((breach.run, seq))
        about = {
            "number": 0,
            "worker": 0,
            "connection": 0,
            "service": "",
            **{k: v for k, v in breach.about.items() if k != "run"},
        }
        if (rule.shape == rules.EACH or rule.scope == rules.RUN) and rule.shape != rules.SEQUENCE and row is not None:
            about |= {"number": row["number"], "worker": row["worker"]}
        time = moment(life[breach.run][1]) if rule.shape == rules.SEQUENCE or row is None else row["time"]
        breaches.append({"rule": breach.rule, "says": rule.says, "broker": life[breach.run][2], "run":
        breach.run, **about, "seq": seq, "time": time,
                         "proof": [seq for _, seq in breach.proof], "detail": breach.detail.removeprefix(": ")})  # fmt: skip
    levels: dict[int, int] = defaultdict(lambda: 1)
    for row in journal.messages:
        if row["level"] == schema.MESSAGES or row["event"] in schema.ONLY_MESSAGES:
            levels[row["run"]] = 2
    counts = Counter((row["run"], row["rule"]) for row in breaches)
    checks = [
        {"run": run, "broker": broker, "level": schema.LEVELS[levels[run]], "rule": rule.id, "says": rule.says,
         "checkable": rule in rules.checkable(schema.LEVELS[levels[run]]), "breaches": counts[run, rule.id]}
        for run, (_, _, broker) in life.items() for rule in rules.RULES if rule.shape not in (rules.ONCE, rules.FLOWS)
    ]  # fmt: skip
    if any(
        row["once"]
        or (row["flow"] and row["position"] and row["event"] != schema.FLOW)
        or (row["flow"] and row["event"] == schema.MEMO)
        for row in journal.messages
    ):
        checks += [
            {"run": 0, "broker": "", "level": schema.REQUESTS, "rule": rule.id, "says": rule.says, "checkable": True,
             "breaches": sum(row["rule"] == rule.id for row in breaches)}
            for rule in rules.RULES if rule.shape in (rules.ONCE, rules.FLOWS)
        ]  # fmt: skip
    return breaches, checks
