// The bearer token, where access control is on. It stays in this tab and is sent to this broker only.

const KEY = "polydomo.token";

/** Takes the token that `polydomo open` put behind the address, and removes it from there. */
export function takeToken() {
  const found = /^#token=([^&]+)/.exec(location.hash);
  if (found) {
    sessionStorage.setItem(KEY, decodeURIComponent(found[1]));
    history.replaceState(null, "", "#/services");
  }
}

export function token() {
  return sessionStorage.getItem(KEY) || "";
}

export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}
