// Pages that are needed less often.

import { h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { facts, heading, section } from "../parts.js";
import { poll } from "../poll.js";

export const title = "More";

const PAGES = [
  ["traffic", "Traffic", "A diagram of who calls which service, and which workers serve it."],
  ["live", "Live", "Requests as they end, one lane per worker."],
  ["workers", "Workers", "Workers with their slots, failures and latency."],
  ["clients", "Clients", "Connections that are not workers, and what each waits for."],
  ["topics", "Topics", "Published topics and their last values."],
  ["catalog", "Catalog", "Services of all protocols, and those that registered over DBP."],
  ["bridges", "Bridges", "Connections to other brokers."],
  ["events", "Events", "Workers and services that came, went or changed their state."],
  ["schedules", "Schedules", "Jobs that the broker submits by the clock."],
  ["try", "Try", "Call a service from this page."],
];

export function show(place) {
  const errors = h("div");
  const status = h("div");
  place.append(heading("More"),
    h("ul", { class: "links" }, PAGES.map(([page, text, note]) => h("li", null, h("a", { class: "card", href: `#/${page}` }, h("strong", null, text), h("span", null, note))))),
    section("This broker", errors, status),
    section("For programs", h("p", null, h("a", { href: "/metrics" }, "/metrics"), " for Prometheus, ", h("a", { href: "/openapi.json" }, "/openapi.json"), ", ", h("a", { href: "/v1/status" }, "/v1/status"))));
  return poll(() => "/v1/status", (found) => {
    const memory = found.memory || {};
    const failed = Object.entries(found.failed || {}).map(([outcome, number]) => `${count(number)} ${outcome}`).join(", ");
    status.replaceChildren(facts([
      ["Address", found.address], ["Up", duration(found.uptime_us)], ["Connections", count(found.connections)], ["Workers", count(found.workers)], ["Services", count(found.services)],
      ["Open requests", count(found.open_requests)], ["Answered", count(found.answered)], ["Failed", failed || "0"], ["Refused", count(found.refused)], ["Protocol violations", count(found.violations)],
      ["Memory for peers", `${bytes(memory.total_bytes)}${memory.limit_bytes ? ` of ${bytes(memory.limit_bytes)}` : ""}`], ["Received", bytes(found.received_bytes)], ["Sent", bytes(found.sent_bytes)],
    ]));
  }, errors, 5000);
}
