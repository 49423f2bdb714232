// A client and worker for polydomo, for browsers and Node.js (22 or newer, see docs/http.md): one WebSocket, no dependencies.
//
//   import { connect } from "/v1/polydomo.js";
//   const broker = await connect();
//   console.log((await broker.call("upper", "hello")).text);
//
// The types are in polydomo.d.ts; docs/http.md describes the messages.

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });

/** The frames of one request, reply or publication. */
export class Message {
  #frames;

  constructor(frames) {
    this.#frames = frames;
  }

  /** Each frame: a string, or a Uint8Array if it is not UTF-8. */
  get frames() {
    return this.#frames.map((frame) => (typeof frame === "string" ? frame : fromBase64(frame.base64)));
  }

  /** All frames joined, as bytes. */
  get bytes() {
    const parts = this.frames.map((frame) => (typeof frame === "string" ? encoder.encode(frame) : frame));
    const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
      joined.set(part, at);
      at += part.length;
    }
    return joined;
  }

  /** All frames joined, as text. Throws if they are not UTF-8. */
  get text() {
    return this.#frames.every((frame) => typeof frame === "string") ? this.#frames.join("") : decoder.decode(this.bytes);
  }

  /** All frames joined, as JSON. */
  get json() {
    return JSON.parse(this.text);
  }
}

/** A call that ended without a reply. `problem` is what HTTP would have returned. */
export class CallError extends Error {
  constructor(problem) {
    super(problem.detail || problem.title);
    this.name = "CallError";
    this.problem = problem;
    this.outcome = String(problem.type || "").replace("urn:polydomo:", "");
    this.code = problem.code || this.outcome;
  }
}

/** Throw one of these in a worker's function to report a failure with a code of your own. */
export class Failure extends Error {
  constructor(code, text = "") {
    super(text);
    this.name = "Failure";
    this.code = code;
  }
}

/** Connects to a broker: the one that this module came from, or the one at a ws:// or http:// address. */
export async function connect(url = defaultUrl(), options = {}) {
  if (typeof WebSocket === "undefined") throw new Error("there is no WebSocket here: use Node.js 22 or newer, start Node.js 20 with --experimental-websocket, or set globalThis.WebSocket to that of the package ws");
  const broker = new Broker(url, options);
  await broker.ready;
  return broker;
}

export class Broker {
  #socket;
  #options;
  #url;
  #next = 1;
  #calls = new Map(); // id -> { part, resolve, reject, frames }
  #listeners = new Map(); // topic prefix -> Set of functions
  #workers = new Map(); // service -> { run, credit }
  #jobs = new Map(); // token -> AbortController of a request that this worker runs
  #closed = false;
  #wait = 100; // milliseconds before the next attempt to connect

  constructor(url, options = {}) {
    this.#url = socketUrl(url);
    this.#options = options;
    this.client = "";
    this.ready = new Promise((resolve, reject) => this.#open(resolve, reject));
  }

  /** Calls a service; resolves to the final reply, with partial replies in front of it. */
  async call(service, body = [], options = {}) {
    const parts = [];
    const last = await this.#start(service, body, options, (message) => parts.push(...message));
    return new Message([...parts, ...last]);
  }

  /** Calls a service; yields each partial reply and then the final one. */
  async *stream(service, body = [], options = {}) {
    const queue = [];
    let wake = () => {};
    let done = false;
    let failure = null;
    let parts = 0;
    const controller = new AbortController();
    const signal = options.signal ? AbortSignal.any([options.signal, controller.signal]) : controller.signal;
    const push = (frames) => {
      parts += 1;
      queue.push(new Message(frames));
      wake();
    };
    this.#start(service, body, { ...options, signal }, push).then(
      (frames) => {
        if (!parts || frames.some((frame) => frame !== "")) queue.push(new Message(frames)); // an empty one only ends the stream
        done = true;
        wake();
      },
      (error) => {
        failure = error;
        done = true;
        wake();
      },
    );
    try {
      while (true) {
        while (queue.length) yield queue.shift();
        if (failure) throw failure;
        if (done) return;
        await new Promise((resolve) => (wake = resolve));
      }
    } finally {
      if (!done) controller.abort();
    }
  }

  /** Calls `listener(topic, message)` for every topic with this prefix: last values first. Returns a function that ends it. */
  subscribe(topic, listener) {
    let listeners = this.#listeners.get(topic);
    if (!listeners) {
      this.#listeners.set(topic, (listeners = new Set()));
      this.#send({ op: "subscribe", topic });
    }
    listeners.add(listener);
    return () => {
      listeners.delete(listener);
      if (!listeners.size && this.#listeners.get(topic) === listeners) {
        this.#listeners.delete(topic);
        this.#send({ op: "unsubscribe", topic });
      }
    };
  }

  publish(topic, body = []) {
    this.#send({ op: "publish", topic, frames: toFrames(body) });
  }

  /** Offers a service. `run(message)` returns the reply, or a promise or an (async) iterator of partial replies. */
  work(service, run, { credit = 1 } = {}) {
    this.#workers.set(service, { run, credit });
    this.#send({ op: "work", service, credit, cancel: true });
  }

  /** Stops working; requests that are held go to other workers. */
  leave() {
    this.#workers.clear();
    this.#send({ op: "leave" });
  }

  close() {
    this.#closed = true;
    this.#socket?.close(1000);
  }

  // --- the connection

