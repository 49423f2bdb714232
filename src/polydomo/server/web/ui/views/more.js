// The broker itself: its address, its totals, and what programs read.

import { h } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { facts, heading, section } from "../parts.js";
import { poll } from "../poll.js";

export const title = "This broker";

export function show(place) {
  const errors = h("div");
  const status = h("div");
  place.append(heading(title), errors, status,
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
