// Topics and their last values.

import { h, put } from "../dom.js";
import { subscribe, text } from "../feed.js";
import { bytes } from "../format.js";
import { cli, empty, heading } from "../parts.js";
import { poll } from "../poll.js";
import { table } from "../table.js";

export const title = "Topics";

export function show(place) {
  const errors = h("div");
  const value = h("output", { class: "answer" });
  let end = null;

  function look(topic) {
    if (end) end();
    put(value, h("h2", null, topic), h("p", null, "Waiting for its value …"));
    end = subscribe(topic, (name, frames) => {
      if (name === topic) put(value, h("h2", null, topic), frames.map((frame) => h("pre", null, text([frame]))));
    });
  }

  const topics = table({
    caption: "Topics",
    key: (row) => row.topic,
    sort: "topic",
    filter: (row) => row.topic,
    nothing: empty("No topic has a value. Publish one:", cli("publish weather.oslo snow")),
    columns: [
      { key: "topic", title: "Topic", grow: 40 },
      { key: "bytes", title: "Size", number: true, sort: (row) => row.size_bytes, cell: (row) => bytes(row.size_bytes) },
      { key: "value", title: "Last value", grow: 60, long: true, cell: (row) => row.value ?? "not text" },
      { key: "look", title: "", actions: true, make: (row) => ({ element: h("button", { type: "button", class: "small", onclick: () => look(row.topic) }, "Follow"), update() {} }) },
    ],
  });
  place.append(heading("Topics"), value, errors, topics.element);
  const stop = poll(() => "/v1/topics", (rows) => topics.set(rows), errors);
  return () => {
    stop();
    if (end) end();
  };
}
