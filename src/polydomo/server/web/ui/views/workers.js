// Workers: state, requests and latency of each, and the action to drain it.

import { workerAction } from "../actions.js";
import { h } from "../dom.js";
import { count, duration } from "../format.js";
import { cli, empty, heading, name, serviceLink, state } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Workers";

export function workerTable(caption, withServices, nothing) {
  return table({
    caption,
    key: (row) => row.worker,
    sort: "worker",
    filter: (row) => `${row.worker} ${row.name || ""} ${row.state} ${row.protocol} ${row.peer} ${row.services.join(" ")}`,
    nothing,
    columns: [
      { key: "worker", title: "Worker", grow: withServices ? 35 : 60, sort: (row) => row.name || row.worker, cell: (row) => name(row.name ? `${row.name} (${row.worker})` : row.worker, `#/requests?show=finished&worker=${row.worker}`) },
      { key: "state", title: "State", cell: (row) => state(row.draining ? "draining" : row.state, row.cause) },
      withServices && { key: "services", title: "Services", grow: 65, sort: (row) => row.services.join(), cell: (row) => (row.services.length === 1 ? serviceLink(row.services[0]) : row.services.join(", ")) },
      { key: "held", title: "Slots used", number: true, hint: "Requests that it holds, of those that it can hold at once", cell: (row) => `${count(row.held)} of ${count(row.slots ?? row.held + row.credit)}` },
      { key: "done", title: "Done", number: true, cell: (row) => count(row.done) },
      { key: "failed", title: "Failed", number: true, cell: (row) => (row.failed ? h("span", { class: "error" }, count(row.failed)) : "0") },
      { key: "mean_us", title: "Mean", number: true, wide: true, cell: (row) => duration(row.mean_us) },
      { key: "max_us", title: "Longest", number: true, wide: true, cell: (row) => duration(row.max_us) },
      { key: "silent_us", title: "Silent for", number: true, wide: true, extra: true, cell: (row) => duration(row.silent_us) },
      { key: "protocol", title: "Protocol", wide: true, cell: (row) => (row.dialect ? `${row.protocol} (${row.dialect})` : row.protocol) },
      { key: "principal", title: "Principal", wide: true, extra: true, cell: (row) => row.principal },
      { key: "peer", title: "Address", wide: true, extra: true },
      { key: "action", title: "", actions: true, make: workerAction },
    ].filter(Boolean),
  });
}

export function show(place) {
  const errors = h("div");
  const workers = workerTable("Workers", true, empty("No worker is connected. Start one:", cli("work upper -- tr a-z A-Z")));
  place.append(heading("Workers"), errors, workers.element);
  return poll(() => "/v1/workers", (rows) => workers.set(rows), errors);
}
