// Durable jobs by state, with actions on one or many. The filters are part of the address.

import { cancelJob, dropMany, retryMany } from "../actions.js";
import { h, setText } from "../dom.js";
import { clock, count } from "../format.js";
import { address } from "../pages.js";
import { cli, empty, filters, heading, jobLink, progressBar, serviceLink, state } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Jobs";

const STATES = ["", "delayed", "queued", "running", "done", "dead", "cancelled"];
const MOST = 500;

export function show(place, _parameter, query) {
  const chosen = STATES.includes(query.get("state")) ? query.get("state") : "";
  const service = query.get("service") || "";
  const errors = h("div");
  const tabs = filters("State of the jobs", STATES.map((key) => ({ key, title: key ? key[0].toUpperCase() + key.slice(1) : "All", href: address("jobs", "", { state: key, service }) })));
  tabs.select(chosen);
  const field = h("input", { type: "search", name: "service", placeholder: "Service", "aria-label": "Service", value: service, autocomplete: "off", spellcheck: "false" });
  const form = h("form", { class: "find", onsubmit: (event) => {
    event.preventDefault();
    location.hash = address("jobs", "", { state: chosen, service: field.value.trim() });
  } }, field, h("button", null, "Search"), service ? h("a", { href: address("jobs", "", { state: chosen }) }, "Clear") : null);
  const picked = new Set();
  const number = h("span", { class: "note", role: "status" });
  let rows = [];
  let again = () => {};
  const act = (action) => action([...picked], () => { picked.clear(); again(); });
  const retry = h("button", { type: "button", onclick: () => act(retryMany) }, "Retry");
  const drop = h("button", { type: "button", onclick: () => act(dropMany) }, "Drop");
  const every = h("input", { type: "checkbox", "aria-label": "Select all dead jobs shown", onchange: () => {
    for (const row of rows) if (row.state === "dead") picked[every.checked ? "add" : "delete"](row.job);
    jobs.set(rows);
    showPicked();
  } });
  const bulk = h("div", { class: "tools", hidden: chosen !== "dead" }, h("label", null, every, " All shown"), retry, drop, number);

  function showPicked() {
    retry.disabled = drop.disabled = !picked.size;
    setText(number, picked.size ? `${count(picked.size)} selected` : "");
  }

  function pick(row) {
    const box = h("input", { type: "checkbox", "aria-label": `Select job ${row.job}`, onchange: () => { picked[box.checked ? "add" : "delete"](row.job); showPicked(); } });
    return { element: box, update: (next) => { box.checked = picked.has(next.job); } };
  }

  const jobs = table({
    caption: "Jobs",
    key: (row) => row.job,
    sort: "created",
    descending: true,
    nothing: empty(chosen || service ? "No job matches." : "No jobs yet. Submit one:", chosen || service ? "" : cli("submit upper hello")),
    columns: [
      { key: "job", title: "Job", grow: 25, cell: (row) => jobLink(row.job) },
      { key: "service", title: "Service", grow: 30, cell: (row) => serviceLink(row.service) },
      { key: "state", title: "State", cell: (row) => state(row.state) },
      { key: "attempts", title: "Attempts", number: true, cell: (row) => count(row.attempts + (row.state === "running")) },
      { key: "created", title: "Created", wide: true, cell: (row) => clock(row.created) },
      { key: "ended", title: "Ended", wide: true, extra: true, cell: (row) => (row.ended ? clock(row.ended) : "") },
      { key: "key", title: "Key", wide: true, extra: true, cell: (row) => row.key },
      { key: "schedule", title: "Schedule", wide: true, extra: true, cell: (row) => row.schedule },
      { key: "reason", title: "Progress, reason", grow: 45, long: true, cell: (row) => progressBar(row.progress) || row.reason },
      chosen === "dead" ? { key: "pick", title: "", actions: true, make: pick } : { key: "action", title: "", actions: true, make: cancelButton },
    ],
  });
  place.append(heading("Jobs"), tabs.element, form, bulk, errors, jobs.element);
  showPicked();
  const limit = h("p", { class: "note", hidden: true }, `The newest ${MOST} are shown.`);
  place.append(limit);
  const path = () => `/v1/jobs?${new URLSearchParams(Object.entries({ page: "1", limit: MOST, state: chosen, service }).filter(([, value]) => value))}`;
  const start = () => poll(path, (found) => {
    rows = found.jobs;
    for (const job of picked) if (!rows.some((row) => row.job === job)) picked.delete(job);
    tabs.counts(countsOf(found));
    jobs.set(rows);
    showPicked();
    limit.hidden = rows.length < MOST;
  }, errors);
  let end = start();
  again = () => {
    end();
    end = start();
  };
  return () => end();
}

function countsOf({ stored = {}, open = {} }) {
  const known = { ...open, ...stored };
  return Object.fromEntries(STATES.map((key) => [key, key ? (known[key] === undefined ? "" : count(known[key])) : ""]));
}

/** A button to cancel a job, hidden once the job has ended. */
function cancelButton(row) {
  const element = h("button", { type: "button", class: "small", onclick: () => cancelJob(row.job) }, "Cancel");
  return { element, update: (next) => { element.hidden = Boolean(next.ended); } };
}
