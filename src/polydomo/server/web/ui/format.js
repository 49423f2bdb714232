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

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" }); // to make one takes longer than to use it 20 times

/** An ISO 8601 time or seconds since the epoch in the reader's time zone: the time of day, with the date if that is not today;
 * with milliseconds if asked. */
export function clock(value, fine = false) {
  const date = new Date(typeof value === "number" ? value * 1000 : value);
  if (Number.isNaN(date.getTime())) return "–";
  const text = date.toDateString() === new Date().toDateString() ? TIME.format(date) : dateTime(date);
  return fine ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

/** The date and time in a time zone, such as that of a schedule: 2026-01-31 02:30:00 Europe/Berlin. */
export function inZone(value, zone) {
  const name = zone || "UTC";
  try {
    return `${dateTime(new Date(value), name)} ${name}`;
  } catch {
    return `${dateTime(new Date(value), "UTC")} UTC`; // the browser does not know the zone
  }
}

const zones = new Map(); // time zone -> its format

function dateTime(date, timeZone) {
  if (!zones.has(timeZone)) zones.set(timeZone, new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone })); // Swedish dates have the form of ISO 8601
  return zones.get(timeZone).format(date);
}

const NATURAL = new Intl.Collator("en", { numeric: true });

/** Compares two values of a column: numbers by value, texts as people read them (w2 before w10). */
export function compare(a, b) {
  if (typeof a === "string" && typeof b === "string") return NATURAL.compare(a, b) || (a < b ? -1 : a > b ? 1 : 0);
  return a < b ? -1 : a > b ? 1 : 0;
}

/** A share of a whole: 0 %, 0.4 %, 37 %. */
export function percent(part) {
  if (part === undefined || part === null || Number.isNaN(part)) return "–";
  const value = part * 100;
  return `${value > 0 && value < 10 ? value.toPrecision(2).replace(/\.?0+$/, "") : Math.round(value)} %`;
}

/** The time of a tick of an axis, in milliseconds: with seconds if ticks are closer than a minute, with the date at midnight. */
export function axisTime(value, step) {
  const date = new Date(value);
  if (step >= 3600e3 && date.getHours() === 0 && date.getMinutes() === 0) return date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
  return date.toLocaleTimeString("en-GB", step < 60e3 ? {} : { hour: "2-digit", minute: "2-digit" });
}

/** How long ago an ISO 8601 time was: "12 s ago". */
export function ago(value) {
  const past = Date.now() - new Date(value).getTime();
  return Number.isNaN(past) ? "–" : past < 1000 ? "now" : `${duration(Math.round(past / 1000) * 1e6)} ago`;
}

/** "1 worker", "3 workers". */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** An id of a client as text: its bytes in hexadecimal if they are not printable. */
export function printable(text) {
  if (!/[\u0000-\u001f\u007f-\u009f\ufffd\udc80-\udcff]|\\x/.test(text || "")) return text;
  const bytes = (one) => (/[\udc80-\udcff]/.test(one) ? [one.charCodeAt(0) & 255] : [...new TextEncoder().encode(one)]);
  return text.replace(/\\x([0-9a-f]{2})|[^]/gu, (one, byte) => byte || bytes(one).map((value) => value.toString(16).padStart(2, "0")).join(""));
}
