// One service: how it does, why it fails, its workers, requests, logs, limits and schema, and a form to call it.

import { serviceActions } from "../actions.js";
import { rangeOf } from "../charts/range.js";
import { h, put } from "../dom.js";
import { get } from "../feed.js";
import { finishedRequests } from "../finished.js";
import { ago, bytes, count, duration } from "../format.js";
import { serviceState } from "../health.js";
import { TILES, charts, figuresOf, tiles } from "../history.js";
import { address } from "../pages.js";
import { cli, empty, explain, facts, filters, heading, limitsText, name, requestLink, section, state } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";
import { logList } from "./logs.js";
import { tryForm } from "./try.js";
import { workerTable } from "./workers.js";

export const title = "Service";

const TABS = { summary: ["Summary", showSummary], requests: ["Requests", showRequests], workers: ["Workers", showWorkers], logs: ["Logs", showLogs], settings: ["Limits and schema", showSettings], try: ["Try", showTry] };

export function show(place, service, query) {
  const tab = TABS[query.get("tab")] ? query.get("tab") : "summary";
  const word = h("span");
  const actions = serviceActions("");
  const notice = h("div");
  const tabs = filters("Parts of this service", Object.entries(TABS).map(([key, [title]]) => ({ key, title, href: address("service", service, { tab: key === "summary" ? "" : key }) })));
  tabs.select(tab);
  const body = h("div");
  place.append(h("p", { class: "back" }, h("a", { href: "#/services" }, "← Services")), heading([name(service), word], actions.element), notice, tabs.element, body);
  const end = TABS[tab][1](body, service, query);
  const stop = poll(() => `/v1/services/${encodeURIComponent(service)}`, ({ service: row, why }) => {
    actions.element.hidden = tabs.element.hidden = body.hidden = !row;
    put(notice, row ? [row.limits ? h("p", { class: "note" }, `Limit: ${limitsText(row.limits)}`) : null, diagnosis(row, why)] : unknown(service));
    put(word, row ? state(serviceState(row), row.cause) : null);
    if (row) actions.update(row);
  }, notice);
  return () => {
    stop();
    if (end) end();
  };
}

/** A sentence about a service that is not well, and what helps. `why` is the broker's word about its oldest waiting request. */
function diagnosis(row, why) {
  const wait = row.queued === 1 ? "1 request waits" : `${count(row.queued)} requests wait`;
  if (row.state === "paused") return warning(`Paused: ${wait} until it is resumed.`);
  if (row.state === "drained") return warning("Drained: new requests are rejected until it is resumed.");
  if (!row.queued || !why) return null;
  const help = / busy/.test(why) ? "More workers, or workers with more slots, shorten the wait." : row.limits && row.workers ? "Its limit decides how many run." : "";
  return warning(`${wait}, the oldest for ${duration(row.oldest_wait_us)}: ${why}. ${help}`);
}

const warning = (text) => h("p", { class: "verdict warn" }, text);

function unknown(service) {
  return empty(`There is no service “${service}”: no worker offers it, and no request waits for it.`, cli(`work ${/^[\w.-]+$/.test(service) ? service : "NAME"} -- COMMAND`));
}

function showSummary(place, service, query) {
  const numbers = tiles(TILES);
  const errors = h("div");
  const workerErrors = h("div");
  const history = charts(service, rangeOf(query.get("range")), (range) => window.history.replaceState(null, "", address("service", service, { range: range.key })), (points) => numbers.set(figuresOf(points)));
  const reasons = errorTable();
  const workers = workerTable(`Workers of ${service}`, false, empty("No worker offers this service."));
  place.append(h("div", { class: "heading" }, h("h2", null, "History"), h("div", { class: "actions" }, history.picker)), numbers.element, history.element,
    section("Errors by reason", errors, reasons.element), section("Workers", workerErrors, workers.element));
  const ends = [history.end, poll(() => `/v1/errors?service=${encodeURIComponent(service)}`, (rows) => reasons.set(rows), errors, 5000), pollWorkers(service, workers, workerErrors)];
  return () => ends.forEach((end) => end());
}

