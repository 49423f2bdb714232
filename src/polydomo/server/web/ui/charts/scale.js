// Scales of charts: from values and times to places on the screen, and the ticks of an axis. Pure functions, tested in
// tests/server/web/test_charts.py.

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const TIME_STEPS = [SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR];

// The steps of an axis of durations, in microseconds: people expect 15 s and 1 min, not 20 s and 100 s.
const DURATION_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 15e6, 3e7, 6e7, 12e7, 3e8, 6e8, 9e8, 18e8, 36e8, 72e8, 216e8, 432e8, 864e8];

/** A function from [from, to] to [start, end]. */
export function linear(from, to, start, end) {
  const span = to - from || 1;
  return (value) => start + ((value - from) / span) * (end - start);
}

const DECADES = [1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7, 6e7, 6e8, 36e8, 864e8];

/** Like linear, by orders of magnitude. What is below `from` is at its place. */
export function logarithmic(from, to, start, end) {
  const place = linear(Math.log(from), Math.log(to), start, end);
  return (value) => place(Math.log(Math.max(value, from)));
}

/** The ticks of a logarithmic axis of durations, or null if the values do not differ by orders of magnitude. */
export function durationDecades(values, most = 5) {
  const known = values.filter((value) => value > 0);
  const [low, high] = known.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, 0]);
  if (high < 100 * low) return null;
  const first = DECADES.findLastIndex((one) => one <= low);
  const last = DECADES.findIndex((one) => one >= high);
  const ticks = DECADES.slice(Math.max(first, 0), last < 0 ? undefined : last + 1);
  const step = Math.ceil((ticks.length - 1) / (most - 1));
  return ticks.filter((_, index) => index % step === 0 || index === ticks.length - 1);
}

/** The smallest of 1, 2 and 5 times a power of ten that is at least `value`. */
export function niceStep(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const factor of [1, 2, 5]) if (factor * power >= value * (1 - 1e-9)) return factor * power;
  return 10 * power;
}

/** The ticks of an axis of values from 0 to at least `most`. With `whole`, only integers; with `durations`, steps that clocks have. */
export function valueTicks(most, wanted = 4, { whole = false, durations = false } = {}) {
  const top = most > 0 && Number.isFinite(most) ? most : 1;
  let step = durations ? DURATION_STEPS.find((one) => one >= top / wanted) || niceStep(top / wanted) : niceStep(top / wanted);
  if (whole && step < 1) step = 1;
  const ticks = [];
  for (let index = 0; ; index += 1) {
    const tick = Number((index * step).toPrecision(12));
    ticks.push(tick);
    if (tick >= top * (1 - 1e-9)) return ticks;
  }
}

/** Ticks between two times, in milliseconds, at round times of the reader's zone. `offset` is that zone's, in minutes as of Date. */
export function timeTicks(from, to, wanted = 6, offset = new Date(to).getTimezoneOffset()) {
  const step = TIME_STEPS.find((one) => one >= (to - from) / wanted) || TIME_STEPS[TIME_STEPS.length - 1];
  const shift = offset * MINUTE;
  const ticks = [];
  for (let tick = Math.ceil((from - shift) / step) * step + shift; tick <= to; tick += step) ticks.push(tick);
  return { step, ticks };
}

/** The index of the value nearest to `wanted` in a sorted list, or -1 if the list is empty. */
export function nearest(sorted, wanted) {
  let low = 0;
  let high = sorted.length - 1;
  if (high < 0) return -1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < wanted) low = middle;
    else high = middle;
  }
  return wanted - sorted[low] <= sorted[high] - wanted ? low : high;
}

/** Groups of neighbouring indexes whose values are known: lines are broken where there is no value. */
export function runs(values) {
  const found = [];
  let current = null;
  values.forEach((value, index) => {
    if (value === null || value === undefined) current = null;
    else if (current) current.push(index);
    else found.push((current = [index]));
  });
  return found;
}
