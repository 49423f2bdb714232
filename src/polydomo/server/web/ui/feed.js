// The connection to the broker: one WebSocket for what changes, fetch for the rest. Only public endpoints are used.

/** What the page knows: `session` has the principal and its rights. */
export const data = { connected: false, session: null, signedOut: false };

const listeners = new Set();
const topics = new Map(); // prefix -> set of functions that get its messages
let socket = null;
let delay = 500;
let calls = 0;
const open = new Map(); // id of a call -> {resolve, reject, parts}

/** Calls `listener` after every change of the connection; returns a function that ends that. */
export function watch(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function notify() {
  for (const listener of listeners) listener();
}

/** Asks for the rights of this browser's session, then opens the WebSocket. Without a session, it does not try again. */
export async function connect() {
  try {
    data.session = await get("/v1/session");
  } catch {
    if (!data.signedOut) connectLater();
    return;
  }
  openSocket();
}

function connectLater() {
  notify();
  setTimeout(connect, delay);
  delay = Math.min(delay * 2, 8000);
}

function openSocket() {
  const url = new URL("/v1/ws", location.href);
  url.protocol = url.protocol.replace("http", "ws");
  socket = new WebSocket(url);
  socket.onopen = () => {
    delay = 500;
    data.connected = true;
    for (const prefix of topics.keys()) send({ op: "subscribe", topic: prefix });
    notify();
  };
  socket.onmessage = (event) => receive(JSON.parse(event.data));
  socket.onclose = () => {
    data.connected = false;
    for (const call of open.values()) call.reject(new Error("the connection to the broker was lost"));
    open.clear();
    connectLater();
  };
}

function send(message) {
  if (socket !== null && socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function receive(message) {
  if (message.op === "message") {
    for (const [prefix, functions] of topics) {
      if (message.topic.startsWith(prefix)) for (const each of functions) each(message.topic, message.frames);
    }
    return;
  }
  const call = open.get(message.id);
  if (call === undefined) return;
  if (message.op === "partial") call.parts.push(message.frames);
  else if (message.op === "final") {
    open.delete(message.id);
    call.resolve({ parts: call.parts, frames: message.frames, request: message.request });
  } else if (message.op === "failure") {
    open.delete(message.id);
    call.reject(Object.assign(new Error(message.problem.detail || message.problem.title), { problem: message.problem }));
  }
}

/** Frames as the WebSocket carries them, joined as text. */
export function text(frames) {
  return frames.map((frame) => (typeof frame === "string" ? frame : `[${frame.base64.length} characters of base64]`)).join("");
}

/** Calls `each(topic, frames)` for every message under the prefix, last values first; returns a function that ends that. */
export function subscribe(prefix, each) {
  if (!topics.has(prefix)) {
    topics.set(prefix, new Set());
    send({ op: "subscribe", topic: prefix });
  }
  topics.get(prefix).add(each);
  return () => {
    const functions = topics.get(prefix);
    functions.delete(each);
    if (!functions.size) {
      topics.delete(prefix);
      send({ op: "unsubscribe", topic: prefix });
    }
  };
}

/** Calls a service. Resolves to {parts, frames, request}; rejects with an Error that has the problem. */
export function call(service, frames, timeout) {
  const id = ++calls;
  return new Promise((resolve, reject) => {
    open.set(id, { resolve, reject, parts: [] });
    send({ op: "call", id, service, frames, timeout });
  });
}

/** GET of an endpoint as JSON. Rejects with an Error whose text can be shown. */
export async function get(path) {
  return request("GET", path);
}

/** The names of all services. */
export async function serviceNames() {
  return (await get("/v1/services")).map((row) => row.name);
}

export async function request(method, path, body) {
  const response = await fetch(path, { method, headers: { Accept: "application/json" }, body, cache: "no-store" });
  if (response.status === 401 && !data.signedOut) {
    data.signedOut = true;
    notify();
  }
  if (!response.ok) {
    const problem = await response.json().catch(() => ({}));
    const error = new Error(problem.detail || problem.title || `${response.status} ${response.statusText}`);
    error.status = response.status;
    throw error;
  }
  return response.status === 204 ? null : response.json();
}
