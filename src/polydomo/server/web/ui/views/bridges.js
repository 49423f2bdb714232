// Bridges to other brokers, and peers that connected or disconnected recently.

import { h, put, state } from "../dom.js";
import { data, watch } from "../feed.js";
import { clock, count } from "../format.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Bridges";

export function show(place) {
  const errors = h("div");
  const bridges = table({
    caption: "Bridges",
    key: (row) => row.worker,
    sort: "worker",
    nothing: "No bridge is open. Join two brokers with: polydomo up --bridge tcp://OTHER:5246",
    columns: [
      { key: "worker", title: "Bridge" },
      { key: "state", title: "State", cell: (row) => state(row.state) },
      { key: "peer", title: "Address" },
      { key: "held", title: "Requests there", number: true, cell: (row) => count(row.held) },
      { key: "done", title: "Answered", number: true, cell: (row) => count(row.done) },
      { key: "credit", title: "Window left", number: true, wide: true, cell: (row) => count(row.credit) },
    ],
  });
  const events = h("ol", { class: "steps" });
  place.append(h("h1", null, "Bridges"), errors, bridges.element, h("h2", null, "Recent events"), events);
  const update = () => data.figures && put(events, [...data.figures.events].reverse().map((one) => h("li", null, h("time", null, clock(one.time)), " ", one.name, " ", state(one.state), " ", one.cause)));
  update();
  const ends = [watch(update), poll(() => "/v1/workers", (rows) => bridges.set(rows.filter((row) => row.protocol === "bridge")), errors)];
  return () => ends.forEach((end) => end());
}
