// The frame of the page: navigation, connection, theme, keyboard. pages.js lists the pages.

import { h, put, setText } from "./dom.js";
import { connect, data, watch } from "./feed.js";
import { empty } from "./parts.js";
import { DETAILS, KEYS, TABS, parse, tabOf } from "./pages.js";
import { logIn, showSignIn } from "./session.js";

const place = document.getElementById("view");
let leave = null;
let current = "";

function showNavigation() {
  put(document.getElementById("nav"), h("ul", null, TABS.map(([name, title, key]) =>
    h("li", null, h("a", { href: `#/${name}`, title: `${title} (g ${key})`, dataset: { tab: name } }, title)))));
}

function mark(links, found) {
  for (const link of links) {
    if (found(link)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** The pages under the current tab, if there are several. */
function showPages(tab, page) {
  const [, , , pages] = tab || [null, null, null, []];
  const under = document.getElementById("pages");
  under.hidden = pages.length < 2;
  put(under, h("ul", null, pages.map(([name, title]) => h("li", null, h("a", { href: `#/${name}`, dataset: { view: name } }, title)))));
  mark(under.querySelectorAll("a"), (link) => link.dataset.view === (DETAILS[page] || page));
}

async function route() {
  if (location.hash === current) return;
  current = location.hash;
  const here = current;
  const { page, parameter, query } = parse(here);
  const tab = tabOf(page);
  if (leave) leave();
  leave = null;
  if (place.contains(document.activeElement)) place.focus(); // the link that had the focus goes away
  put(place);
  mark(document.querySelectorAll("#nav a"), (link) => tab && link.dataset.tab === tab[0]);
  showPages(tab, page);
  document.body.dataset.page = tab ? page : "unknown";
  if (!tab) {
    document.title = "Not found – polydomo";
    put(place, h("h1", null, "Not found"), empty(`There is no page “${page}”.`), h("p", null, "Pages: ", TABS.flatMap(([, , , pages]) => pages).map(([name, title], index) => [index ? ", " : "", h("a", { href: `#/${name}` }, title)])));
    return;
  }
  const view = await import(`/ui/views/${page}.js`);
  if (here !== current) return;
  document.title = `${parameter || view.title} – polydomo`;
  leave = view.show(place, parameter, query);
}

function showConnection() {
  const status = document.getElementById("connection");
  watch(() => {
    if (data.signedOut) return signIn();
    showMissing();
    setText(status, !data.connected ? "Not connected. Trying again …" : !data.session.inspect ? "Connected, without the right to see anything" : "Connected");
    if (data.connected) status.append(h("span", { class: "wide" }, ` to ${location.host}`));
    status.className = data.connected ? "live" : "lost";
    document.body.classList.toggle("stale", !data.connected);
  });
}

/** What this principal may not see or do, and which right allows it. */
function showMissing() {
  const { principal, inspect, tap, subscribe, admin } = data.session || { inspect: true, tap: true, subscribe: true, admin: true };
  const missing = [
    inspect ? null : ["inspect", "services, workers, requests and jobs cannot be shown"],
    tap || !inspect ? null : ["tap", "requests are not shown as they end (Live, Traffic), nor topics under monitor.*"],
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

function keyboard() {
  let prefix = false;
  const pages = { ...KEYS, ...Object.fromEntries(TABS.map(([name, , key]) => [key, name])) };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const page = prefix && pages[event.key];
    prefix = event.key === "g";
    if (page) location.hash = `#/${page}`;
    else if (event.key === "/") {
      const search = document.querySelector("main input[type=search]");
      if (search) search.focus();
      event.preventDefault();
    } else if (event.key === "?") help();
  });
  document.getElementById("help").addEventListener("click", help);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address names the page
    place.focus();
  });
}

function help() {
  const dialog = document.getElementById("dialog");
  const titles = Object.fromEntries(TABS.flatMap(([, , , pages]) => pages));
  const keys = [...TABS.map(([name, , key]) => [key, name]), ...Object.entries(KEYS)];
  const row = (text, ...names) => [h("dt", null, names.map((name, index) => [index ? " " : "", h("kbd", null, name)])), h("dd", null, text)];
  put(dialog, h("h2", { id: "dialog-title" }, "Keyboard shortcuts"), h("dl", { class: "keys" },
    keys.map(([key, name]) => row(titles[name], "g", key)),
    row("Filter this page", "/"), row("Read the values of a chart that has the focus", "←", "→"), row("Close a dialog", "Esc"), row("This help", "?")),
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
showConnection();
keyboard();
window.addEventListener("hashchange", () => data.signedOut || route());
await connect();
if (!location.hash) history.replaceState(null, "", "#/overview");
if (!data.signedOut) route();
