// Schedules: when each runs next, in its own time zone, and a form to add one.

import { ask, removeSchedule, runSchedule } from "../actions.js";
import { h, put } from "../dom.js";
import { get, serviceNames } from "../feed.js";
import { clock, duration, inZone } from "../format.js";
import { address } from "../pages.js";
import { cli, empty, explain, heading, name, section, serviceLink, suggestions } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Schedules";

export function show(place, chosen) {
  const errors = h("div");
  const schedules = table({
    caption: "Schedules",
    key: (row) => row.name,
    sort: "name",
    nothing: empty("No schedules. Add one below, or with:", cli('schedule add nightly "30 2 * * *" backup all --zone Europe/Berlin')),
    columns: [
      { key: "name", title: "Schedule", grow: 35, cell: (row) => name(row.name, address("schedules", row.name)) },
      { key: "service", title: "Service", grow: 35, cell: (row) => (row.service ? serviceLink(row.service) : "") },
      { key: "when", title: "When", cell: (row) => row.when },
      { key: "next", title: "Next run", long: true, cell: (row) => row.problem || (row.next ? inZone(row.next, row.zone) : "–") },
      { key: "in", title: "In", number: true, cell: (row) => (row.next ? duration(Math.max(0, Date.parse(row.next) - Date.now()) * 1000) : "–") },
      { key: "missed", title: "Missed runs", wide: true },
      { key: "action", title: "", actions: true, make: (row) => ({ element: h("span", { class: "actions" }, h("button", { type: "button", class: "small", onclick: () => runSchedule(row.name) }, "Run now"), h("button", { type: "button", class: "small", onclick: () => removeSchedule(row.name) }, "Remove")), update() {} }) },
    ],
  });
  let end = () => {};
  const load = () => {
    end();
    end = poll(() => "/v1/schedules", (rows) => schedules.set(rows), errors, 5000);
  };
  place.append(heading("Schedules"), chosen ? runs(chosen) : "", errors, schedules.element, section("Add a schedule", form(load)));
  load();
  return () => end();
}

/** The next runs of one schedule, in its own zone and in the reader's. */
function runs(chosen) {
  const list = h("div", null, "Loading …");
  get(`/v1/schedules/${encodeURIComponent(chosen)}`).then((row) => put(list, row.problem ? h("p", { class: "error" }, row.problem) : null,
    row.runs && row.runs.length ? h("ol", { class: "steps runs" }, row.runs.map(({ time }) => h("li", null, h("time", null, inZone(time, row.zone)), h("span", { class: "note" }, `in ${duration(Math.max(0, Date.parse(time) - Date.now()) * 1000)}, ${clock(time)} here`)))) : empty("It does not run again.")))
    .catch((error) => put(list, explain(error)));
  return h("section", { class: "card" }, h("div", { class: "heading" }, h("h2", null, "Next runs of ", h("bdi", null, chosen)), h("a", { href: "#/schedules" }, "Close")), list);
}

function form(added) {
  const zones = suggestions("zones", Promise.resolve(Intl.supportedValuesOf ? Intl.supportedValuesOf("timeZone") : []));
  const services = suggestions("services", serviceNames());
  const note = h("p", { class: "error", role: "alert" });
  const field = (name, title, more) => h("label", null, title, h("input", { type: "text", name, autocomplete: "off", spellcheck: "false", ...more }));
  const element = h("form", { class: "card form", onsubmit: async (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(element));
    const { body, ...rest } = given;
    put(note);
    try {
      await ask("polydomo.schedule", Object.fromEntries(Object.entries(rest).filter(([, value]) => value)), body);
      element.reset();
      added();
    } catch (error) {
      put(note, error.message);
    }
  } },
  field("name", "Name", { required: true, placeholder: "nightly" }),
  field("service", "Service", { required: true, list: "services" }),
  field("when", "When", { required: true, placeholder: "30 2 * * *  or  every 30s" }),
  field("zone", "Time zone", { list: "zones", value: Intl.DateTimeFormat().resolvedOptions().timeZone }),
  h("label", null, "Missed runs", h("select", { name: "missed" }, h("option", { value: "once" }, "run once"), h("option", { value: "skip" }, "skip"))),
  h("label", { class: "whole" }, "Body", h("textarea", { name: "body", rows: 2, spellcheck: "false" })), zones, services,
  h("div", { class: "actions whole" }, h("button", { class: "primary" }, "Add"), note));
  return element;
}
