// Services: state, rate, errors and latency of each, and the actions on it.

import { h } from "../dom.js";
import { serviceActions } from "../actions.js";
import { count, duration, percent, rate } from "../format.js";
import { errorShare, serviceState } from "../health.js";
import { cli, empty, heading, limitsText, state } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Services";

const latency = (us) => (us ? duration(us) : "–"); // nothing was answered in the last second
const RANK = { failing: 0, registering: 1, lost: 1, paused: 2, drained: 2, late: 3, "all-busy": 4, ready: 5 };

export function show(place) {
  const services = table({
    caption: "Services",
    key: (row) => row.name,
    sort: "state",
    filter: (row) => `${row.name} ${serviceState(row)} ${row.protocols.join(" ")}`,
    link: (row) => `#/service/${encodeURIComponent(row.name)}`,
    nothing: empty("No services yet. Start a worker:", cli("work upper -- tr a-z A-Z")),
    columns: [
      { key: "name", title: "Service", grow: 100 },
      { key: "state", title: "State", sort: (row) => RANK[serviceState(row)] ?? 4, cell: (row) => state(serviceState(row), row.cause) },
      { key: "rate", title: "Requests/s", number: true, hint: "Answered in the last second", cell: (row) => rate(row.rate) },
      { key: "errors", title: "Failed", number: true, hint: "Share of requests that ended without a reply in the last five minutes", sort: (row) => errorShare(row) ?? -1, cell: (row) => (row.recent_failed ? h("span", { class: "error" }, percent(errorShare(row))) : errorShare(row) === null ? "–" : "0 %") },
      { key: "p50_us", title: "p50", number: true, wide: true, extra: true, hint: "Half of the requests of the last second were faster", cell: (row) => latency(row.p50_us) },
      { key: "p99_us", title: "p99", number: true, wide: true, hint: "99 of 100 requests of the last second were faster", cell: (row) => latency(row.p99_us) },
      { key: "queued", title: "Queue", number: true, cell: (row) => count(row.queued) },
      { key: "oldest", title: "Oldest wait", number: true, extra: true, wide: true, sort: (row) => row.oldest_wait_us, cell: (row) => (row.queued ? duration(row.oldest_wait_us) : "–") },
      { key: "limits", title: "Limits", extra: true, wide: true, cell: (row) => limitsText(row.limits) },
      { key: "workers", title: "Busy", number: true, hint: "Workers that hold a request, of all", cell: (row) => `${count(row.busy ?? 0)} of ${count(row.workers)}` },
      { key: "protocols", title: "Protocols", extra: true, wide: true, cell: (row) => row.protocols.join(", ") },
      { key: "action", title: "", actions: true, make: () => serviceActions("small") },
    ],
  });
  const errors = h("div");
  place.append(heading("Services"), errors, services.element);
  return poll(() => "/v1/figures", (figures) => services.set(figures.services), errors);
}
