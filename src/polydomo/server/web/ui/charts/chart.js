// A chart of values over time: lines and areas on SVG, axes, and the values under the pointer or at the place that the arrow
// keys reach. All charts of a page share one cursor.

import { h, put, setAttribute, setText, svg } from "../dom.js";
import { axisTime, clock } from "../format.js";
import { durationDecades, linear, logarithmic, nearest, runs, timeTicks, valueTicks } from "./scale.js";

const LEFT = 58;
const RIGHT = 10;
const TOP = 8;
const BOTTOM = 22;

/** The cursor that several charts share: the time under the pointer, or null. */
export function cursor() {
  const charts = new Set();
  return {
    time: null,
    join: (chart) => charts.add(chart),
    set(time) {
      this.time = time;
      for (const chart of charts) chart();
    },
  };
}

/**
 * series: [{key, title, kind, area, value(point)}]; `kind` is the class that colors it. `format` writes a value. `whole` and
 * `durations` are for the ticks (scale.js); durations of different orders of magnitude have a logarithmic axis. `least` is the least top of the axis, so that noise does not look like a mountain.
 */
export function chart({ title, series, format, shared, height = 150, whole = false, durations = false, least = 0 }) {
  let points = [];
  let times = [];
  let range = [0, 1];
  let width = 0;
  let x = linear(0, 1, 0, 1);
  let y = linear(0, 1, 0, 1);
  const plot = svg("svg", { class: "plot", height, role: "img", tabindex: 0 });
  const axes = svg("g", { class: "axes" });
  const lines = svg("g");
  const hair = svg("line", { class: "hair", y1: TOP, y2: height - BOTTOM, visibility: "hidden" });
  const dots = series.map((one) => svg("circle", { class: `dot ${one.kind}`, r: 3.5, visibility: "hidden" }));
  plot.append(axes, lines, hair, ...dots);
  const values = series.map(() => h("span", { class: "value" }));
  const when = h("span", { class: "when" });
  const legend = h("span", { class: "legend" }, when, series.map((one, index) => h("span", { class: `key ${one.kind}` }, h("i", { class: `swatch ${one.kind}` }), one.title, " ", values[index])));
  const heading = h("strong", null, title);
  const spoken = h("span", { class: "hidden", role: "status" });
  const note = h("p", { class: "nothing", hidden: true }, "No data in this time range yet.");
  const element = h("figure", { class: "chart" }, h("figcaption", null, heading, legend), h("div", { class: "area" }, plot, note), spoken);

  function draw() {
    if (!width) return;
    const columns = series.map((one) => points.map((point) => one.value(point)));
    const known = columns.flat().filter((value) => value !== null && value !== undefined);
    const decades = durations ? durationDecades(known) : null;
    const ticks = decades || valueTicks(Math.max(least, ...known), 3, { whole, durations });
    y = (decades ? logarithmic : linear)(decades ? ticks[0] : 0, ticks[ticks.length - 1], height - BOTTOM, TOP);
    setText(heading, decades ? `${title}, logarithmic` : title);
    x = linear(range[0], range[1], LEFT, width - RIGHT);
    setAttribute(plot, "viewBox", `0 0 ${width} ${height}`);
    const across = timeTicks(range[0], range[1], Math.max(2, Math.floor((width - LEFT) / 90)));
    put(axes,
      ticks.map((tick) => [svg("line", { class: "grid", x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick) }), svg("text", { x: LEFT - 8, y: y(tick) + 4, "text-anchor": "end" }, format(tick))]),
      across.ticks.map((tick) => [svg("line", { class: "tick", x1: x(tick), x2: x(tick), y1: height - BOTTOM, y2: height - BOTTOM + 4 }), svg("text", { x: x(tick), y: height - 5, "text-anchor": x(tick) > width - 40 ? "end" : x(tick) < LEFT + 20 ? "start" : "middle" }, axisTime(tick, across.step))]));
    put(lines, series.map((one, index) => path(one, columns[index])));
    note.hidden = columns.some((column) => column.some((value) => value !== null && value !== undefined));
    setAttribute(plot, "aria-label", label(columns));
    point();
  }

  function path(one, column) {
    const bottom = height - BOTTOM;
    return runs(column).map((run) => {
      const places = run.map((index) => `${x(times[index]).toFixed(1)},${y(column[index]).toFixed(1)}`);
      if (run.length === 1) return svg("circle", { class: `single ${one.kind}`, cx: x(times[run[0]]), cy: y(column[run[0]]), r: 1.6 });
      const line = svg("polyline", { class: `line ${one.kind}`, points: places.join(" ") });
      if (!one.area) return line;
      return [svg("polygon", { class: `fill ${one.kind}`, points: `${x(times[run[0]]).toFixed(1)},${bottom} ${places.join(" ")} ${x(times[run[run.length - 1]]).toFixed(1)},${bottom}` }), line];
    });
  }

  function label(columns) {
    const last = points.length - 1;
    return `${title}: ${series.map((one, index) => `${one.title} ${shown(columns[index][last])}`).join(", ")}. Arrow keys read values.`;
  }

  const shown = (value) => (value === null || value === undefined ? "–" : format(value));

  /** Shows the values at the cursor, or the last ones. */
  function point() {
    const active = shared.time !== null && points.length > 0;
    const index = active ? nearest(times, shared.time) : points.length - 1;
    hair.setAttribute("visibility", active ? "visible" : "hidden");
    setText(when, active ? clock(times[index] / 1000) : "");
    if (active) for (const end of ["x1", "x2"]) hair.setAttribute(end, x(times[index]));
    series.forEach((one, number) => {
      const value = index >= 0 ? one.value(points[index]) : null;
      setText(values[number], shown(value));
      const known = active && value !== null && value !== undefined;
      dots[number].setAttribute("visibility", known ? "visible" : "hidden");
      if (known) {
        dots[number].setAttribute("cx", x(times[index]));
        dots[number].setAttribute("cy", y(value));
      }
    });
  }

  function read() {
    setText(spoken, `${when.textContent}: ${series.map((one, index) => `${one.title} ${values[index].textContent}`).join(", ")}`);
  }

  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    shared.set(linear(LEFT, width - RIGHT, range[0], range[1])(event.clientX - box.left));
  });
  plot.addEventListener("pointerleave", () => shared.set(null));
  plot.addEventListener("blur", () => shared.set(null));
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") shared.set(null);
    if (step === undefined || !points.length) return;
    event.preventDefault();
    const now = shared.time === null ? points.length - 1 : nearest(times, shared.time);
    shared.set(times[Math.min(points.length - 1, Math.max(0, now + step))]);
    read();
  });
  shared.join(point);
  new ResizeObserver(([entry]) => {
    const next = Math.round(entry.contentRect.width);
    if (next === width) return;
    width = next;
    draw();
  }).observe(plot.parentElement || element);

  return {
    element,
    /** Points in the order of time, each with `at` in milliseconds, and the times of both ends of the axis. */
    draw(next, from, to) {
      points = next;
      times = next.map((point) => point.at);
      range = [from, to];
      draw();
    },
  };
}
