// Services: rate, latency, queue and failures of each, with their last two minutes.

import { state } from "../dom.js";
import { data, watch } from "../feed.js";
import { count, duration, rate } from "../format.js";
import { sparkline } from "../sparkline.js";
import { table } from "../table.js";

export const title = "Services";

const latency = (us) => (us ? duration(us) : "–"); // nothing was answered in the last second

/** A column with a number and its sparkline. */
function trend(key, title, series, format, value) {
  return { key, title, number: true, sort: value, make(row) {
    const line = sparkline(`${title} of ${row.name}`, series);
    const number = document.createElement("span");
    const element = document.createElement("span");
    element.className = "trend";
    element.append(line.element, number);
    return { element, update(next) {
      const text = format(value(next));
      if (number.textContent !== text) number.textContent = text;
      const history = data.history.get(next.name);
      if (history) line.draw(history[series], format);
    } };
  } };
}

export function show(place) {
  const services = table({
    caption: "Services",
    key: (row) => row.name,
    sort: "rate",
    descending: true,
    filter: (row) => `${row.name} ${row.state} ${row.protocols.join(" ")}`,
    link: (row) => `#/service/${encodeURIComponent(row.name)}`,
    nothing: "No services yet. Start a worker, for example: polydomo work upper -- tr a-z A-Z",
    columns: [
      { key: "name", title: "Service" },
      { key: "state", title: "State", cell: (row) => state(row.state) },
      trend("rate", "Requests/s", "rate", rate, (row) => row.rate),
      trend("p99", "p99", "p99", latency, (row) => row.p99_us),
      { key: "p50_us", title: "Median", number: true, wide: true, cell: (row) => latency(row.p50_us) },
      trend("queued", "Queue", "queued", count, (row) => row.queued),
      trend("failed", "Failures/s", "failed", rate, (row) => row.failed_rate),
      { key: "workers", title: "Busy/workers", number: true, cell: (row) => `${count(row.busy)}/${count(row.workers)}` },
      { key: "oldest", title: "Oldest wait", number: true, wide: true, sort: (row) => row.oldest_wait_us, cell: (row) => (row.queued ? duration(row.oldest_wait_us) : "–") },
      { key: "protocols", title: "Protocols", wide: true, cell: (row) => row.protocols.join(", ") },
    ],
  });
  place.append(services.element);
  const update = () => data.figures && services.set(data.figures.services);
  update();
  return watch(update);
}
