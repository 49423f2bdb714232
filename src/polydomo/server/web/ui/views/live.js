// Requests as they end: one lane per worker, for the last minute.

import { LANE, SPAN, hit, laneCanvas } from "../charts/lanes.js";
import { h, put, setText } from "../dom.js";
import { data, get, subscribe, text } from "../feed.js";
import { clock, compare, count, duration } from "../format.js";
import { cli, empty, heading, name, requestLink, state, toggle } from "../parts.js";

export const title = "Live";

const MOST_LANES = 60;
const MOST_BARS = 20_000;
const REDRAW = 250; // milliseconds between two pictures

export function show(place) {
  if (data.session && !data.session.tap) {
    place.append(heading("Live"), empty("The right tap is needed to see requests as they end."));
    return () => {};
  }
  let bars = [];
  let skipped = 0;
  let running = true;
  let now = Date.now();
  let ahead = 0; // milliseconds by which the broker's clock is ahead of this one
  let lanes = [];
  const canvas = h("canvas", { class: "stream", role: "img", tabindex: 0, "aria-label": "Requests of the last minute, one lane per worker" });
  const names = h("ol");
  const note = h("p", { class: "note", role: "status" });
  const detail = h("p", { class: "note detail" }, "Point at a bar to see its request; click to open it.");
  const blank = h("div");
  const stream = h("div", { class: "lanes" }, names, h("div", null, canvas));
  const picture = laneCanvas(canvas);
  place.append(heading("Live", toggle("Pause", "Continue", true, (on) => { running = on; })), legend(), stream, blank, detail, note);

  function take(message) {
    if (message.time) ahead = Date.parse(message.time) - Date.now();
    skipped += message.skipped || 0;
    for (const one of message.requests) {
      const end = Date.parse(one.ended);
      bars.push({ ...one, end, start: end - (one.run_us || 0) / 1000, holder: `${one.worker || ""} ${one.worker_name}`.trim() || "no worker" }); // of another process, only the process is known
    }
    if (bars.length > MOST_BARS) bars = bars.slice(-MOST_BARS);
  }

  function draw() {
    if (!running || document.visibilityState !== "visible") return;
    now = Date.now() + ahead;
    bars = bars.filter((bar) => bar.end > now - SPAN);
    const holders = [...new Set(bars.map((bar) => bar.holder))].sort(compare);
    const shown = holders.slice(0, MOST_LANES);
    if (shown.join("\n") !== lanes.join("\n")) {
      lanes = shown;
      put(names, lanes.map((one) => h("li", null, name(one))));
    }
    const place = new Map(lanes.map((one, index) => [one, index]));
    for (const bar of bars) bar.lane = place.get(bar.holder) ?? -1;
    stream.hidden = !bars.length;
    put(blank, bars.length ? null : empty("No request has ended in the last minute. Make one:", cli('call upper "hello, world"')));
    if (bars.length) picture.draw(bars.filter((bar) => bar.lane >= 0), lanes.length, now);
    setText(note, [`${count(bars.length)} requests`, skipped ? `${count(skipped)} more were skipped` : "", holders.length > MOST_LANES ? `${count(holders.length - MOST_LANES)} more workers are not shown` : ""].filter(Boolean).join(", "));
  }

  function find(event) {
    const box = canvas.getBoundingClientRect();
    return hit(bars, Math.floor((event.clientY - box.top) / LANE), picture.timeAt(event.clientX - box.left), picture.slack());
  }

  function describe(bar) {
    put(detail, requestLink(bar.request), " ", bar.service, " ", state(bar.outcome, bar.reason), ` ${clock(bar.ended, true)}, ran ${duration(bar.run_us)}, waited ${duration(bar.wait_us)}${bar.reason ? `: ${bar.reason}` : ""}`);
  }

  canvas.addEventListener("pointermove", (event) => {
    const bar = find(event);
    canvas.style.cursor = bar ? "pointer" : "";
    if (bar) describe(bar);
  });
  canvas.addEventListener("click", (event) => {
    const bar = find(event);
    if (bar) location.hash = `#/request/${encodeURIComponent(bar.request)}`;
  });
  let chosen = -1; // for the keyboard: an index of bars
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && bars[chosen]) location.hash = `#/request/${encodeURIComponent(bars[chosen].request)}`;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !bars.length) return;
    event.preventDefault();
    chosen = chosen < 0 ? bars.length - 1 : Math.min(bars.length - 1, Math.max(0, chosen + step));
    describe(bars[chosen]);
  });
  /** What the journal has of the last minute. */
  async function before() {
    const [found, workers] = await Promise.all([get("/v1/finished?from=-1m&limit=500"), get("/v1/workers")]);
    const names = new Map(workers.map((row) => [row.worker, row.name]));
    const seen = new Set(bars.map((bar) => bar.request));
    take({ requests: found.requests.filter((row) => !seen.has(row.request)).map((row) => ({ ...row, ended: row.time, worker_name: names.get(row.worker) || "" })) });
    bars.sort((a, b) => a.end - b.end);
  }

  before().catch(() => {}); // no journal
  const timer = setInterval(draw, REDRAW);
  const end = subscribe("monitor.ended", (_topic, frames) => running && take(JSON.parse(text(frames))));
  draw();
  return () => {
    clearInterval(timer);
    end();
  };
}

function legend() {
  return h("p", { class: "legend" }, [["rate", "answered"], ["failed", "failed"], ["p95", "cancelled"]].map(([kind, text]) => h("span", null, h("i", { class: `swatch ${kind}` }), text)));
}
