// The catalog: services that registered themselves over DBP, and the services of all other protocols.

import { h } from "../dom.js";
import { empty, heading, state } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Catalog";

export function show(place) {
  const errors = h("div");
  const entries = table({
    caption: "Catalog",
    key: (row) => row.name,
    sort: "name",
    filter: (row) => `${row.name} ${row.protocol} ${row.address}`,
    nothing: empty("The catalog is empty: no worker offers a service, and none registered over DBP."),
    columns: [
      { key: "name", title: "Service", grow: 40 },
      { key: "state", title: "State", cell: (row) => state(row.state || "ready", row.cause) },
      { key: "protocol", title: "Protocol", cell: (row) => row.protocol || "dbp" },
      { key: "address", title: "Address", wide: true, cell: (row) => row.address || row.ip || "–" },
      { key: "info", title: "Details", grow: 60, long: true, cell: (row) => details(row) },
    ],
  });
  place.append(heading("Catalog"), errors, entries.element);
  return poll(() => "/v1/catalog", (found) => entries.set(Array.isArray(found) ? found : Object.entries(found).map(([name, info]) => ({ name, ...info }))), errors, 5000);
}

function details(row) {
  const shown = [row.description, row.workers && (row.workers === 1 ? "1 worker" : `${row.workers} workers`)];
  const rest = Object.entries(row).filter(([name]) => !["name", "state", "protocol", "address", "ip", "description", "workers", "schema"].includes(name));
  if (rest.length) shown.push(JSON.stringify(Object.fromEntries(rest)));
  return shown.filter(Boolean).join(" · ") || "–";
}
