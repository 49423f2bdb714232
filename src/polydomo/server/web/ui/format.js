// Numbers, durations and times for people.

const UNITS = [[1, "µs"], [1e3, "ms"], [1e6, "s"], [60e6, "min"], [3600e6, "h"], [86400e6, "d"]];

/** A duration given in microseconds: 850 µs, 12 ms, 3.4 s, 5 min. */
export function duration(us) {
  if (us === undefined || us === null || Number.isNaN(us)) return "–";
  let unit = UNITS[0];
  for (const candidate of UNITS) if (Math.abs(us) >= candidate[0]) unit = candidate;
  const value = us / unit[0];
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toPrecision(2).replace(/\.0$/, "")} ${unit[1]}`;
}

/** A number with its thousands apart. */
export function count(value) {
  return value === undefined || value === null ? "–" : Number(value).toLocaleString("en-US");
}

/** A rate per second: 0, 0.4, 37, 12,500. */
export function rate(value) {
  if (!value) return "0";
  return value < 10 ? value.toFixed(1) : count(Math.round(value));
}

/** A size in bytes: 512 B, 1.5 MiB. */
export function bytes(value) {
  if (value === undefined || value === null) return "–";
  let unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    unit += 1;
  }
  return `${unit && value < 100 ? value.toPrecision(2) : Math.round(value)} ${["B", "KiB", "MiB", "GiB", "TiB"][unit]}`;
}

/** The time of day of an ISO 8601 time or of seconds since the epoch, in the reader's time zone. */
export function clock(value) {
  const date = new Date(typeof value === "number" ? value * 1000 : value);
  return Number.isNaN(date.getTime()) ? "–" : date.toLocaleTimeString([], { hour12: false });
}
