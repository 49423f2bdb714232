// The history of one request as a waterfall: its waits, its workers and its outcome.

import { h, put, state, svg } from "../dom.js";
import { get } from "../feed.js";
import { clock, duration } from "../format.js";
import { explain } from "../poll.js";

export const title = "Request";

const WIDTH = 760;
const ROW = 30;
const LEFT = 170;

export function show(place, id) {
  const story = h("div", null, h("p", null, "Loading …"));
  place.append(h("p", null, h("a", { href: "#/requests" }, "← Open requests")), h("h1", { class: "id" }, id), story);
  let ended = false;
  let timer = 0;

  async function load() {
    try {
      const found = await get(`/v1/requests/${encodeURIComponent(id)}`);
      if (ended) return;
      put(story, facts(found), waterfall(found), steps(found));
      if (!found.outcome) timer = setTimeout(load, 1000); // still open
    } catch (error) {
      if (!ended) put(story, explain(error));
    }
  }

  load();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

function facts(found) {
  const rows = [
    ["Service", h("a", { href: `#/service/${encodeURIComponent(found.service)}` }, found.service)],
    ["Outcome", found.outcome ? [state(found.outcome), found.reason ? ` ${found.reason}` : ""] : state(found.state || "open")],
    ["Client", [found.client, found.protocol ? ` (${found.protocol})` : ""]],
    ["Attempts", found.attempts],
    ["Total", duration(found.total_us ?? found.age_us)],
    ["Waited", duration(found.wait_us)],
    ["Trace", found.trace],
  ];
  return h("dl", { class: "facts" }, rows.filter(([, value]) => value !== undefined && value !== null && value !== "").map(([name, value]) => h("div", null, h("dt", null, name), h("dd", null, value))));
}

function waterfall(found) {
  const spans = (found.spans || []).filter((span) => span.end_us !== undefined);
  if (!spans.length) return null;
  const total = Math.max(...spans.map((span) => span.end_us), 1);
  const scale = (us) => LEFT + (us / total) * (WIDTH - LEFT - 10);
  const height = spans.length * ROW + 34;
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => [svg("line", { class: "tick", x1: scale(total * part), x2: scale(total * part), y1: 22, y2: height }), svg("text", { x: scale(total * part), y: 14, "text-anchor": part === 1 ? "end" : part ? "middle" : "start" }, duration(total * part))]);
  const bars = spans.map((span, index) => {
    const y = 26 + index * ROW;
    const width = Math.max(2, scale(span.end_us) - scale(span.start_us));
    return [svg("text", { x: 0, y: y + 18 }, span.name), svg("rect", { class: `span ${/^[a-z-]+$/.test(span.kind) ? span.kind : ""}`, x: scale(span.start_us), y: y + 4, width, height: ROW - 10, rx: 3 }, svg("title", null, `${span.name}: ${duration(span.end_us - span.start_us)}`)), svg("text", { class: "inside", x: Math.min(scale(span.start_us) + width + 6, WIDTH - 60), y: y + 18 }, duration(span.end_us - span.start_us))];
  });
  const label = spans.map((span) => `${span.name} ${duration(span.end_us - span.start_us)}`).join(", ");
  return h("figure", null, h("div", { class: "scroll" }, svg("svg", { class: "waterfall", viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height, role: "img", "aria-label": `Waterfall: ${label}` }, ticks, bars)));
}

function steps(found) {
  const lines = found.events || [];
  if (!lines.length) return null;
  return [h("h2", null, "Events"), h("ol", { class: "steps" }, lines.map((line) => h("li", null, h("time", null, line.time ? clock(line.time) : duration(line.at_us)), " ", line.text)))];
}
