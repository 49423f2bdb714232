// One service: its trends, its workers, and a form to call it.

import { h, put, setText, state } from "../dom.js";
import { call, data, get, text, watch } from "../feed.js";
import { count, duration, rate } from "../format.js";
import { pause, resume } from "../actions.js";
import { poll } from "../poll.js";
import { sparkline } from "../sparkline.js";
import { table } from "../table.js";
import { columns } from "./workers.js";

export const title = "Service";

const TRENDS = [
  ["Requests/s", "rate", rate, (row) => row.rate],
  ["p99", "p99", (us) => (us ? duration(us) : "–"), (row) => row.p99_us],
  ["Queue", "queued", count, (row) => row.queued],
  ["Failures/s", "failed", rate, (row) => row.failed_rate],
];

export function show(place, name) {
  const word = h("span");
  const trends = TRENDS.map(([title, series, format, value]) => {
    const line = sparkline(`${title} of the last two minutes`, series, 260, 64);
    const number = h("dd", null, "–");
    return { element: h("div", { class: "card" }, h("dt", null, title), number, line.element), update(row) {
      setText(number, format(value(row)));
      const history = data.history.get(name);
      if (history) line.draw(history[series], format);
    } };
  });
  const errors = h("div");
  const workers = table({ caption: `Workers of ${name}`, key: (row) => row.worker, sort: "worker", filter: (row) => `${row.worker} ${row.peer} ${row.state}`, nothing: "No worker offers this service.", columns: columns().filter((column) => column.key !== "services") });
  place.append(
    h("p", null, h("a", { href: "#/services" }, "← Services")),
    h("h1", null, name, " ", word),
    h("p", { class: "actions" }, h("button", { type: "button", onclick: () => pause(name) }, "Pause"), h("button", { type: "button", onclick: () => resume(name) }, "Resume")),
    h("dl", { class: "cards" }, trends.map((one) => one.element)),
    h("h2", null, "Call"), form(name),
    h("h2", null, "Workers"), errors, workers.element);
  const update = () => {
    const row = data.figures && data.figures.services.find((one) => one.name === name);
    if (!row) return put(word, data.figures ? state("unknown") : "");
    put(word, state(row.state));
    for (const one of trends) one.update(row);
  };
  update();
  const ends = [watch(update), poll(() => "/v1/workers", (rows) => workers.set(rows.filter((row) => row.services.includes(name))), errors)];
  return () => ends.forEach((end) => end());
}

function form(name) {
  const body = h("textarea", { rows: 3, "aria-label": "Body of the request", spellcheck: "false" });
  const answer = h("output", { class: "answer" });
  const schema = h("div");
  get(`/v1/schema/${encodeURIComponent(name)}`).then((found) => {
    if (found) put(schema, h("details", null, h("summary", null, "Schema"), h("pre", null, JSON.stringify(found, null, 2))));
  }).catch(() => {}); // most services have none
  return h("form", { class: "call", onsubmit: async (event) => {
    event.preventDefault();
    put(answer, "Waiting …");
    const began = performance.now();
    try {
      const reply = await call(name, [body.value], 30);
      const parts = [...reply.parts, reply.frames].map((frames) => h("pre", null, text(frames)));
      put(answer, parts, h("p", { class: "note" }, `${duration((performance.now() - began) * 1000)}, `, h("a", { href: `#/request/${encodeURIComponent(reply.request || "")}` }, "story")));
    } catch (error) {
      put(answer, h("p", { class: "error" }, error.message));
    }
  } }, body, schema, h("button", null, "Call"), answer);
}
