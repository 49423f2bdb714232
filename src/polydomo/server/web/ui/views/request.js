// The history of one request as a waterfall: its waits, its workers and its outcome.

import { cancelRequest } from "../actions.js";
import { waterfall } from "../charts/waterfall.js";
import { h, put } from "../dom.js";
import { get } from "../feed.js";
import { bytes, clock, duration, printable } from "../format.js";
import { address } from "../pages.js";
import { explain, facts, heading, jobLink, progressBar, section, serviceLink, state, time } from "../parts.js";

export const title = "Request";

export function show(place, id) {
  const story = h("div", null, h("p", null, "Loading …"));
  const actions = h("div", { class: "actions" });
  place.append(h("p", { class: "back" }, h("a", { href: "#/requests" }, "← Requests")), heading(h("bdi", { class: "mono", title: id }, id), actions), story);
  let ended = false;
  let timer = 0;

  async function load() {
    try {
      const found = await get(`/v1/requests/${encodeURIComponent(id)}`);
      if (ended) return;
      const open = !found.outcome;
      put(actions, open && found.protocol !== "job" ? h("button", { type: "button", onclick: () => cancelRequest(found.request || id) }, "Cancel") : null, h("a", { class: "button", href: address("logs", "", { request: found.request || id }) }, "Its log records"));
      const spans = open ? openSpans(found) : (found.spans || []).filter((span) => span.end_us !== undefined);
      put(story, details(found), spans.length ? waterfall(spans) : null, steps(found));
      if (open) timer = setTimeout(load, 1000);
    } catch (error) {
      if (!ended) put(story, explain(error));
    }
  }

  load();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

/** An open request has no journal rows yet: what it did is known from its state. */
function openSpans(found) {
  if (found.age_us === undefined) return found.spans || [];
  const held = found.worker ? found.age_us - found.state_us : found.age_us;
  return [{ name: "queued", kind: "queued", start_us: 0, end_us: held }, found.worker ? { name: `worker ${found.worker}`, kind: "running", start_us: held, end_us: found.age_us } : null].filter(Boolean);
}

function details(found) {
  return facts([
    ["Service", found.service ? serviceLink(found.service) : ""],
    [found.outcome ? "Outcome" : "State", found.outcome ? [state(found.outcome), found.reason ? ` ${found.reason}` : ""] : state(found.state || "open")],
    ["Why", found.why],
    ["Progress", progressBar(found.progress)],
    ["Accepted", found.accepted ? clock(found.accepted) : ""],
    [found.outcome ? "Total" : "Age", duration(found.total_us ?? found.age_us)],
    ["Waited", found.wait_us === undefined ? "" : duration(found.wait_us)],
    ["Attempts", found.attempts],
    ["Client", found.client ? h("a", { href: address("requests", "", { show: "finished", client: found.client }) }, `${found.client}${found.protocol ? ` (${found.protocol})` : ""}`) : ""],
    ["Client's id", found.client_id ? h("span", { class: "mono" }, printable(found.client_id)) : ""],
    ["Principal", found.principal],
    ["Group", found.group],
    ["Worker", found.worker],
    ["Framed size", found.request_bytes ? bytes(found.request_bytes) : ""],
    ["Job", found.job ? jobLink(found.job) : ""],
    ["Trace", found.trace ? h("span", { class: "mono" }, found.trace) : ""],
  ]);
}

function steps(found) {
  const lines = found.events || [];
  if (!lines.length) return null;
  return section("Events", h("ol", { class: "steps" }, lines.map((line) => h("li", null, line.time ? time(line.time) : h("time", null, duration(line.at_us)), h("span", null, line.text)))));
}
