// Log in, if access control is on: `polydomo open` adds a one-time code to the address, and the page exchanges it for a
// cookie that scripts cannot read.

import { h, put } from "./dom.js";

/** Takes the code out of the address and logs in with it. Returns why that failed, or "". */
export async function logIn() {
  const found = /^#token=([0-9a-f]+)/.exec(location.hash);
  if (!found) return "";
  history.replaceState(null, "", "#/overview");
  const response = await fetch("/v1/session", { method: "POST", body: found[1] });
  return response.ok ? "" : "The code in the address was used before, or has expired.";
}

/** The page for a browser without a session. It does not try again by itself. */
export function showSignIn(place, why) {
  const to = `${location.protocol === "https:" ? "tls+tcp" : "tcp"}://${location.host}`;
  document.title = "Sign in – polydomo";
  document.body.classList.add("signed-out");
  put(place, h("section", { class: "signin" },
    h("h1", null, "Sign in"),
    why ? h("p", { class: "error" }, why) : null,
    h("p", null, "This broker has access control. Run this command on your machine, with your key and the broker's public key:"),
    h("pre", null, h("code", null, `polydomo open --to ${to} --key YOU.key_secret --server-key server.key`)),
    h("p", null, "It opens this page with a code that signs you in. The code works once and expires after a minute; the session lasts twelve hours."),
    h("p", null, h("button", { type: "button", onclick: () => location.reload() }, "I have signed in"))));
}
