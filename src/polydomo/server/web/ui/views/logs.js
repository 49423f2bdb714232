// Log records of all services, newest first, with filters.

import { h, put } from "../dom.js";
import { data, get, subscribe, text } from "../feed.js";
import { clock } from "../format.js";
import { explain, poll } from "../poll.js";

export const title = "Logs";

const LEVELS = ["debug", "info", "warning", "error", "critical"];
const MOST = 500;

export function show(place) {
  let records = [];
  let paused = false;
  let drawn = 0;
  const level = h("select", { "aria-label": "Lowest level", onchange: render }, LEVELS.map((name) => h("option", { value: name, selected: name === "info" }, name)));
  const words = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter log records", oninput: render });
  const hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    paused = !paused;
    hold.setAttribute("aria-pressed", String(paused));
    hold.textContent = paused ? "Continue" : "Pause";
    render();
  } }, "Pause");
  const list = h("ol", { class: "logs" });
  place.append(h("div", { class: "tools" }, level, words, hold), list);

  function render() {
    if (paused) return;
    const lowest = LEVELS.indexOf(level.value);
    const wanted = words.value.toLowerCase();
    const shown = records.filter((one) => LEVELS.indexOf(one.level) >= lowest && `${one.service} ${one.message} ${one.request || ""} ${JSON.stringify(one.fields)}`.toLowerCase().includes(wanted));
    put(list, shown.length ? shown.slice(-MOST).reverse().map(line) : h("li", { class: "empty" }, "No log records. Add polydomo.logs.Handler to a worker's logger to collect them here."));
  }

  function take(record) {
    records.push(record);
    if (records.length > MOST * 2) records = records.slice(-MOST);
    if (!drawn) drawn = requestAnimationFrame(() => { drawn = 0; render(); });
  }

  if (data.session && !data.session.subscribe) {
    const errors = h("div");
    place.append(errors);
    return poll(() => "/v1/logs", (found) => { records = found; render(); }, errors);
  }
  get("/v1/logs").then((found) => { records = [...found, ...records]; render(); }).catch((error) => put(list, h("li", null, explain(error))));
  const end = subscribe("log.", (_topic, frames) => take(JSON.parse(text(frames))));
  return end;
}

/** The same fields as `polydomo logs`: each as name=value, and the traceback of an exception in lines of its own. */
function line(record) {
  const id = record.request;
  const { exception, ...fields } = record.fields || {};
  const values = Object.entries(fields).map(([name, value]) => h("span", { class: "field" }, `${name}=${typeof value === "string" ? value : JSON.stringify(value)}`));
  return h("li", { class: `log ${/^[a-z]+$/.test(record.level) ? record.level : ""}` },
    h("time", null, clock(record.time)), h("span", { class: "level" }, record.level), h("span", { class: "service" }, record.service),
    id ? h("a", { class: "request", href: `#/request/${encodeURIComponent(id)}` }, id) : null,
    h("span", { class: "message" }, record.message, values, exception ? h("pre", null, String(exception)) : null));
}
