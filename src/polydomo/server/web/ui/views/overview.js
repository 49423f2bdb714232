// What is wrong, and why; then how the broker does; then what happened last.

import { h, put, setText } from "../dom.js";
import { rangeOf } from "../charts/range.js";
import { ago, count, plural } from "../format.js";
import { TILES, charts, figuresOf, tiles } from "../history.js";
import { address } from "../pages.js";
import { cli, empty, name, section, sign } from "../parts.js";
import { poll } from "../poll.js";
import { eventLine } from "./events.js";

export const title = "Overview";

// kind of a problem -> [what it is called, the address where something can be done about it, what the link says]
const KINDS = {
  failing: ["failing", (row) => address("service", row.service), "Look"],
  "no-workers": ["no worker", (row) => address("service", row.service), "Look"],
  paused: ["paused", (row) => address("service", row.service), "Resume"],
  drained: ["drained", (row) => address("service", row.service), "Resume"],
  "queue-growing": ["queue grows", (row) => address("service", row.service), "Look"],
  "dead-jobs": ["dead jobs", (row) => address("jobs", "", { state: "dead", service: row.service }), "Look"],
  "failed-flows": ["failed flow", (row) => (row.count === 1 ? address("run", row.flow) : address("flows", "", { state: "failed" })), "Look"],
  "lost-workers": ["lost workers", (row) => address("service", row.service, { tab: "workers" }), "Look"],
  throttled: ["throttled", () => address("clients"), "Clients"],
  memory: ["memory", () => address("clients"), "Clients"],
  store: ["job store", () => address("jobs"), "Jobs"],
  journal: ["journal", () => address("logs"), "Logs"],
  processes: ["processes", () => address("events"), "Events"],
  stopping: ["stopping", () => address("requests"), "Open requests"],
};
const SHOWN = 8;

export function show(place, _parameter, query) {
  const verdict = h("p", { class: "verdict", role: "status" }, "Looking …");
  const list = h("ul", { class: "problems", hidden: true });
  const problemErrors = h("div");
  const numbers = tiles(TILES);
  const start = h("div");
  const events = h("ol", { class: "steps" });
  const eventErrors = h("div");
  let all = false;
  const history = charts("", rangeOf(query.get("range")), (range) => window.history.replaceState(null, "", address("overview", "", { range: range.key })), (points) => {
    numbers.set(figuresOf(points));
    const used = points.some((point) => point.workers || point.requests || point.queue);
    put(start, used ? null : firstSteps());
  });
  place.append(h("h1", { class: "hidden" }, "Overview"), problemErrors, verdict, list, start,
    h("div", { class: "heading" }, h("h2", null, "The broker"), h("div", { class: "actions" }, history.picker)), numbers.element, history.element,
    section("Recent events", eventErrors, events, h("p", null, h("a", { href: "#/events" }, "All events"))));

  function showProblems(found) {
    const rows = found.problems;
    const worst = rows.some((row) => row.severity === "error") ? "bad" : rows.length ? "warn" : "good";
    verdict.className = `verdict ${worst}`;
    setText(verdict, rows.length ? plural(rows.length + (found.more || 0), "problem") : "✓ Nothing is wrong");
    list.hidden = !rows.length;
    const shown = all || rows.length === SHOWN + 1 ? rows : rows.slice(0, SHOWN);
    const rest = rows.length - shown.length;
    put(list, shown.map(problem), rest ? h("li", { class: "problem more" }, h("button", { type: "button", onclick: () => { all = true; showProblems(found); } }, `Show ${count(rest)} more`)) : null);
  }

  const ends = [
    history.end,
    poll(() => "/v1/problems", showProblems, problemErrors, 5000),
    poll(() => "/v1/events", (rows) => put(events, rows.length ? rows.slice(-12).reverse().map(eventLine) : h("li", null, "No worker or service has come or gone yet.")), eventErrors, 5000),
  ];
  return () => ends.forEach((end) => end());
}

function problem(row) {
  const [word, href, act] = KINDS[row.kind] || [row.kind, () => "#/overview", "Look"];
  return h("li", { class: "problem", dataset: { kind: row.kind } },
    sign(row.severity === "error" ? "bad" : "warn", word),
    row.service ? name(row.service, address("service", row.service)) : h("span"),
    h("span", { class: "cause", title: row.cause || undefined }, row.text, row.cause ? h("span", { class: "note" }, ` ${row.cause}`) : null, row.since ? h("span", { class: "note" }, ` (${ago(row.since)})`) : null),
    h("a", { class: "button small", href: href(row) }, act));
}

/** The commands with which a new broker gets its first service. */
function firstSteps() {
  return h("div", { class: "card" }, empty("No worker has connected yet. Start one, then call it:", cli("work upper -- tr a-z A-Z"), cli('call upper "hello, world"'), `curl -d "hello, curl" ${location.origin}/v1/call/upper`));
}
