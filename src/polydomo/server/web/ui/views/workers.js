// Workers: state, requests and latency of each, and the action to drain it.

import { h, state } from "../dom.js";
import { count, duration } from "../format.js";
import { poll } from "../poll.js";
import { table } from "../table.js";
import { drain } from "../actions.js";

export const title = "Workers";

export function columns() {
  return [
    { key: "worker", title: "Worker", sort: (row) => row.name || row.worker, cell: (row) => (row.name ? `${row.name} (${row.worker})` : row.worker) },
    { key: "state", title: "State", cell: (row) => state(row.state) },
    { key: "services", title: "Services", sort: (row) => row.services.join(), cell: (row) => row.services.join(", ") },
    { key: "held", title: "Holds", number: true, cell: (row) => count(row.held) },
    { key: "done", title: "Done", number: true, cell: (row) => count(row.done) },
    { key: "failed", title: "Failed", number: true, wide: true, cell: (row) => count(row.failed) },
    { key: "mean_us", title: "Mean", number: true, wide: true, cell: (row) => duration(row.mean_us) },
    { key: "max_us", title: "Longest", number: true, wide: true, cell: (row) => duration(row.max_us) },
    { key: "silent_us", title: "Silent for", number: true, wide: true, cell: (row) => duration(row.silent_us) },
    { key: "protocol", title: "Protocol", wide: true, cell: (row) => (row.dialect ? `${row.protocol} (${row.dialect})` : row.protocol) },
    { key: "peer", title: "Address", wide: true },
    { key: "action", title: "", wide: true, make: (row) => ({ element: h("button", { type: "button", class: "small", onclick: () => drain(row.worker) }, "Drain"), update() {} }) },
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
