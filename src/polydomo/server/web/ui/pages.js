// The pages of the dashboard: six tabs, and the pages under each. A page is the module of its name in views/, which exports its
// `title` and `show(place, parameter, query)`; `show` fills the place and returns a function that ends the page. A new page needs
// its module and a line here.

// name, title, key after g, pages under the tab as [name, title]; the first has the name of the tab
export const TABS = [
  ["overview", "Overview", "o", [["overview", "Overview"]]],
  ["services", "Services", "s", [["services", "Services"], ["workers", "Workers"], ["try", "Try"]]],
  ["requests", "Requests", "r", [["requests", "Requests"], ["live", "Live"]]],
  ["jobs", "Jobs", "j", [["jobs", "Jobs"], ["flows", "Flows"], ["schedules", "Schedules"]]],
  ["logs", "Logs", "l", [["logs", "Logs"]]],
  ["more", "More", "m", [["more", "This broker"], ["traffic", "Traffic"], ["clients", "Clients"], ["topics", "Topics"], ["catalog", "Catalog"], ["bridges", "Bridges"], ["events", "Events"]]],
];

// pages that are reached by links only, and the page of the navigation that they belong to
export const DETAILS = { service: "services", request: "requests", job: "jobs", run: "flows" };

// further keys after g
export const KEYS = { w: "workers", f: "flows", v: "live", t: "traffic", c: "clients", y: "try", e: "events" };

// addresses of earlier versions
export const RENAMED = { flow: "traffic" };

/** The tab that has a page, or undefined if there is no such page. */
export function tabOf(page) {
  const listed = DETAILS[page] || page;
  return TABS.find(([, , , pages]) => pages.some(([name]) => name === listed));
}

/** The parts of an address such as #/service/upper?range=1h. */
export function parse(hash) {
  const [, page = "overview", parameter = "", query = ""] = /^#\/([^/?]+)(?:\/([^?]*))?(?:\?(.*))?$/.exec(hash) || [];
  return { page: RENAMED[page] || page, parameter: decode(parameter), query: new URLSearchParams(query) };
}

function decode(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The address of a page. Empty values of the query are left out. */
export function address(page, parameter = "", query = {}) {
  const filled = new URLSearchParams(Object.entries(query).filter(([, value]) => value));
  return `#/${page}${parameter ? `/${encodeURIComponent(parameter)}` : ""}${filled.size ? `?${filled}` : ""}`;
}
