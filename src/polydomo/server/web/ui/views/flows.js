// Flows: runs of graphs of calls, the newest first.

import { h } from "../dom.js";
import { bar } from "../charts/graph.js";
import { clock, count, duration } from "../format.js";
import { address } from "../pages.js";
import { cli, empty, filters, heading, name, state } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Flows";

const STATES = ["", "running", "done", "failed", "cancelled"];
const MOST = 500;

export function show(place, _parameter, query) {
  const chosen = STATES.includes(query.get("state")) ? query.get("state") : "";
  const errors = h("div");
  const tabs = filters("State of the flows", STATES.map((key) => ({ key, title: key ? key[0].toUpperCase() + key.slice(1) : "All", href: address("flows", "", { state: key }) })));
  tabs.select(chosen);
  const flows = table({
    caption: "Flows",
    key: (row) => row.flow,
    sort: "created",
    descending: true,
    filter: (row) => `${row.name} ${row.flow} ${row.key} ${row.state}`,
    nothing: empty(chosen ? "No flow is in this state." : "No flow has been started. Start one from a file:", chosen ? "" : cli("flow start nightly.toml")),
    columns: [
      { key: "name", title: "Flow", grow: 50, cell: (row) => name(row.name || row.flow, address("run", row.flow)) },
      { key: "state", title: "State", cell: (row) => state(row.state, row.reason) },
      { key: "progress", title: "Progress", sort: (row) => row.done / row.total, make: progress },
      { key: "failed", title: "Failed", number: true, hint: "Nodes that are dead, skipped or cancelled", sort: failed, cell: (row) => (failed(row) ? h("span", { class: "error" }, count(failed(row))) : "0") },
      { key: "created", title: "Started", cell: (row) => clock(row.created) },
      { key: "took", title: "Took", number: true, sort: took, cell: (row) => duration(took(row)) },
      { key: "key", title: "Key", grow: 25, wide: true, cell: (row) => row.key },
      { key: "flow", title: "Id", wide: true, extra: true, cell: (row) => name(row.flow, address("run", row.flow)) },
      { key: "reason", title: "Reason", grow: 25, long: true, cell: (row) => row.reason },
    ],
  });
  const limit = h("p", { class: "note", hidden: true }, `The newest ${MOST} are shown.`);
  place.append(heading("Flows"), tabs.element, errors, flows.element, limit);
  return poll(() => `/v1/flows?${new URLSearchParams(Object.entries({ limit: MOST, state: chosen }).filter(([, value]) => value))}`, (rows) => {
    flows.set(rows);
    limit.hidden = rows.length < MOST;
  }, errors);
}

const failed = (row) => row.dead + row.skipped + row.cancelled;
const took = (row) => (Date.parse(row.ended || new Date().toISOString()) - Date.parse(row.created)) * 1000;

function progress(row) {
  const meter = bar();
  const text = h("span", { class: "note" });
  return { element: h("span", { class: "line" }, meter.element, text), update(next) {
    meter.update(next, next.total);
    text.textContent = `${count(next.done)} of ${count(next.total)}`;
  } };
}
