// Clients: who is connected, and what each waits for.

import { h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { address } from "../pages.js";
import { empty, heading, name, state } from "../parts.js";
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
    nothing: empty("No clients are connected."),
    columns: [
      { key: "client", title: "Client", cell: (row) => name(row.client, address("requests", "", { show: "finished", client: row.client })) },
      { key: "state", title: "State", cell: (row) => state(row.paused ? "throttled" : row.state, row.paused ? undefined : row.cause) },
      { key: "open_requests", title: "Open requests", number: true, cell: (row) => count(row.open_requests) },
      { key: "held_bytes", title: "Memory", number: true, wide: true, cell: (row) => bytes(row.held_bytes) },
      { key: "since", title: "Since", number: true, wide: true, sort: (row) => row.state_us, cell: (row) => duration(row.state_us) },
      { key: "protocol", title: "Protocol", cell: (row) => (row.dialect ? `${row.protocol} (${row.dialect})` : row.protocol) },
      { key: "principal", title: "Principal", wide: true, cell: (row) => row.principal },
      { key: "peer", title: "Address", grow: 50, long: true },
      { key: "cause", title: "Cause", grow: 50, wide: true },
    ],
  });
  place.append(heading("Clients"), errors, clients.element);
  return poll(() => "/v1/clients", (rows) => clients.set(rows), errors);
}
