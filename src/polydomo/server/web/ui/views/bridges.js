// Bridges to other brokers.

import { h } from "../dom.js";
import { count } from "../format.js";
import { empty, heading, state } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Bridges";

export function show(place) {
  const errors = h("div");
  const bridges = table({
    caption: "Bridges",
    key: (row) => row.worker,
    sort: "worker",
    nothing: empty("No bridge is open. Join two brokers with:", "polydomo up --bridge tcp://OTHER:5246"),
    columns: [
      { key: "worker", title: "Bridge" },
      { key: "state", title: "State", cell: (row) => state(row.state, row.cause) },
      { key: "peer", title: "Address", grow: 100, long: true },
      { key: "held", title: "Requests there", number: true, cell: (row) => count(row.held) },
      { key: "done", title: "Answered", number: true, cell: (row) => count(row.done) },
      { key: "credit", title: "Window left", number: true, wide: true, cell: (row) => count(row.credit) },
    ],
  });
  place.append(heading("Bridges"), errors, bridges.element);
  return poll(() => "/v1/workers", (rows) => bridges.set(rows.filter((row) => row.protocol === "bridge")), errors);
}
