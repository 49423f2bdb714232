// The connection to the broker: one WebSocket for what changes, fetch for the rest. Only public endpoints are used.

const POLL = 2000; // milliseconds between two fetches of the figures, for a principal that may not subscribe to them

/** What the page knows. `figures` is the newest message of the topic monitor.figures; `session` the principal and its rights. */
export const data = { figures: null, connected: false, draining: false, session: null, signedOut: false };

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

/**
 * Calls `each(figures)` about once a second while it is wanted; returns a function that ends that. The broker sends the figures
 * only while a page shows them: with many services they are long.
 */
export function watchFigures(each) {
  if (data.figures !== null && Date.now() - data.figuresAt < 3 * POLL) each(data.figures);
  if (data.session && data.session.tap) return subscribe("monitor.figures", (_topic, frames) => each(takeFigures(JSON.parse(text(frames)))));
  let ended = !(data.session && data.session.inspect);
  async function ask() {
    if (ended) return;
    if (document.visibilityState === "visible" && data.connected) {
      try {
        const found = takeFigures(await get("/v1/figures"));
        if (!ended) each(found);
      } catch {
        // shown by the page, or the connection is lost
      }
    }
    setTimeout(ask, POLL);
  }
  ask();
  return () => {
    ended = true;
  };
}

function takeFigures(figures) {
  data.figures = figures;
  data.figuresAt = Date.now();
  if (data.draining !== figures.draining) {
    data.draining = figures.draining;
    notify();
  }
  return figures;
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
