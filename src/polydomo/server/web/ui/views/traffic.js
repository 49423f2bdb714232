// A diagram of who calls what: principals or addresses on the left, services in the middle, workers on the right. The width of a
// line is the rate of requests that ended in the last ten seconds.

import { h, put, svg } from "../dom.js";
import { data, subscribe, text } from "../feed.js";
import { compare, rate } from "../format.js";
import { cli, empty, heading } from "../parts.js";
import { poll } from "../poll.js";

export const title = "Traffic";

const SPAN = 10_000; // milliseconds
const MOST = { left: 14, middle: 20, right: 14 }; // boxes, the busiest first; the others are summed up
const ROW = 44;
const REDRAW = 1000;

export function show(place) {
  const figure = h("figure", { class: "traffic" });
  place.append(heading("Traffic"), h("p", { class: "note" }, "Requests per second that ended in the last ten seconds, by principal (or protocol and address), service and worker."), figure);
  if (data.session && !data.session.tap) {
    put(figure, empty("The right tap is needed to see requests as they end."));
    return () => {};
  }
  let ended = []; // {at, client, service, worker, failed, weight}
  let callers = new Map(); // c7 -> the name of its box
  let width = 0;
  const began = Date.now();

  function take(message) {
    const weight = 1 + (message.skipped || 0) / Math.max(message.requests.length, 1);
    const at = Date.now();
    for (const one of message.requests) {
      const caller = one.principal || callers.get(one.client) || `${one.protocol} clients`;
      ended.push({ at, caller, service: one.service, worker: one.worker_name || one.worker || "no worker", failed: one.outcome !== "ok", weight });
    }
  }

  function draw() {
    const now = Date.now();
    ended = ended.filter((one) => one.at > now - SPAN);
    if (!width || document.visibilityState !== "visible") return;
    if (!ended.length) return put(figure, empty("No request ended in the last ten seconds. Make one:", cli('call upper "hello, world"')));
    const seconds = Math.min(SPAN, Math.max(1000, now - began)) / 1000;
    put(figure, picture(layout(ended, seconds), width));
  }

  new ResizeObserver(([entry]) => {
    width = Math.round(entry.contentRect.width);
  }).observe(place);
  width = Math.round(place.getBoundingClientRect().width) - 40;
  const timer = setInterval(draw, REDRAW);
  const ends = [
    subscribe("monitor.ended", (_topic, frames) => take(JSON.parse(text(frames)))),
    poll(() => "/v1/clients", (rows) => { callers = new Map(rows.map((row) => [row.client, callerName(row)])); }, h("div"), 5000),
    () => clearInterval(timer),
  ];
  put(figure, empty("Waiting for requests …"));
  return () => ends.forEach((end) => end());
}

/** The principal of a client, or its protocol and host: ports change with every connection. */
export function callerName(row) {
  return row.principal || `${row.protocol} ${row.peer.replace(/^[a-z+]+:\/\//, "").replace(/:\d+$/, "")}`;
}

/** Sums of the boxes and of the lines between them. */
export function layout(ended, seconds) {
  const columns = { left: new Map(), middle: new Map(), right: new Map() };
  const failures = new Map();
  const add = (map, key, value) => map.set(key, (map.get(key) || 0) + value / seconds);
  for (const one of ended) {
    add(columns.left, one.caller, one.weight);
    add(columns.middle, one.service, one.weight);
    add(columns.right, one.worker, one.weight);
    if (one.failed) add(failures, one.service, one.weight);
  }
  const boxes = {};
  const renamed = {};
  for (const [column, sums] of Object.entries(columns)) {
    const order = [...sums].sort((a, b) => b[1] - a[1] || compare(a[0], b[0]));
    const rest = order.slice(MOST[column]);
    boxes[column] = order.slice(0, MOST[column]).map(([key, value]) => ({ key, rate: value, failed: column === "middle" ? failures.get(key) || 0 : 0 }));
    renamed[column] = new Set(boxes[column].map((box) => box.key));
    if (rest.length) boxes[column].push({ key: `${rest.length} more`, rate: rest.reduce((sum, [, value]) => sum + value, 0), failed: 0, other: true });
  }
  const at = (column, key) => (renamed[column].has(key) ? key : boxes[column][boxes[column].length - 1].key);
  const links = { left: new Map(), right: new Map() };
  for (const one of ended) {
    add(links.left, JSON.stringify([at("left", one.caller), at("middle", one.service)]), one.weight);
    add(links.right, JSON.stringify([at("middle", one.service), at("right", one.worker)]), one.weight);
  }
  return { boxes, links };
}

function picture({ boxes, links }, width) {
  const wide = Math.max(88, Math.min(230, width * 0.26));
  const height = Math.max(...Object.values(boxes).map((list) => list.length)) * ROW + 28;
  const left = { left: 0, middle: (width - wide) / 2, right: width - wide };
  const places = Object.fromEntries(Object.entries(boxes).map(([column, list]) => [column, new Map(list.map((box, index) => [box.key, 24 + ((height - 24) * (index + 0.5)) / list.length]))]));
  const most = Math.max(...[...links.left.values(), ...links.right.values()], 1e-9);
  const curves = [["left", "left", "middle"], ["right", "middle", "right"]].flatMap(([side, from, to]) => [...links[side]].map(([key, value]) => {
    const [a, b] = JSON.parse(key);
    return curve(left[from] + wide, places[from].get(a), left[to], places[to].get(b), value / most);
  }));
  const drawn = Object.entries(boxes).flatMap(([column, list]) => list.map((box) => boxOf(left[column], places[column].get(box.key), wide, box, column)));
  const heads = [["left", "Callers"], ["middle", "Services"], ["right", "Workers"]].map(([column, text]) => svg("text", { class: "head", x: left[column] + wide / 2, y: 12, "text-anchor": "middle" }, text));
  const label = boxes.middle.map((box) => `${box.key}: ${rate(box.rate)} per second`).join("; ");
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label }, heads, curves, drawn);
}

function curve(x1, y1, x2, y2, part) {
  const middle = (x1 + x2) / 2;
  return svg("path", { class: "link live", d: `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`, "stroke-width": (1 + 9 * Math.sqrt(part)).toFixed(1) });
}

function boxOf(x, y, wide, box, column) {
  const fits = Math.floor((wide - 14) / 7);
  const short = box.key.length > fits ? `${box.key.slice(0, fits - 1)}…` : box.key;
  const note = `${rate(box.rate)}/s${box.failed ? `, ${rate(box.failed)} failed` : ""}`;
  const content = [
    svg("rect", { class: `box ${box.failed ? "failing" : ""}`, x: x + 1, y: y - 17, width: wide - 2, height: 34, rx: 6 }, svg("title", null, `${box.key}: ${note}`)),
    svg("text", { x: x + 8, y: y - 2 }, short, svg("title", null, box.key)),
    svg("text", { class: "small", x: x + 8, y: y + 12 }, note.length > fits + 4 ? `${rate(box.rate)}/s` : note),
  ];
  const href = box.other ? "" : { left: "#/clients", middle: `#/service/${encodeURIComponent(box.key)}`, right: "#/workers" }[column];
  return href ? svg("a", { href }, content) : svg("g", null, content);
}
