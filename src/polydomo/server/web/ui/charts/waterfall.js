// The spans of a request, one below the other: where it waited and which workers had it.

import { h, put, svg } from "../dom.js";
import { duration } from "../format.js";
import { linear, valueTicks } from "./scale.js";

const ROW = 30;
const TOP = 24;
const CHARACTER = 7.2; // the width of one, at most

/** Where the label of a bar goes so that it stays readable: right of it, or left of it if there is no room. */
export function labelPlace(start, end, width, right) {
  if (end + 6 + width <= right) return { x: end + 6, anchor: "start" };
  if (start - 6 - width >= 0) return { x: start - 6, anchor: "end" };
  return { x: Math.max(0, right - width), anchor: "start", above: true };
}

/** spans: [{name, kind, start_us, end_us}]. The element adapts to its width. */
export function waterfall(spans) {
  const total = Math.max(...spans.map((span) => span.end_us), 1);
  const place = h("div", { class: "figure" });
  const label = spans.map((span) => `${span.name} ${duration(span.end_us - span.start_us)}`).join(", ");

  function draw(width) {
    const left = Math.min(150, width * 0.3);
    const right = width - 8;
    const x = linear(0, total, left, right - 70);
    const height = spans.length * ROW + TOP + 6;
    const ticks = valueTicks(total, Math.max(1, Math.min(5, Math.floor((right - 70 - left) / 90))), { durations: true }).filter((tick) => tick <= total);
    const marks = ticks.map((tick) => [svg("line", { class: "tick", x1: x(tick), x2: x(tick), y1: 18, y2: height }), svg("text", { class: "small", x: x(tick), y: 12, "text-anchor": tick ? "middle" : "start" }, duration(tick))]);
    const bars = spans.map((span, index) => {
      const y = TOP + index * ROW;
      const long = Math.max(2, x(span.end_us) - x(span.start_us));
      const text = duration(span.end_us - span.start_us);
      const at = labelPlace(x(span.start_us), x(span.start_us) + long, text.length * CHARACTER, right);
      const fits = Math.floor((left - 8) / CHARACTER);
      return [
        svg("text", { x: 0, y: y + 19 }, span.name.length > fits ? `${span.name.slice(0, fits - 1)}…` : span.name, svg("title", null, span.name)),
        svg("rect", { class: `span ${/^[a-z-]+$/.test(span.kind) ? span.kind : ""}`, x: x(span.start_us), y: y + 5, width: long, height: ROW - 10, rx: 3 }, svg("title", null, `${span.name}: ${text}`)),
        svg("text", { x: at.x, y: y + 19, "text-anchor": at.anchor }, text),
      ];
    });
    put(place, svg("svg", { class: "waterfall", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `Waterfall: ${label}` }, marks, bars));
  }

  let drawn = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.max(240, Math.round(entry.contentRect.width));
    if (width !== drawn) draw((drawn = width));
  }).observe(place);
  return h("figure", { class: "card" }, place);
}
