// Workers: state, requests and latency of each, and the action to drain it.

import { h, setText, state } from "../dom.js";
import { count, duration } from "../format.js";
import { poll } from "../poll.js";
import { table } from "../table.js";
import { drain, resumeWorker } from "../actions.js";

export const title = "Workers";

/** A button that drains the worker, or resumes a drained one. */
function action() {
  let current = {};
  const element = h("button", { type: "button", class: "small", onclick: () => (current.draining ? resumeWorker : drain)(current.worker) }, "Drain");
  return { element, update(row) {
    current = row;
    setText(element, row.draining ? "Resume" : "Drain");
  } };
}

export function columns() {
  return [
    { key: "worker", title: "Worker", sort: (row) => row.name || row.worker, cell: (row) => (row.name ? `${row.name} (${row.worker})` : row.worker) },
    { key: "state", title: "State", cell: (row) => state(row.draining ? "draining" : row.state) },
    { key: "services", title: "Services", sort: (row) => row.services.join(), cell: (row) => row.services.join(", ") },
    { key: "held", title: "Holds", number: true, cell: (row) => count(row.held) },
    { key: "done", title: "Done", number: true, cell: (row) => count(row.done) },
    { key: "failed", title: "Failed", number: true, wide: true, cell: (row) => count(row.failed) },
    { key: "mean_us", title: "Mean", number: true, wide: true, cell: (row) => duration(row.mean_us) },
    { key: "max_us", title: "Longest", number: true, wide: true, cell: (row) => duration(row.max_us) },
    { key: "silent_us", title: "Silent for", number: true, wide: true, cell: (row) => duration(row.silent_us) },
    { key: "protocol", title: "Protocol", wide: true, cell: (row) => (row.dialect ? `${row.protocol} (${row.dialect})` : row.protocol) },
    { key: "principal", title: "Principal", wide: true, cell: (row) => row.principal || "–" },
    { key: "peer", title: "Address", wide: true },
    { key: "action", title: "", wide: true, make: action },
  ];
}

export function show(place) {
  const errors = h("div");
  const workers = table({
    caption: "Workers",
    key: (row) => row.worker,
    sort: "worker",
    filter: (row) => `${row.worker} ${row.name || ""} ${row.state} ${row.protocol} ${row.peer} ${row.services.join(" ")}`,
    nothing: "No workers are connected.",
    columns: columns(),
  });
  place.append(errors, workers.element);
  return poll(() => "/v1/workers", (rows) => workers.set(rows), errors);
}
