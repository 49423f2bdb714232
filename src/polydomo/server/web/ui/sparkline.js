// A small line of the last two minutes.

import { svg } from "./dom.js";
import { HISTORY } from "./feed.js";

const WIDTH = 72;
const HEIGHT = 22;

/** A line that `draw(values)` updates in place. `label` describes it to a screen reader. */
export function sparkline(label, kind, width = WIDTH, height = HEIGHT) {
  const line = svg("polyline", { class: "line", "vector-effect": "non-scaling-stroke" });
  const area = svg("polygon", { class: "area" });
  const element = svg("svg", { class: `spark ${kind}`, viewBox: `0 0 ${width} ${height}`, width, height, preserveAspectRatio: "none", role: "img", "aria-label": label }, area, line);
  let drawn = "";
  return {
    element,
    draw(values, format) {
      const most = Math.max(...values, 1e-9);
      const points = values.map((value, index) => {
        const x = ((HISTORY - values.length + index) / (HISTORY - 1)) * width;
        return `${x.toFixed(1)},${(height - 1.5 - (value / most) * (height - 3)).toFixed(1)}`;
      });
      const next = points.join(" ");
      if (next === drawn) return;
      drawn = next;
      line.setAttribute("points", next);
      const first = points.length ? points[0].split(",")[0] : "0";
      area.setAttribute("points", points.length ? `${first},${height} ${next} ${width},${height}` : "");
      element.setAttribute("aria-label", `${label}: now ${format(values[values.length - 1] || 0)}, highest ${format(most < 1e-6 ? 0 : most)}`);
    },
  };
}
