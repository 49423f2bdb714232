// The parts that all pages are made of: names, states, commands to copy, empty states, tabs and headings.

import { h, put, setText } from "./dom.js";
import { clock, percent } from "./format.js";

/** A name that somebody else chose. It ends in an ellipsis if there is no room, and hovering shows all of it. */
export function name(text, href) {
  const inner = h("bdi", null, text);
  return h(href ? "a" : "span", { class: "name", href, title: text }, inner);
}

export const serviceLink = (service) => name(service, `#/service/${encodeURIComponent(service)}`);
export const requestLink = (request) => name(request, `#/request/${encodeURIComponent(request)}`);
export const jobLink = (job) => name(job, `#/job/${encodeURIComponent(job)}`);

/** What a state means, where its name alone does not say so. */
const MEANINGS = {
  registering: ["no worker offers it", "Requests wait, but no worker has offered this service yet"],
  ready: ["ready", "Ready for requests"],
  busy: ["busy", "It holds a request, or waits for a reply"],
  "all-busy": ["all busy", "Every worker holds a request"],
  late: ["late", "No heartbeat for three quarters of the allowed time"],
  lost: ["lost", "The connection broke, or heartbeats stopped"],
  left: ["left", "It disconnected normally"],
  paused: ["paused", "An operator paused it: requests are accepted and wait"],
  drained: ["drained", "An operator drained it: new requests are rejected"],
  draining: ["draining", "It finishes its requests and gets no new ones"],
  failing: ["failing", "Many of its requests fail"],
  delayed: ["delayed", "It waits for its time, or for its next attempt"],
  queued: ["queued", "It waits for a worker"],
  running: ["running", "A worker has it"],
  waiting: ["waiting", "It waits for others that it needs"],
  skipped: ["skipped", "A node that it needs has failed"],
  abandoned: ["abandoned", "Its client no longer waits, but a worker still runs it"],
  dead: ["dead", "It failed for good; an operator can retry it"],
  "gave-up": ["gave up", "Its workers were lost too often"],
  "no-worker": ["no worker", "No worker offered the service in time"],
  timeout: ["timed out", "Its deadline passed"],
  throttled: ["throttled", "It is at a limit, and the broker reads no more from it for now"],
};
const COLOURS = {
  good: ["ready", "ok", "done", "succeeded", "answered"],
  active: ["busy", "all-busy", "running"],
  warn: ["late", "queued", "paused", "drained", "draining", "delayed", "cancelling", "retrying", "cancelled", "abandoned", "throttled", "warning"],
  bad: ["lost", "registering", "failed", "failing", "dead", "timeout", "gave-up", "interrupted", "refused", "denied", "shutdown", "too-large", "no-worker", "damaged", "error", "expired"],
};
const COLOUR_OF = Object.fromEntries(Object.entries(COLOURS).flatMap(([colour, states]) => states.map((state) => [state, colour])));

export const colourOf = (state) => COLOUR_OF[state] || "idle";

/** A sign and a word, so that color is never the only sign. */
export function sign(colour, word, title) {
  return h("span", { class: `state ${colour}`, title }, word);
}

/** The sign of a state. Hovering shows its cause, or what it means. */
export function state(value, cause) {
  const [word, meaning] = MEANINGS[value] || [value, ""];
  return sign(colourOf(value), word, cause || meaning || undefined);
}

/** A command with a button that copies it. */
export function command(text) {
  const button = h("button", { type: "button", class: "small copy", "aria-label": `Copy ${text}`, onclick: async () => {
    await copy(text);
    setText(button, "Copied");
    setTimeout(() => setText(button, "Copy"), 1500);
  } }, "Copy");
  return h("div", { class: "command" }, h("code", null, text), button);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "hidden" }, text); // without HTTPS, browsers have no clipboard but on localhost
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** This broker's address as the command line takes it. */
export function brokerAddress() {
  return `${location.protocol === "https:" ? "tls+tcp" : "tcp"}://${location.host}`;
}

