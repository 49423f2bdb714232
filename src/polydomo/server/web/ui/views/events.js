// Workers and services that came, went or changed their state.

import { h, put } from "../dom.js";
import { heading, name, serviceLink, state, time } from "../parts.js";
import { poll } from "../poll.js";

export const title = "Events";

export function eventLine(one) {
  return h("li", null, time(one.time), h("span", { class: "event" }, `${one.kind} `, one.kind === "service" ? serviceLink(one.name) : name(one.name), state(one.state), h("span", { class: "note" }, one.cause)));
}

export function show(place) {
  const errors = h("div");
  const list = h("ol", { class: "steps" });
  place.append(heading("Events"), h("p", { class: "note" }, "The last workers and services that came, went or changed their state, the newest first."), errors, list);
  return poll(() => "/v1/events", (rows) => put(list, rows.length ? [...rows].reverse().map(eventLine) : h("li", null, "Nothing has happened since the broker started.")), errors, 3000);
}
