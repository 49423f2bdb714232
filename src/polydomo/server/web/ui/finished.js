// Finished requests from the journal, page by page: GET /v1/finished.

import { h, put } from "./dom.js";
import { get } from "./feed.js";
import { bytes, clock, count, duration, printable } from "./format.js";
import { empty, explain, requestLink, serviceLink, state } from "./parts.js";
import { table } from "./table.js";

const PAGE = 50;

/**
 * A list that `load(filter)` fills; `filter` is an object of the endpoint's parameters. `without` names columns to leave out;
 * with `slowest`, the slowest of a longer page come first.
 */
export function finishedRequests(caption, { without = [], slowest = false, nothing = "No request matches." } = {}) {
  let filter = {};
  let before = []; // the cursors of the pages that were turned, for the way back
  let next = null;
  let loads = 0;
  const errors = h("div");
  const older = h("button", { type: "button", onclick: () => { before.push(next); fetchPage(); } }, "Older →");
  const newer = h("button", { type: "button", onclick: () => { before.pop(); fetchPage(); } }, "← Newer");
  const found = h("span", { class: "note", role: "status" });
  const pager = h("p", { class: "pager", hidden: true }, newer, older, found);
  const rows = table({
    caption,
    key: (row) => row.request,
    sort: slowest ? "total_us" : undefined,
    descending: true,
    nothing: empty(nothing),
    columns: [
      { key: "request", title: "Request", grow: 25, cell: (row) => requestLink(row.request) },
      { key: "service", title: "Service", grow: 30, cell: (row) => serviceLink(row.service) },
      { key: "outcome", title: "Outcome", cell: (row) => state(row.outcome, row.reason) },
      { key: "time", title: "Ended", cell: (row) => clock(row.time) },
      { key: "total_us", title: "Total", number: true, cell: (row) => duration(row.total_us) },
      { key: "wait_us", title: "Waited", number: true, wide: true, cell: (row) => duration(row.wait_us) },
      { key: "run_us", title: "Ran", number: true, wide: true, cell: (row) => duration(row.run_us) },
      { key: "reason", title: "Reason", grow: 45, long: true, cell: (row) => row.reason },
      { key: "client", title: "Client", wide: true, cell: (row) => row.principal || row.client },
      { key: "worker", title: "Worker", wide: true, cell: (row) => row.worker },
      { key: "client_id", title: "Client's id", wide: true, extra: true, cell: (row) => printable(row.client_id || "").slice(0, 20) },
      { key: "request_bytes", title: "Framed size", number: true, wide: true, extra: true, cell: (row) => bytes(row.request_bytes) },
      { key: "attempts", title: "Attempts", number: true, wide: true, extra: true, cell: (row) => count(row.attempts) },
    ].filter((column) => !without.includes(column.key)),
  });

  async function fetchPage() {
    const mine = ++loads;
    const query = new URLSearchParams(Object.entries({ limit: slowest ? 4 * PAGE : PAGE, ...filter, before: before[before.length - 1] }).filter(([, value]) => value));
    try {
      const answer = await get(`/v1/finished?${query}`);
      if (mine !== loads) return;
      next = answer.next;
      put(errors, (answer.problems || []).map((text) => h("p", { class: "error" }, text)));
      rows.set(answer.requests);
      pager.hidden = !next && !before.length;
      newer.disabled = !before.length;
      older.disabled = !next;
      found.textContent = `Page ${before.length + 1}`;
    } catch (error) {
      if (mine !== loads) return;
      rows.set([]);
      put(errors, error.status === 404 ? empty("This broker keeps no journal, so finished requests cannot be shown. Start it with one:", "polydomo up --data polydomo-data") : explain(error));
    }
  }

  return {
    element: h("div", null, errors, rows.element, pager),
    load(parameters) {
      filter = parameters;
      before = [];
      return fetchPage();
    },
  };
}
