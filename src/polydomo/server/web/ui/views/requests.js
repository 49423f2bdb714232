// Open requests and why each waits; any request can be found by its id.

import { h, state } from "../dom.js";
import { count, duration } from "../format.js";
import { cancelRequest } from "../actions.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Requests";

export function show(place) {
  const errors = h("div");
  const id = h("input", { type: "text", required: true, placeholder: "01K…", "aria-label": "Request id", spellcheck: "false", autocomplete: "off" });
  const search = h("form", { class: "find", onsubmit: (event) => {
    event.preventDefault();
    location.hash = `#/request/${encodeURIComponent(id.value.trim())}`;
  } }, h("label", null, "Find a request by its id ", id), h("button", null, "Show"));
  const requests = table({
    caption: "Open requests",
    key: (row) => String(row.request),
    sort: "age",
    descending: true,
    filter: (row) => `${row.request} ${row.service} ${row.client} ${row.worker} ${row.state} ${row.why}`,
    link: (row) => `#/request/${encodeURIComponent(row.request)}`,
    nothing: "No request is open.",
    columns: [
      { key: "request", title: "Request" },
      { key: "service", title: "Service" },
      { key: "state", title: "State", cell: (row) => state(row.state) },
      { key: "age", title: "Age", number: true, sort: (row) => row.age_us, cell: (row) => duration(row.age_us) },
      { key: "why", title: "Why" },
      { key: "attempts", title: "Attempts", number: true, wide: true, cell: (row) => count(row.attempts) },
      { key: "client", title: "Client", wide: true },
      { key: "worker", title: "Worker", wide: true, cell: (row) => row.worker || "–" },
      { key: "protocol", title: "Protocol", wide: true },
      { key: "action", title: "", make: (row) => ({ element: h("button", { type: "button", class: "small", onclick: () => cancelRequest(row.request) }, "Cancel"), update() {} }) },
    ],
  });
  place.append(search, errors, requests.element);
  return poll(() => "/v1/requests", (rows) => requests.set(rows), errors);
}
