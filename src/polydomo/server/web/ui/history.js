// The charts of a service or of the broker, from GET /v1/history.

import { h, setText } from "./dom.js";
import { chart, cursor } from "./charts/chart.js";
import { rangePicker } from "./charts/range.js";
import { count, duration, percent, rate } from "./format.js";
import { poll } from "./poll.js";

const EVERY = 10_000; // milliseconds: the broker has nothing newer before

const SHORTEST = 300_000; // milliseconds that a chart shows at least

const share = (point) => (point.requests ? point.failed / point.requests : null);

/**
 * Points of the endpoint for charts: with `at` in milliseconds, rates, and a point without values where the broker did not run. The
 * last point of a long step covers the samples so far, one every ten seconds.
 */
export function toPoints({ step, points }, now = Date.now()) {
  const found = [];
  for (const point of points) {
    const at = Date.parse(point.time);
    const last = found[found.length - 1];
    if (last && at - last.at > step * 1500) found.push({ at: last.at + step * 1000, gap: true });
    const seconds = Math.min(step, Math.max(10, Math.floor((now - at) / EVERY) * 10));
    found.push({ ...point, at, seconds, rate: point.requests / seconds, failedRate: point.failed / seconds, share: share(point) });
  }
  return found;
}

/** Requests, failed ones and their share in the last `span` milliseconds of the points. */
export function recent(points, span) {
  const since = points.length ? points[points.length - 1].at - span : 0;
  const some = points.filter((point) => !point.gap && point.at > since);
  const requests = some.reduce((sum, point) => sum + point.requests, 0);
  const failed = some.reduce((sum, point) => sum + point.failed, 0);
  const seconds = some.reduce((sum, point) => sum + point.seconds, 0);
  return { requests, failed, share: requests ? failed / requests : null, rate: seconds ? requests / seconds : 0 };
}

const value = (key) => (point) => (point.gap ? null : point[key]);

/**
 * Charts of rate, errors, latency and queue, with a time picker: {element, picker, end()}. `service` is a name, or "" for the broker.
 * `seen(points)` is called with every load.
 */
export function charts(service, range, change, seen) {
  const shared = cursor();
  let now = range;
  let end = () => {};
  const errors = h("div");
  const parts = [
    chart({ title: "Requests/s", format: rate, shared, least: 1, series: [{ title: "ended", kind: "rate", area: true, value: value("rate") }, { title: "failed", kind: "failed", area: true, value: value("failedRate") }] }),
    chart({ title: "Latency", format: duration, shared, durations: true, least: 1000, series: [{ title: "p99", kind: "p99", value: value("p99_us") }, { title: "p95", kind: "p95", value: value("p95_us") }, { title: "p50", kind: "p50", value: value("p50_us") }] }),
    chart({ title: "Error share", format: percent, shared, least: 0.04, series: [{ title: "failed", kind: "failed", area: true, value: value("share") }] }),
    chart({ title: "Queue and workers", format: count, shared, whole: true, least: 3, series: [{ title: "queued", kind: "queue", area: true, value: value("queue") }, { title: "workers", kind: "p50", value: value("workers") }] }),
  ];

  function load() {
    end();
    const path = () => `/v1/history?from=-${now.key}&step=${now.step}${service ? `&service=${encodeURIComponent(service)}` : ""}`;
    end = poll(path, (found) => {
      const points = toPoints(found);
      const to = Date.now();
      const from = Math.max(to - now.span, Math.min(points.length ? points[0].at : 0, to - SHORTEST)); // no empty hours of a young broker
      for (const part of parts) part.draw(points, from, to);
      if (seen) seen(points);
    }, errors, EVERY);
  }

  const picker = rangePicker(range, (next) => {
    now = next;
    change(next);
    load();
  });
  load();
  return { element: h("div", null, errors, h("div", { class: "cards charts" }, parts.map((part) => part.element))), picker, end: () => end() };
}

/** Numbers in a row: {element, set(values)}; `titles` name them. */
export function tiles(titles) {
  const numbers = titles.map(() => h("dd", null, "–"));
  return {
    element: h("dl", { class: "tiles" }, titles.map((title, index) => h("div", null, h("dt", null, title), numbers[index]))),
    set: (values) => values.forEach((value, index) => setText(numbers[index], value)),
  };
}

/** The numbers of the tiles that belong to points. */
export function figuresOf(points) {
  const last = points[points.length - 1] || {};
  const minute = recent(points, 60_000);
  const five = recent(points, 300_000);
  const timed = points.findLast((point) => point.p50_us);
  const latency = (key) => (timed ? duration(timed[key]) : "–");
  return [rate(minute.rate), five.share === null ? "–" : percent(five.share), latency("p50_us"), latency("p95_us"), latency("p99_us"), count(last.queue ?? 0), count(last.workers ?? 0)];
}

export const TILES = ["Requests/s", "Failed", "p50", "p95", "p99", "Queued", "Workers"];