  #open(resolve, reject) {
    const socket = new WebSocket(this.#url, this.#options.protocols);
    this.#socket = socket;
    socket.onmessage = (event) => {
      const message = JSON.parse(event.data);
      if (message.op === "hello") {
        this.client = message.client;
        this.#wait = 100;
        for (const topic of this.#listeners.keys()) this.#send({ op: "subscribe", topic });
        for (const [service, { credit }] of this.#workers) this.#send({ op: "work", service, credit, cancel: true });
        this.#options.onopen?.(this);
        resolve?.(this);
        resolve = reject = undefined;
      } else {
        this.#receive(message);
      }
    };
    socket.onclose = (event) => {
      for (const abort of this.#jobs.values()) abort.abort();
      this.#jobs.clear();
      const problem = { type: "urn:polydomo:connection-lost", detail: event.reason || "the connection to the broker was lost" };
      for (const call of this.#calls.values()) call.reject(new CallError(problem));
      this.#calls.clear();
      if (reject) {
        reject(new CallError({ ...problem, detail: `cannot connect to ${this.#url}` }));
        resolve = reject = undefined;
        if (!this.#options.retry) return;
      }
      this.#options.onclose?.(this, event);
      if (!this.#closed && this.#options.reconnect !== false) {
        setTimeout(() => this.#closed || this.#open(), this.#wait);
        this.#wait = Math.min(this.#wait * 2, 5000);
      }
    };
    socket.onerror = () => {}; // onclose follows
  }

  #send(message) {
    if (this.#socket?.readyState === 1) this.#socket.send(JSON.stringify(message));
  }

  #start(service, body, { timeout, wait, key, signal } = {}, part) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      if (this.#socket?.readyState !== 1) {
        return reject(new CallError({ type: "urn:polydomo:connection-lost", detail: "not connected to the broker" }));
      }
      const id = this.#next++;
      const abort = () => {
        this.#calls.delete(id);
        this.#send({ op: "cancel", id });
        reject(signal.reason);
      };
      const end = (settle) => (value) => {
        signal?.removeEventListener("abort", abort);
        settle(value);
      };
      signal?.addEventListener("abort", abort, { once: true });
      this.#calls.set(id, { part, resolve: end(resolve), reject: end(reject) });
      this.#send({ op: "call", id, service, frames: toFrames(body), timeout, wait, key });
    });
  }

  #receive(message) {
    const call = this.#calls.get(message.id);
    switch (message.op) {
      case "partial":
        call?.part(message.frames);
        break;
      case "final":
        this.#calls.delete(message.id);
        call?.resolve(message.frames);
        break;
      case "failure":
        this.#calls.delete(message.id);
        call?.reject(new CallError(message.problem));
        break;
      case "message":
        for (const [prefix, listeners] of this.#listeners) {
          if (message.topic.startsWith(prefix)) {
            for (const listener of listeners) listener(message.topic, new Message(message.frames));
          }
        }
        break;
      case "job":
        this.#serve(message);
        break;
      case "cancel":
        this.#jobs.get(message.token)?.abort();
        break;
      case "error":
        if (call) {
          this.#calls.delete(message.id);
          call.reject(new CallError({ type: "urn:polydomo:bad-request", detail: message.text }));
        } else {
          this.#options.onerror?.(new Error(message.text));
        }
        break;
    }
  }

  async #serve(job) {
    const { token } = job;
    const abort = new AbortController();
    this.#jobs.set(token, abort);
    try {
      const worker = this.#workers.get(job.service);
      if (!worker) throw new Failure("not-offered", "the worker no longer offers this service");
      const call = new Message(job.frames);
      call.service = job.service;
      call.request = job.request;
      call.timeout = job.timeout;
      call.signal = abort.signal;
      const outcome = await worker.run(call);
      if (outcome && typeof outcome === "object" && !isBody(outcome) && (outcome[Symbol.asyncIterator] || outcome[Symbol.iterator])) {
        for await (const part of outcome) {
          if (abort.signal.aborted) break;
          this.#send({ op: "reply", token, frames: toFrames(part), final: false });
        }
        this.#send({ op: "reply", token, frames: [], final: true });
      } else {
        this.#send({ op: "reply", token, frames: toFrames(outcome ?? []), final: true });
      }
    } catch (error) {
      this.#send({ op: "fail", token, code: error.code ? String(error.code) : "failed", text: String(error.message || error) });
    } finally {
      this.#jobs.delete(token); // a cancelled request is answered too: the broker drops the answer and counts the worker as free
    }
  }
}

// --- bodies

function isBody(value) {
  return value instanceof Uint8Array || Array.isArray(value) || value instanceof Message;
}

/** A string, a Uint8Array, an ArrayBuffer or a Message is one body; an array has one frame per item; other objects are sent as JSON. */
function toFrames(body) {
  if (body instanceof Message) return body.frames.map(toFrame);
  return (Array.isArray(body) ? body : [body]).map(toFrame);
}

function toFrame(value) {
  if (typeof value === "string") return value;
  if (value instanceof ArrayBuffer) value = new Uint8Array(value);
  if (!(value instanceof Uint8Array)) return JSON.stringify(value);
  let text = "";
  for (let at = 0; at < value.length; at += 32768) text += String.fromCharCode(...value.subarray(at, at + 32768));
  return { base64: btoa(text) };
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

function defaultUrl() {
  const here = new URL(import.meta.url);
  return here.protocol.startsWith("http") ? here.origin : "http://127.0.0.1:5246";
}

function socketUrl(url) {
  const found = new URL("/v1/ws", url);
  found.protocol = found.protocol.replace("http", "ws");
  return found.href;
}
