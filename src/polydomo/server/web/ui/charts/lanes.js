// Bars in lanes over the last minute, on a canvas: one lane per worker, one bar per request, its width by its duration and its color
// by its outcome.

import { colourOf } from "../parts.js";
import { linear } from "./scale.js";

export const LANE = 24;
export const SPAN = 60_000; // milliseconds
const AXIS = 20;

/** The bars under a point: those of its lane that begin before and end after it, with two pixels to spare. */
export function hit(bars, lane, time, slack) {
  return bars.findLast((bar) => bar.lane === lane && bar.start - slack <= time && time <= bar.end + slack);
}

/** A canvas that `draw(bars, lanes, now)` fills; bars: {lane, start, end, outcome}, in milliseconds. */
export function laneCanvas(canvas) {
  let scale = linear(0, 1, 0, 1);
  let inverse = linear(0, 1, 0, 1);

  return {
    timeAt: (x) => inverse(x),
    slack: () => (inverse(2) - inverse(0)),
    draw(bars, lanes, now) {
      const ratio = window.devicePixelRatio || 1;
      const width = canvas.clientWidth;
      const height = Math.max(lanes, 1) * LANE + AXIS;
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        canvas.style.height = `${height}px`;
      }
      scale = linear(now - SPAN, now, 0, width);
      inverse = linear(0, width, now - SPAN, now);
      const styles = getComputedStyle(canvas);
      const color = (name) => styles.getPropertyValue(name).trim();
      const colors = { good: color("--rate"), bad: color("--failed"), warn: color("--p95"), idle: color("--idle"), active: color("--rate") };
      const context = canvas.getContext("2d");
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      for (let lane = 1; lane < lanes; lane += 1) {
        context.fillStyle = color("--line");
        context.fillRect(0, lane * LANE, width, 1);
      }
      const step = width < 500 ? 20_000 : 10_000;
      for (let back = 0; back <= SPAN; back += step) {
        const x = scale(now - back);
        context.fillStyle = color("--line");
        context.fillRect(x, 0, 1, height - AXIS + 4);
        context.fillStyle = color("--soft");
        context.textAlign = back === 0 ? "right" : back === SPAN ? "left" : "center";
        context.fillText(back ? `−${back / 1000} s` : "now", x, height - AXIS / 2);
      }
      for (const bar of bars) {
        const x = scale(bar.start);
        const right = scale(bar.end);
        if (right < 0) continue;
        context.fillStyle = colors[colourOf(bar.outcome)];
        context.fillRect(x, bar.lane * LANE + 4, Math.max(2, right - x), LANE - 8);
      }
    },
  };
}
