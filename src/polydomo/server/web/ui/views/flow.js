// A live diagram: clients by protocol on the left, services in the middle, workers by protocol on the right. The width of a line
// is the rate of requests.

import { h, put, svg } from "../dom.js";
import { data, watch } from "../feed.js";
import { compare, rate } from "../format.js";

export const title = "Flow";

const WIDTH = 900;
const MOST = 24; // services shown, the busiest first; the others are summed up
const BOX = 150;
const ROW = 34;

export function show(place) {
  const figure = h("figure", { class: "flow" });
  place.append(h("h1", null, "Flow"), h("p", { class: "note" }, "Requests per second between clients, services and workers. The busiest services come first."), figure);
  const update = () => data.figures && draw(figure, data.figures.services);
  update();
  return watch(update);
}

function draw(figure, rows) {
  const busy = [...rows].sort((a, b) => b.rate - a.rate || b.queued - a.queued || compare(a.name, b.name));
  const shown = busy.slice(0, MOST);
  const rest = busy.slice(MOST);
  if (rest.length) shown.push({ name: `${rest.length} more`, rate: rest.reduce((sum, row) => sum + row.rate, 0), queued: 0, protocols: [], callers: {}, other: true });
  const callers = group(shown, (row) => row.callers || {});
  const workers = group(shown, (row) => Object.fromEntries((row.protocols || []).map((name) => [name, row.rate / row.protocols.length])));
  const height = Math.max(shown.length, callers.size, workers.size, 3) * ROW + 40;
  const y = (index, length) => 30 + ((height - 40) * (index + 0.5)) / Math.max(length, 1);
  const most = Math.max(...shown.map((row) => row.rate), 1);
  const lines = [];
  const boxes = [];
  const place = (names) => new Map([...names.keys()].map((name, index) => [name, y(index, names.size)]));
  const [left, right] = [place(callers), place(workers)];
  shown.forEach((row, index) => {
    const middle = y(index, shown.length);
    for (const [name, value] of Object.entries(row.callers || {})) lines.push(curve(BOX, left.get(name), WIDTH / 2 - BOX / 2, middle, value / most, value > 0));
    for (const name of row.protocols || []) lines.push(curve(WIDTH / 2 + BOX / 2, middle, WIDTH - BOX, right.get(name), row.rate / row.protocols.length / most, row.rate > 0));
    boxes.push(box(WIDTH / 2 - BOX / 2, middle, row.name, `${rate(row.rate)}/s${row.queued ? `, ${row.queued} queued` : ""}`, row.other ? "" : `#/service/${encodeURIComponent(row.name)}`, row.queued ? "queued" : ""));
  });
  for (const [name, at] of left) boxes.push(box(0, at, name, `${rate(callers.get(name))}/s`, "#/clients", ""));
  for (const [name, at] of right) boxes.push(box(WIDTH - BOX, at, name, `${rate(workers.get(name))}/s`, "#/workers", ""));
  const heads = [["Clients", BOX / 2], ["Services", WIDTH / 2], ["Workers", WIDTH - BOX / 2]].map(([text, x]) => svg("text", { class: "head", x, y: 14, "text-anchor": "middle" }, text));
  const label = shown.map((row) => `${row.name}: ${rate(row.rate)} per second`).join("; ");
  put(figure, h("div", { class: "scroll" }, svg("svg", { viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "img", "aria-label": label || "No services" }, heads, lines, boxes)));
}

function group(rows, parts) {
  const sums = new Map();
  for (const row of rows) for (const [name, value] of Object.entries(parts(row))) sums.set(name, (sums.get(name) || 0) + value);
  return new Map([...sums].sort());
}

function curve(x1, y1, x2, y2, part, live) {
  const middle = (x1 + x2) / 2;
  return svg("path", { class: live ? "stream live" : "stream", d: `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`, "stroke-width": (1 + 9 * Math.sqrt(part)).toFixed(1) });
}

function box(x, y, name, note, href, kind) {
  const content = [svg("rect", { class: `box ${kind}`, x, y: y - 14, width: BOX, height: 28, rx: 6 }), svg("text", { x: x + 8, y: y - 1 }, short(name), svg("title", null, name)), svg("text", { class: "small", x: x + 8, y: y + 10 }, note)];
  return href ? svg("a", { href }, content) : svg("g", null, content);
}

function short(name) {
  return name.length > 20 ? `${name.slice(0, 19)}…` : name;
}
