// The time picker: how far back the charts of a page go. It is part of the address, so that a link shows the same.

import { h } from "../dom.js";

// title, what the endpoint takes, milliseconds, the step of the points
export const RANGES = [
  ["5 min", "5m", 300e3, "10s"],
  ["15 min", "15m", 900e3, "10s"],
  ["1 h", "1h", 3600e3, "10s"],
  ["6 h", "6h", 6 * 3600e3, "5m"],
  ["24 h", "24h", 24 * 3600e3, "5m"],
];

/** The range of a name such as "1h"; one hour for any other. */
export function rangeOf(value) {
  const [title, key, span, step] = RANGES.find(([, one]) => one === value) || RANGES[2];
  return { title, key, span, step };
}

/** Buttons of which one is pressed. `change(range)` is called with the chosen one. */
export function rangePicker(chosen, change) {
  const buttons = RANGES.map(([title, key]) => h("button", { type: "button", "aria-pressed": String(key === chosen.key), onclick: (event) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === event.currentTarget));
    change(rangeOf(key));
  } }, title));
  return h("div", { class: "segments", role: "group", "aria-label": "Time range" }, buttons);
}
