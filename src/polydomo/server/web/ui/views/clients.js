// Clients: who is connected, and what each waits for.

import { h, state } from "../dom.js";
import { count, duration } from "../format.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Clients";

export function show(place) {
  const errors = h("div");
  const clients = table({
    caption: "Clients",
    key: (row) => row.client,
    sort: "open_requests",
    descending: true,
    filter: (row) => `${row.client} ${row.state} ${row.protocol} ${row.peer} ${row.principal || ""}`,
    nothing: "No clients are connected.",
    columns: [
      { key: "client", title: "Client" },
      { key: "state", title: "State", cell: (row) => state(row.paused ? "paused" : row.state) },
      { key: "open_requests", title: "Open requests", number: true, cell: (row) => count(row.open_requests) },
      { key: "since", title: "Since", number: true, wide: true, sort: (row) => row.state_us, cell: (row) => duration(row.state_us) },
      { key: "protocol", title: "Protocol", cell: (row) => (row.dialect ? `${row.protocol} (${row.dialect})` : row.protocol) },
      { key: "principal", title: "Principal", wide: true, cell: (row) => row.principal || "–" },
      { key: "peer", title: "Address", wide: true },
      { key: "cause", title: "Cause", wide: true },
    ],
  });
  place.append(errors, clients.element);
  return poll(() => "/v1/clients", (rows) => clients.set(rows), errors);
}
