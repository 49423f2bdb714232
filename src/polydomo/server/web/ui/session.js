// Logging in, where access control is on: `polydomo open` puts a one-time code behind the address, and the page exchanges it for a
// cookie that scripts cannot read.

/** Takes the code out of the address and logs in with it. */
export async function logIn() {
  const found = /^#token=([0-9a-f]+)/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", "#/services");
  await fetch("/v1/session", { method: "POST", body: found[1] });
}