function errorTable() {
  return table({
    caption: "Errors by reason",
    key: (row) => `${row.outcome} ${row.reason}`,
    sort: "count",
    descending: true,
    nothing: empty("No request has failed since the broker started."),
    columns: [
      { key: "reason", title: "Reason", grow: 45 },
      { key: "outcome", title: "Outcome", cell: (row) => state(row.outcome) },
      { key: "count", title: "Count", number: true, cell: (row) => count(row.count) },
      { key: "last", title: "Last", cell: (row) => ago(row.last) },
      { key: "worker", title: "Last worker", cell: (row) => row.worker_name || row.worker },
      { key: "example", title: "Last example", grow: 55, long: true, cell: (row) => row.example },
      { key: "request", title: "Request", wide: true, cell: (row) => (row.request ? requestLink(row.request) : "–") },
    ],
  });
}

function pollWorkers(service, workers, errors) {
  return poll(() => "/v1/workers", (rows) => workers.set(rows.filter((row) => row.services.includes(service))), errors);
}

function showWorkers(place, service) {
  const errors = h("div");
  const gone = h("div");
  const workers = workerTable(`Workers of ${service}`, false, empty("No worker offers this service."));
  place.append(errors, workers.element, gone);
  const ends = [pollWorkers(service, workers, errors), poll(() => "/v1/gone", (found) => {
    const rows = (found.worker || []).filter((row) => (row.services || []).includes(service)).reverse();
    put(gone, rows.length ? section("Workers that left or were lost", h("ol", { class: "steps" }, rows.slice(0, 50).map((row) => h("li", null, h("time", null, ago(row.time)), h("span", { class: "event" }, name(row.name), state(row.state), h("span", { class: "note" }, row.cause)))))) : null);
  }, h("div"), 5000)];
  return () => ends.forEach((end) => end());
}

function showRequests(place, service, query) {
  const kind = query.get("show") || "failed";
  const link = (key) => address("service", service, { tab: "requests", show: key });
  const kinds = filters("Which requests", [["failed", "Failed"], ["slow", "Slowest"], ["finished", "All"]].map(([key, title]) => ({ key, title, href: link(key) })));
  kinds.select(kind);
  const requests = finishedRequests(`Requests of ${service}`, { without: ["service"], slowest: kind === "slow", nothing: kind === "failed" ? "No request of this service failed in the last hour." : "No request of this service ended in the last hour." });
  place.append(kinds.element, requests.element, h("p", null, h("a", { href: address("requests", "", { show: "finished", service }) }, "Search with more filters")));
  requests.load({ service, from: "-1h", state: kind === "failed" ? "failed" : "", slower: kind === "slow" ? "1ms" : "" });
  return null;
}

function showLogs(place, service) {
  return logList(place, { service, level: "debug" });
}

function showSettings(place, service) {
  const limits = h("div", null, "Loading …");
  const schema = h("div");
  place.append(section("Limits", limits), section("Schema", schema));
  const named = /^[\w.-]+$/.test(service) ? service : "NAME";
  get(`/v1/services/${encodeURIComponent(service)}`).then(({ service: row, limits: found }) => put(limits, facts([["running, started", limitsText(row && row.limits) || "no limit"], ...Object.entries(found || {}).map(([key, value]) => [key.replace(/_(us|bytes)$/, "").replaceAll("_", " "), limit(key, value)])]),
    empty("Limit how many of its requests run at the same time, or start in a time:", cli(`limit ${named} --running 5 --rate 90/10s --per group`)))).catch((error) => put(limits, explain(error)));
  get(`/v1/schema/${encodeURIComponent(service)}`).then((found) => put(schema, found ? h("pre", null, JSON.stringify(found, null, 2)) : empty("No worker describes its parameters. A Python function with type annotations does.")))
    .catch((error) => put(schema, explain(error)));
  return null;
}

function limit(key, value) {
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "object") return Object.entries(value).filter(([, one]) => one !== null && one !== "").map(([name, one]) => `${name.replaceAll("_", " ")} ${one}`).join(", ") || "none";
  return key.endsWith("_us") ? duration(value) : key.endsWith("_bytes") ? bytes(value) : typeof value === "number" ? count(value) : String(value);
}

function showTry(place, service) {
  place.append(tryForm(service));
  return null;
}
