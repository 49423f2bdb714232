// The frame of the page: navigation, summary, theme, keyboard. Each view is a module with `show(place, parameter)` that fills
// the place and returns a function that ends it.

import { h, put, setText } from "./dom.js";
import { connect, data, watch } from "./feed.js";
import { bytes, count, duration, rate } from "./format.js";
import { logIn, showSignIn } from "./session.js";
import { sparkline } from "./sparkline.js";

const VIEWS = [
  ["services", "Services", "s"],
  ["workers", "Workers", "w"],
  ["clients", "Clients", "c"],
  ["requests", "Requests", "r"],
  ["flow", "Flow", "f"],
  ["jobs", "Jobs", "j"],
  ["logs", "Logs", "l"],
  ["topics", "Topics", "t"],
  ["catalog", "Catalog", "a"],
  ["bridges", "Bridges", "b"],
  ["try", "Try", "y"],
];
const HIDDEN = ["service", "request"]; // reached by links only

const place = document.getElementById("view");
let leave = null;
let current = "";

function showNavigation() {
  put(document.getElementById("nav"), h("ul", null, VIEWS.map(([name, title, key]) =>
    h("li", null, h("a", { href: `#/${name}`, title: `${title} (g ${key})`, dataset: { view: name } }, title)))));
}

async function route() {
  const [, name = "services", parameter = ""] = /^#\/([a-z]+)(?:\/(.*))?$/.exec(location.hash) || [];
  const known = [...VIEWS.map(([view]) => view), ...HIDDEN].includes(name) ? name : "services";
  const here = `${known}/${parameter}`;
  if (here === current) return;
  current = here;
  if (leave) leave();
  leave = null;
  put(place);
  for (const link of document.querySelectorAll("nav a")) {
    const active = link.dataset.view === known || (known === "service" && link.dataset.view === "services") || (known === "request" && link.dataset.view === "requests");
    if (active) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const view = await import(`/ui/views/${known}.js`);
  if (here !== current) return;
  document.title = `${view.title} – polydomo`;
  leave = view.show(place, decodeURIComponent(parameter));
}

function showSummary() {
  const place = document.getElementById("summary");
  const items = [
    ["Requests/s", () => rate(data.figures.rate), () => data.total.rate, "rate", rate],
    ["p99", () => (data.figures.p99_us ? duration(data.figures.p99_us) : "–"), () => data.total.p99, "p99", duration],
    ["Queued", () => count(data.figures.queued), () => data.total.queued, "queued", count],
    ["Failures/s", () => rate(data.figures.failed_rate), () => data.total.failed, "failed", rate],
    ["Workers", () => count(sum(data.figures.workers))],
    ["Connections", () => count(data.figures.connections)],
    ["Held", () => bytes(data.figures.held_bytes)],
    ["Up", () => duration(data.figures.uptime_us)],
  ].map(([title, value, series, kind, format]) => {
    const number = h("dd", null, "–");
    const line = series && sparkline(`${title} of the last two minutes`, kind, 120, 26);
    return { element: h("div", null, h("dt", null, title), number, line ? line.element : null), update() {
      setText(number, value());
      if (line) line.draw(series(), format);
    } };
  });
  put(place, h("dl", null, items.map((item) => item.element)));
  watch(() => {
    if (data.signedOut) return signIn();
    showMissing();
    const status = document.getElementById("connection");
    const text = !data.connected ? "Not connected. Trying again …" : data.figures === null ? (data.session.inspect ? "Connected, waiting for figures" : "Connected, without the right to see figures") : data.figures.draining ? "The broker is shutting down" : `Live: ${data.figures.address}`;
    setText(status, text);
    status.className = data.connected ? "live" : "lost";
    document.body.classList.toggle("stale", !data.connected);
    if (data.figures !== null) for (const item of items) item.update();
  });
}

/** What this principal may not see or do, and which right allows it. */
function showMissing() {
  const { principal, inspect, tap, subscribe, admin } = data.session || { inspect: true, tap: true, subscribe: true, admin: true };
  const missing = [
    inspect ? null : ["inspect", "services, workers, requests and jobs cannot be shown"],
    tap || !inspect ? null : ["tap", "figures are fetched every two seconds instead of every second, and topics under monitor.* are not shown"],
    subscribe ? null : ["subscribe", "on log.*: new log records are fetched every two seconds"],
    admin ? null : ["admin", "actions such as cancel, drain and pause are rejected"],
  ].filter(Boolean);
  const notice = document.getElementById("notice");
  const key = JSON.stringify([principal, missing]);
  if (notice.dataset.key === key) return;
  notice.dataset.key = key;
  notice.hidden = !missing.length;
  put(notice, `Signed in as ${principal}, without `, missing.map(([right, effect], index) => [index ? "; " : "", h("code", null, right), `: ${effect}`]), ".");
}

function signIn() {
  if (document.body.classList.contains("signed-out")) return;
  if (leave) leave();
  leave = null;
  current = "sign in";
  const status = document.getElementById("connection");
  setText(status, "Not signed in");
  status.className = "lost";
  showSignIn(place, problem);
}

function sum(counts) {
  return Object.values(counts || {}).reduce((total, one) => total + one, 0);
}

function keyboard() {
  let prefix = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const view = prefix && VIEWS.find(([, , key]) => key === event.key);
    prefix = event.key === "g";
    if (view) location.hash = `#/${view[0]}`;
    else if (event.key === "/") {
      const search = document.querySelector("main input[type=search]");
      if (search) search.focus();
      event.preventDefault();
    } else if (event.key === "?") help();
  });
}

function help() {
  const dialog = document.getElementById("dialog");
  put(dialog, h("h2", { id: "dialog-title" }, "Keyboard"), h("dl", { class: "keys" },
    VIEWS.map(([, title, key]) => [h("dt", null, h("kbd", null, "g"), " ", h("kbd", null, key)), h("dd", null, title)]),
    h("dt", null, h("kbd", null, "/")), h("dd", null, "Filter")),
    h("form", { method: "dialog" }, h("button", null, "Close")));
  dialog.showModal();
}

function theme() {
  const saved = localStorage.getItem("polydomo.theme");
  if (saved) document.documentElement.dataset.theme = saved;
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("polydomo.theme", root.dataset.theme);
  });
}

const problem = await logIn();
theme();
showNavigation();
showSummary();
keyboard();
window.addEventListener("hashchange", () => data.signedOut || route());
await connect();
if (!data.signedOut) route();
