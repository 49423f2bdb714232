// Log in, if access control is on: `polydomo open` adds a one-time code to the address, and the page exchanges it for a
// cookie that scripts cannot read.

/** Takes the code out of the address and logs in with it. */
export async function logIn() {
  const found = /^#token=([0-9a-f]+)/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", "#/services");
  await fetch("/v1/session", { method: "POST", body: found[1] });
}
