// The drawn graph of a flow: boxes in columns, linked from left to right. One box is one node, or many with a bar of their states.

import { h, put, setText, svg } from "../dom.js";
import { count } from "../format.js";
import { name, sign, state } from "../parts.js";

const WIDE = 186;
const TALL = 52;
const GAP_X = 56;
const GAP_Y = 12;
const EDGE = 14;
const MOST_LINKS = 3000;

/** The states of a bar, in their order, and the color of each. */
export const BAR = [["done", "good"], ["running", "active"], ["dead", "bad"], ["skipped", "idle"], ["cancelled", "warn"]];

/** A bar of how many are in which state: {element, update(counts, total)}. */
export function bar() {
  const parts = BAR.map(([, colour]) => h("i", { class: colour }));
  const element = h("span", { class: "bar", role: "img" }, parts);
  return { element, update(counts, total) {
    parts.forEach((part, index) => {
      const width = `${((100 * (counts[BAR[index][0]] || 0)) / Math.max(total, 1)).toFixed(2)}%`;
      if (part.style.width !== width) part.style.width = width;
    });
    element.setAttribute("aria-label", `${BAR.filter(([key]) => counts[key]).map(([key]) => `${count(counts[key])} ${key}`).join(", ") || "none done"} of ${count(total)}`);
  } };
}

/** The state of several nodes in one word: what needs a look first. */
export function stateOf(counts, total) {
  return ["dead", "running"].find((key) => counts[key]) || ["done", "skipped", "cancelled", "waiting"].find((key) => counts[key] === total) || (counts.queued || counts.delayed ? "queued" : "waiting");
}

/** Places of the boxes: each column is centered on the tallest one. */
export function placesOf(boxes) {
  const tall = new Map();
  for (const box of boxes) tall.set(box.column, (tall.get(box.column) || 0) + 1);
  const rows = Math.max(1, ...tall.values());
  const width = 2 * EDGE + tall.size * (WIDE + GAP_X) - GAP_X;
  const height = 2 * EDGE + rows * (TALL + GAP_Y) - GAP_Y;
  return { width, height, places: boxes.map((box) => ({ x: EDGE + box.column * (WIDE + GAP_X), y: EDGE + (box.row + (rows - tall.get(box.column)) / 2) * (TALL + GAP_Y) })) };
}

/**
 * Draws boxes and links (fold.js). `describe(box)` gives {title, note, state} of one node or {title, counts} of several; `href(box)`
 * its address. Returns {element, update(), select(index)}.
 */
export function graph({ boxes, links }, describe, href, open) {
  const { width, height, places } = placesOf(boxes);
  const curves = links.slice(0, MOST_LINKS).map(([from, to]) => {
    const [x1, y1, x2, y2] = [places[from].x + WIDE, places[from].y + TALL / 2, places[to].x, places[to].y + TALL / 2];
    if (x2 <= x1) return svg("path", { class: "link", d: `M${x1 - WIDE / 2},${y1} L${x2 + WIDE / 2},${y2}` });
    const middle = (x1 + x2) / 2;
    return svg("path", { class: "link", d: `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}` });
  });
  const drawn = boxes.map((box, index) => {
    const many = box.numbers.length > 1;
    const word = h("span", { class: "word" });
    const meter = many ? bar() : null;
    const title = name("", href(box));
    const element = h("div", { class: many ? "node several" : "node", onclick: (event) => { if (many) { event.preventDefault(); open(index); } } }, title, h("span", { class: "line" }, meter ? meter.element : null, word));
    element.style.left = `${places[index].x}px`;
    element.style.top = `${places[index].y}px`;
    return { box, element, title, word, meter, seen: "" };
  });
  const inOrder = [...drawn].sort((a, b) => a.box.column - b.box.column || a.box.row - b.box.row); // of the Tab key
  const canvas = h("div", { class: "canvas" }, svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, curves), inOrder.map((one) => one.element));
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const element = h("div", { class: "graph", tabindex: 0, role: "region", "aria-label": "Graph of the flow" }, canvas);

  function update() {
    for (const one of drawn) {
      const found = describe(one.box);
      const text = JSON.stringify(found);
      if (text === one.seen) continue;
      one.seen = text;
      setText(one.title.firstElementChild, found.title);
      one.title.title = found.title;
      one.title.href = href(one.box);
      const { counts } = found;
      const total = one.box.numbers.length;
      one.element.dataset.state = counts ? stateOf(counts, total) : found.state;
      if (counts) {
        one.meter.update(counts, total);
        const worst = counts.dead ? sign("bad", `${count(counts.dead)} dead`) : counts.running ? sign("active", `${count(counts.running)} running`) : null;
        put(one.word, worst, h("span", { class: "note rest" }, `${count(counts.done || 0)} done`));
      } else put(one.word, state(found.state, found.cause), found.note ? h("span", { class: "note" }, found.note) : null);
    }
  }

  update();
  return { element, update, center() {
    element.scrollTop = (height - element.clientHeight) / 2;
  }, select(chosen) {
    drawn.forEach((one, index) => one.element.classList.toggle("chosen", index === chosen));
  } };
}
