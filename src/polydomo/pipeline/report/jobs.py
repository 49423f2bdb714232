"""The report's figures of durable jobs, from the tables ``jobs`` and ``job_events``."""

from collections import Counter

import pyarrow.dataset as ds

from polydomo.journal import histogram
from polydomo.pipeline.report.data import JobsView, JobView, ScheduleView
from polydomo.pipeline.report.reasons import most_frequent
from polydomo.pipeline.report.tables import Tables

SERVICES = 40  # shown one by one
DEAD = 20  # reasons
SCHEDULES = 40


def jobs_view(tables: Tables) -> JobsView:
    made = JobsView()
    services: dict[str, JobView] = {}
    _count_events(tables, made, services)
    _add_outcomes(tables, services)
    made.count = sum(view.accepted for view in services.values())
    made.services = sorted(services.values(), key=lambda view: (-view.dead, -view.accepted, view.service))[:SERVICES]
    made.dead = most_frequent(tables, "jobs", "job", ds.field("state") == "dead", DEAD)
    return made


def _count_events(tables: Tables, made: JobsView, services: dict[str, JobView]) -> None:
    schedules: dict[str, ScheduleView] = {}
    for batch in tables.batches("job_events", ["event", "service", "schedule", "wait_us"]):
        grouped = batch.group_by(["event", "service", "schedule"]).aggregate([("wait_us", "sum"), ("wait_us", "count")])
        for row in grouped.to_pylist():
            event, count = row["event"], row["wait_us_count"]
            if event in ("fired", "skipped"):
                plan = schedules.setdefault(row["schedule"], ScheduleView(row["schedule"]))
                setattr(plan, event, getattr(plan, event) + count)
            elif event == "leads":
                made.leaders += count
            elif row["service"]:
                view = services.setdefault(row["service"], JobView(row["service"]))
                view.accepted += count if event == "accepted" else 0
                view.reopened += count if event == "reopened" else 0
                view.retries += count if event == "retry" else 0
                view.backoff += row["wait_us_sum"]
    made.schedules = sorted(schedules.values(), key=lambda plan: (-plan.skipped, plan.name))[:SCHEDULES]


def _add_outcomes(tables: Tables, services: dict[str, JobView]) -> None:
    totals: dict[str, Counter[int]] = {}
    for batch in tables.batches("jobs", ["service", "state", "total_us"]):
        for row in batch.to_pylist():
            view = services.setdefault(row["service"], JobView(row["service"]))
            setattr(view, row["state"], getattr(view, row["state"]) + 1)
            totals.setdefault(row["service"], Counter())[histogram.bucket(row["total_us"])] += 1
    for service, counts in totals.items():
        services[service].p50 = histogram.percentile(counts, 0.5)
        services[service].p99 = histogram.percentile(counts, 0.99)
