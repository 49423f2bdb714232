// One job: its attempts and why they failed, what was sent and what came back.

import { cancelJob, dropDead, retryDead } from "../actions.js";
import { h, put } from "../dom.js";
import { get } from "../feed.js";
import { bytes, clock, duration } from "../format.js";
import { address } from "../pages.js";
import { empty, explain, facts, heading, progressBar, section, serviceLink, state } from "../parts.js";
import { table } from "../table.js";

export const title = "Job";

export function show(place, id) {
  const actions = h("div", { class: "actions" });
  const body = h("div", null, "Loading …");
  const attempts = table({
    caption: "Attempts",
    key: (row) => String(row.attempt),
    nothing: empty("No attempt has failed."),
    columns: [
      { key: "attempt", title: "Attempt", cell: (row) => String(row.attempt) },
      { key: "started", title: "Started", cell: (row) => clock(row.started) },
      { key: "ran", title: "Ran", number: true, cell: (row) => (row.ended ? duration((Date.parse(row.ended) - Date.parse(row.started)) * 1000) : "–") },
      { key: "worker", title: "Worker", cell: (row) => row.worker || "" },
      { key: "outcome", title: "Outcome", cell: (row) => state(row.outcome) },
      { key: "reason", title: "Reason", grow: 100, long: true },
      { key: "waited_us", title: "Next after", number: true, wide: true, cell: (row) => (row.waited_us ? duration(row.waited_us) : "–") },
    ],
  });
  place.append(h("p", { class: "back" }, h("a", { href: "#/jobs" }, "← Jobs")), heading(h("bdi", { class: "mono", title: id }, id), actions), body);
  let ended = false;
  let timer = 0;
  let seen = "";

  async function load() {
    clearTimeout(timer);
    try {
      const job = await get(`/v1/jobs/${encodeURIComponent(id)}`);
      if (ended) return;
      const text = JSON.stringify(job);
      if (text !== seen) draw(job);
      seen = text;
      if (!job.ended) timer = setTimeout(load, 1000);
    } catch (error) {
      if (!ended) put(body, explain(error));
    }
  }

  function draw(job) {
    put(actions,
      job.state === "dead" ? [h("button", { type: "button", class: "primary", onclick: () => retryDead(id, load) }, "Retry"), h("button", { type: "button", onclick: () => dropDead(id, load) }, "Drop")] : null,
      job.ended ? null : h("button", { type: "button", onclick: () => cancelJob(id, load) }, "Cancel"),
      h("a", { class: "button", href: address("requests", "", { show: "finished", id, from: "7d" }) }, "Its requests"));
    attempts.set(job.story || []);
    put(body, h("p", { class: `verdict ${job.state === "dead" ? "bad" : job.state === "done" ? "good" : ""}` }, state(job.state), job.reason ? h("span", null, job.reason) : null),
      facts([
        ["Service", serviceLink(job.service)],
        ["Attempt", `${job.attempts + (job.state === "running")}${job.retries ? ` of ${job.retries.attempts}` : ""}`],
        ["Created", clock(job.created)],
        ["Started", job.started ? clock(job.started) : ""],
        ["Due", job.state === "delayed" ? clock(job.due) : ""],
        ["Ended", job.ended ? clock(job.ended) : ""],
        ["Expires", job.expires ? clock(job.expires) : ""],
        ["Worker", job.worker || ""],
        ["Key", job.key],
        ["Group", job.group],
        ["Priority", job.priority || ""],
        ["Schedule", job.schedule ? h("a", { href: "#/schedules" }, job.schedule) : ""],
        ["Flow", job.flow ? h("a", { href: address("run", job.flow) }, job.flow) : ""],
        ["Progress", job.ended ? null : progressBar(job.progress)],
        ["Run timeout", job.timeout_us ? duration(job.timeout_us) : ""],
        ["Principal", job.principal],
        ["Trace", job.trace],
      ]),
      section("Failed attempts", attempts.element),
      section("Body", content(job.body, job.body_bytes)),
      job.ended ? section("Result", content(job.result, job.result_bytes)) : null);
  }

  load();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

/** A preview of a body, by its type. */
function content(found, size) {
  if (!found) return empty(size ? `${bytes(size)}, no longer stored.` : "None.");
  const note = h("p", { class: "note" }, `${found.type}, ${bytes(found.size_bytes)}${found.frames > 1 ? `, ${found.frames} frames` : ""}${found.cut ? "; the beginning is shown" : ""}`);
  return [note, h("pre", null, found.type === "application/json" && !found.cut ? pretty(found.preview) : found.preview)];
}

function pretty(text) {
  if (/[0-9]{16}/.test(text)) return text; // parsing would round large numbers
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
