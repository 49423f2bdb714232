// Requests: open ones and why each waits, finished, failed and slow ones from the journal. The filters are part of the address.

import { cancelRequest } from "../actions.js";
import { h } from "../dom.js";
import { finishedRequests } from "../finished.js";
import { count, duration, printable } from "../format.js";
import { address } from "../pages.js";
import { cli, empty, filters, heading, progressBar, requestLink, serviceLink, state } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Requests";

const KINDS = [["open", "Open"], ["finished", "Finished"], ["failed", "Failed"], ["slow", "Slow"]];
const SINCE = [["15m", "last 15 min"], ["1h", "last hour"], ["6h", "last 6 h"], ["24h", "last 24 h"], ["7d", "last 7 days"]];
const UNITS = { m: 60e3, h: 3600e3, d: 86400e3 };
const FIELDS = [["service", "Service"], ["client", "Client (c7 or address)"], ["principal", "Principal"], ["worker", "Worker (w3)"], ["id", "Any id: request, job, client's own, trace"]];

export function show(place, _parameter, query) {
  const kind = KINDS.some(([key]) => key === query.get("show")) ? query.get("show") : query.has("show") || [...query.keys()].length === 0 ? "open" : "finished";
  const now = Object.fromEntries([...FIELDS.map(([key]) => key), "from", "to", "slower"].map((key) => [key, query.get(key) || ""]));
  const tabs = filters("Which requests", KINDS.map(([key, title]) => ({ key, title, href: address("requests", "", { ...now, show: key }) })));
  tabs.select(kind);
  const inputs = FIELDS.map(([key, title]) => h("input", { type: key === "service" ? "search" : "text", name: key, placeholder: title, "aria-label": title, value: now[key], autocomplete: "off", spellcheck: "false" }));
  const since = kind === "open" ? null : h("select", { name: "from", "aria-label": "Time", onchange: () => apply() }, SINCE.map(([value, text]) => h("option", { value, selected: value === (now.from || "1h") }, text)));
  const until = since && h("label", null, "until ", h("input", { type: "datetime-local", name: "to", value: now.to, onchange: () => apply() }));
  const slower = kind === "slow" ? h("input", { type: "text", name: "slower", class: "short", "aria-label": "Slower than", title: "Slower than", value: now.slower || "500ms" }) : null;
  const form = h("form", { class: "find many", onsubmit: (event) => {
    event.preventDefault();
    apply();
  } }, since, until, slower ? h("label", null, "slower than ", slower) : null, inputs, h("button", { class: "primary" }, "Search"), now.to || FIELDS.some(([key]) => now[key]) ? h("a", { href: address("requests", "", { show: kind }) }, "Clear") : null);
  place.append(heading("Requests"), tabs.element, form);

  function apply() {
    const next = address("requests", "", { show: kind, ...Object.fromEntries([...new FormData(form)].map(([key, value]) => [key, value.trim()])) });
    if (next === location.hash) load();
    else location.hash = next;
  }

  let load = () => {};
  if (kind === "open") return showOpen(place, now);
  const requests = finishedRequests("Finished requests", { slowest: kind === "slow", nothing: `No ${kind === "finished" ? "" : `${kind} `}request in this time matches.` });
  place.append(requests.element);
  load = () => requests.load({ ...now, ...times(now.from || "1h", now.to), state: kind === "failed" ? "failed" : "", slower: kind === "slow" ? now.slower || "500ms" : "" });
  load();
  return () => {};
}

/** The time that is searched: it ends now, or at a time of the reader's zone. */
function times(span, until) {
  const end = Date.parse(until);
  return Number.isNaN(end) ? { from: `-${span}`, to: "" } : { from: new Date(end - Number.parseInt(span, 10) * UNITS[span.at(-1)]).toISOString(), to: new Date(end).toISOString() };
}

function showOpen(place, now) {
  const errors = h("div");
  const wanted = (row) => ["service", "client", "principal", "worker"].every((key) => !now[key] || String(row[key] || "").includes(now[key])) && (!now.id || [row.request, row.client_id, printable(row.client_id)].includes(now.id));
  const requests = table({
    caption: "Open requests",
    key: (row) => String(row.request),
    sort: "age",
    descending: true,
    nothing: empty("No request is open. Finished ones are under Finished. Make one:", cli('call upper "hello, world"')),
    columns: [
      { key: "request", title: "Request", grow: 22, cell: (row) => requestLink(row.request) },
      { key: "service", title: "Service", grow: 28, cell: (row) => serviceLink(row.service) },
      { key: "state", title: "State", cell: (row) => state(row.state) },
      { key: "age", title: "Age", number: true, sort: (row) => row.age_us, cell: (row) => duration(row.age_us) },
      { key: "why", title: "Why", grow: 50, long: true, cell: (row) => progressBar(row.progress) || row.why },
      { key: "group", title: "Group", grow: 15, wide: true, extra: true },
      { key: "attempts", title: "Attempts", number: true, wide: true, extra: true, cell: (row) => count(row.attempts) },
      { key: "client", title: "Client", wide: true },
      { key: "worker", title: "Worker", wide: true },
      { key: "protocol", title: "Protocol", wide: true },
      { key: "action", title: "", actions: true, make: (row) => ({ element: h("button", { type: "button", class: "small", hidden: row.protocol === "job", onclick: () => cancelRequest(row.request) }, "Cancel"), update() {} }) },
    ],
  });
  place.append(errors, requests.element);
  return poll(() => "/v1/requests", (rows) => requests.set(rows.filter(wanted)), errors);
}