/** A command line for this broker: ` --to` is left out where it is the default. */
export function cli(text) {
  const to = brokerAddress();
  if (to === "tcp://127.0.0.1:5246" || to === "tcp://localhost:5246") return `polydomo ${text}`;
  const at = text.indexOf(" -- ");
  return at < 0 ? `polydomo ${text} --to ${to}` : `polydomo ${text.slice(0, at)} --to ${to}${text.slice(at)}`;
}

/** What to show where there is nothing: why, and the commands that change that. */
export function empty(text, ...commands) {
  return h("div", { class: "empty" }, h("p", null, text), commands.filter(Boolean).map(command));
}

/** What to show for a failed request. */
export function explain(error) {
  if (error.status === 401) return empty("This broker asks for a token. Open the dashboard with:", cli("open"));
  if (error.status === 403) return empty(`Not permitted: ${error.message}`);
  if (error.status === 404) return empty(error.message);
  return empty(`Could not load: ${error.message}. Trying again.`);
}

/** Links of which one is current, with counts: filters that are part of the address. `items`: [{key, title, href}]. */
export function filters(label, items) {
  const parts = items.map((item) => {
    const number = h("span", { class: "count" });
    return { item, number, element: h("a", { href: item.href, dataset: { key: item.key } }, item.title, number) };
  });
  return {
    element: h("nav", { class: "filters", "aria-label": label }, parts.map((part) => part.element)),
    select(key) {
      for (const part of parts) {
        if (part.item.key === key) part.element.setAttribute("aria-current", "true");
        else part.element.removeAttribute("aria-current");
      }
    },
    counts(numbers) {
      for (const part of parts) setText(part.number, numbers[part.item.key] ?? "");
    },
  };
}

/** A button that is pressed or not: pausing a stream, following a log. */
export function toggle(on, off, pressed, change) {
  let now = pressed;
  const button = h("button", { type: "button", onclick: () => {
    now = !now;
    show();
    change(now);
  } });
  function show() {
    setText(button, now ? on : off);
    button.setAttribute("aria-pressed", String(now));
  }
  show();
  return button;
}

/** Names and values, in one line where there is room. Empty values are left out. */
export function facts(rows) {
  const filled = rows.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return h("dl", { class: "facts" }, filled.map(([title, value]) => h("div", null, h("dt", null, title), h("dd", null, value))));
}

/** How far a request or a job is, as its worker says: {share, text}. Null if it has not said so. */
export function progressBar(progress) {
  if (!progress) return null;
  const share = Math.min(1, Math.max(0, Number(progress.share) || 0));
  const part = h("i", { class: "active" });
  part.style.width = `${100 * share}%`;
  return h("span", { class: "line" }, h("span", { class: "bar", role: "img", "aria-label": percent(share) }, part), name(`${percent(share)} ${progress.text || ""}`));
}

/** The limits of a service: "5 running, 90/10s per group". Nothing without limits. */
export function limitsText(limits) {
  if (!limits) return "";
  const said = [limits.running ? `${limits.running} running` : "", limits.rate ?? ""].filter(Boolean).join(", ");
  return limits.per === "service" ? said : `${said} per ${limits.per}`;
}

/** A time, with the full date on hover. */
export function time(value) {
  return h("time", { title: String(value) }, clock(value));
}

/** A heading with what belongs to its right: actions, a time picker. A plain one repeats the navigation, so it is not drawn. */
export function heading(title, ...right) {
  if (!right.length) return h("h1", { class: "hidden" }, title);
  return h("div", { class: "heading" }, h("h1", null, title), h("div", { class: "actions" }, right));
}

/** A section of a page, with its own heading. */
export function section(title, ...content) {
  return h("section", null, title ? h("h2", null, title) : null, content);
}

/** Suggestions for an input whose `list` is `id`, filled with the names that `names` resolves to. */
export function suggestions(id, names) {
  const element = h("datalist", { id });
  names.then((found) => put(element, found.map((value) => h("option", { value })))).catch(() => {}); // only suggestions
  return element;
}
