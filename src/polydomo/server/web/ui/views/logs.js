// Log records of all services, newest first, with filters. Each line has the fields that `polydomo logs` prints.

import { h, put } from "../dom.js";
import { data, get, subscribe, text } from "../feed.js";
import { clock } from "../format.js";
import { address } from "../pages.js";
import { empty, explain, heading, name, requestLink, toggle } from "../parts.js";
import { poll } from "../poll.js";

export const title = "Logs";

const LEVELS = ["debug", "info", "warning", "error", "critical"];
const MOST = 500;

export function show(place, _parameter, query) {
  place.append(heading("Logs"));
  return logList(place, { service: query.get("service") || "", level: query.get("level") || "info", text: query.get("text") || "", request: query.get("request") || "" }, true);
}

/** The records that match a filter, and controls to change it. With `linked`, the filter is part of the address. */
export function logList(place, filter, linked = false) {
  let records = [];
  let following = true;
  let drawn = 0;
  let loads = 0;
  const level = h("select", { "aria-label": "Lowest level", onchange: change }, LEVELS.map((one) => h("option", { value: one, selected: one === filter.level }, one)));
  const service = linked ? h("input", { type: "text", placeholder: "Service", "aria-label": "Service", value: filter.service, autocomplete: "off", spellcheck: "false", onchange: change }) : null;
  const words = h("input", { type: "search", placeholder: "Text", "aria-label": "Filter log records", title: "Filter (/)", value: filter.text || "", oninput: change });
  const follow = toggle("Following", "Follow", true, (on) => { following = on; if (on) load(); });
  const about = filter.request ? h("span", { class: "note" }, "of request ", h("bdi", null, filter.request), " ", h("a", { href: "#/logs" }, "Show all")) : null;
  const list = h("ol", { class: "logs" });
  const blank = h("div");
  place.append(h("div", { class: "tools" }, level, service, words, follow, about), list, blank);

  function change() {
    filter = { ...filter, level: level.value, service: service ? service.value.trim() : filter.service, text: words.value.trim() };
    if (linked) window.history.replaceState(null, "", address("logs", "", { ...filter, level: filter.level === "info" ? "" : filter.level }));
    load();
  }

  function matches(one) {
    const wanted = (filter.text || "").toLowerCase();
    return LEVELS.indexOf(one.level) >= LEVELS.indexOf(filter.level) && (!filter.service || one.service === filter.service) && (!filter.request || one.request === filter.request) &&
      (!wanted || `${one.message} ${JSON.stringify(one.fields)}`.toLowerCase().includes(wanted));
  }

  function render() {
    const shown = records.slice(-MOST);
    put(list, shown.reverse().map(line));
    put(blank, shown.length ? null : nothing());
  }

  function nothing() {
    if (filter.service || filter.text || filter.request || filter.level !== "info") return empty("No log record matches.");
    return empty("No log records. Publish those of a Python program, or the standard error of any program:", `logging.getLogger().addHandler(polydomo.logs.Handler("${location.protocol === "https:" ? "tls+tcp" : "tcp"}://${location.host}", service="billing"))`, "polydomo work NAME --publish-stderr -- COMMAND");
  }

  function take(record) {
    if (!following || !matches(record) || records.some((one) => one.record === record.record && one.time === record.time)) return;
    records.push(record);
    if (records.length > MOST * 2) records = records.slice(-MOST);
    if (!drawn) drawn = requestAnimationFrame(() => { drawn = 0; render(); });
  }

  const path = () => `/v1/logs?${new URLSearchParams(Object.entries({ most: String(MOST), level: filter.level, service: filter.service, request: filter.request, text: filter.text }).filter(([, value]) => value))}`;

  async function load() {
    const mine = ++loads;
    try {
      const found = await get(path());
      if (mine !== loads) return;
      records = found.filter(matches);
      render();
    } catch (error) {
      if (mine === loads) put(blank, explain(error));
    }
  }

  if (data.session && !data.session.subscribe) return poll(path, (found) => { if (following) { records = found.filter(matches); render(); } }, blank);
  load();
  const end = subscribe("log.", (_topic, frames) => take(JSON.parse(text(frames))));
  return () => {
    loads += 1;
    end();
  };
}

/** The same fields as `polydomo logs`: each as name=value, and the traceback of an exception in lines of its own. */
function line(record) {
  const { exception, ...fields } = record.fields || {};
  const values = Object.entries(fields).map(([key, value]) => [" ", h("span", { class: "field" }, `${key}=${typeof value === "string" ? value : JSON.stringify(value)}`)]);
  const request = record.request ? requestLink(record.request) : h("span");
  request.classList.add("request");
  return h("li", { class: `log at-${LEVELS.includes(record.level) ? record.level : "info"}` },
    h("time", { title: record.time }, clock(record.time, true)), h("span", { class: "level" }, record.level), name(record.service),
    h("span", { class: "message" }, record.message, values, exception ? h("pre", null, String(exception)) : null), request);
}
