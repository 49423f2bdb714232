// Durable jobs, dead letters and schedules, with their actions.

import { h, state } from "../dom.js";
import { cancelJob, dropDead, removeSchedule, retryDead, runSchedule } from "../actions.js";
import { clock, count, inZone } from "../format.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Jobs";

function buttons(...pairs) {
  return (row) => ({ element: h("span", { class: "actions" }, pairs.map(([text, act]) => h("button", { type: "button", class: "small", onclick: () => act(row) }, text))), update() {} });
}

/** A button to cancel a job, hidden once the job has ended. */
function cancelButton(row) {
  const element = h("button", { type: "button", class: "small", onclick: () => cancelJob(row.job) }, "Cancel");
  return { element, update: (next) => { element.hidden = Boolean(next.ended); } };
}

export function show(place) {
  const jobErrors = h("div");
  const deadErrors = h("div");
  const scheduleErrors = h("div");
  const jobs = table({
    caption: "Jobs",
    key: (row) => row.job,
    sort: "created",
    descending: true,
    filter: (row) => `${row.job} ${row.service} ${row.state} ${row.key || ""}`,
    nothing: "No jobs. Submit one: polydomo submit SERVICE BODY",
    columns: [
      { key: "job", title: "Job" },
      { key: "service", title: "Service" },
      { key: "state", title: "State", cell: (row) => state(row.state) },
      { key: "attempts", title: "Attempts", number: true, wide: true, cell: (row) => count(row.attempts) },
      { key: "created", title: "Created", wide: true, cell: (row) => clock(row.created) },
      { key: "key", title: "Key", wide: true, cell: (row) => row.key || "–" },
      { key: "reason", title: "Reason", wide: true, cell: (row) => row.reason || "" },
      { key: "action", title: "", make: cancelButton },
    ],
  });
  const dead = table({
    caption: "Dead letters",
    key: (row) => row.job,
    sort: "job",
    filter: (row) => `${row.job} ${row.service} ${row.reason || ""}`,
    nothing: "No dead letters.",
    columns: [
      { key: "job", title: "Job" },
      { key: "service", title: "Service" },
      { key: "reason", title: "Reason" },
      { key: "attempts", title: "Attempts", number: true, wide: true, cell: (row) => count(row.attempts) },
      { key: "action", title: "", make: buttons(["Retry", (row) => retryDead(row.job)], ["Drop", (row) => dropDead(row.job)]) },
    ],
  });
  const schedules = table({
    caption: "Schedules",
    key: (row) => row.name,
    sort: "name",
    nothing: "No schedules. Add one with polydomo schedule add.",
    columns: [
      { key: "name", title: "Schedule" },
      { key: "service", title: "Service" },
      { key: "when", title: "When", cell: (row) => (row.zone ? `${row.when} (${row.zone})` : row.when) },
      { key: "next", title: "Next run", cell: (row) => (row.problem || (row.next ? inZone(row.next, row.zone) : "–")) },
      { key: "action", title: "", make: buttons(["Run now", (row) => runSchedule(row.name)], ["Remove", (row) => removeSchedule(row.name)]) },
    ],
  });
  place.append(h("h1", null, "Jobs"), jobErrors, jobs.element, h("h2", null, "Dead letters"), deadErrors, dead.element, h("h2", null, "Schedules"), scheduleErrors, schedules.element);
  const ends = [poll(() => "/v1/jobs", (rows) => jobs.set(rows), jobErrors), poll(() => "/v1/dead", (rows) => dead.set(rows), deadErrors, 5000), poll(() => "/v1/schedules", (rows) => schedules.set(rows), scheduleErrors, 5000)];
  return () => ends.forEach((end) => end());
}
