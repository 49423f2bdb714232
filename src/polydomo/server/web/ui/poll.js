// Data that is not pushed is fetched every few seconds while the page is visible.

import { put } from "./dom.js";
import { get } from "./feed.js";
import { explain } from "./parts.js";

const EVERY = 2000;

/** Calls `take(rows)` with what the endpoint returns, now and every two seconds; shows an error in `place`. Returns the end. */
export function poll(path, take, place, every = EVERY) {
  let ended = false;
  let timer = 0;
  let failed = false;

  async function ask() {
    if (document.visibilityState === "visible") {
      try {
        const rows = await get(path());
        if (ended) return;
        if (failed) put(place);
        failed = false;
        take(rows);
      } catch (error) {
        if (ended) return;
        failed = true;
        put(place, explain(error));
      }
    }
    if (!ended) timer = setTimeout(ask, every);
  }

  ask();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}

