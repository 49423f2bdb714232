// The state of a service as people see it: a service that answers but fails many requests is failing, not ready.

/** The rule of GET /v1/problems. */
export function isFailing(row) {
  return row.recent_failed >= 5 && row.recent_failed / row.recent_requests >= 0.05;
}

export function serviceState(row) {
  if (isFailing(row) && !["paused", "drained", "lost", "left"].includes(row.state)) return "failing";
  return row.state === "busy" ? "all-busy" : row.state;
}

/** The share of failed requests in the last five minutes, or null if none ended. */
export function errorShare(row) {
  return row.recent_requests ? row.recent_failed / row.recent_requests : null;
}
