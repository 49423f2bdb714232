/** One frame: text, bytes, or anything else, which is sent as JSON. */
export type Frame = string | Uint8Array | ArrayBuffer | object | number | boolean | null;

/** A body: one frame, several, or a received message. */
export type Body = Frame | Frame[] | Message;

export class Message {
  constructor(frames: (string | { base64: string })[]);
  readonly frames: (string | Uint8Array)[];
  readonly bytes: Uint8Array;
  readonly text: string;
  readonly json: any;
}

/** A request, as a worker's function gets it. */
export interface Call extends Message {
  readonly service: string;
  readonly request: string;
  /** Seconds until the caller stops waiting, from when the request arrived; undefined if there is no limit. */
  readonly timeout?: number;
  /** Aborted when the caller does not wait any more, or the connection to the broker is lost. */
  readonly signal: AbortSignal;
}

export interface Problem {
  type: string;
  title?: string;
  status?: number;
  detail?: string;
  service?: string;
  request?: string;
  code?: string;
}

export class CallError extends Error {
  readonly problem: Problem;
  /** "no-worker", "timeout", "failed", "connection-lost", ... */
  readonly outcome: string;
  readonly code: string;
}

export class Failure extends Error {
  constructor(code: string, text?: string);
  readonly code: string;
}

export interface CallOptions {
  /** Seconds after which the call ends with the outcome "timeout". */
  timeout?: number;
  /** Seconds to wait for a worker if none offers the service. */
  wait?: number;
  /** An idempotency key: while a call with the same key is open, this one joins it. */
  key?: string;
  /** Aborting it cancels the call. */
  signal?: AbortSignal;
}

export interface ConnectOptions {
  /** false: do not connect again after the connection was lost. */
  reconnect?: boolean;
  /** true: keep trying if the first attempt fails. */
  retry?: boolean;
  protocols?: string[];
  onopen?(broker: Broker): void;
  onclose?(broker: Broker, event: CloseEvent): void;
  onerror?(error: Error): void;
}

export class Broker {
  constructor(url: string, options?: ConnectOptions);
  /** Resolves when the first connection is open. */
  readonly ready: Promise<Broker>;
  /** The broker's name for this connection, such as "c43". */
  readonly client: string;
  call(service: string, body?: Body, options?: CallOptions): Promise<Message>;
  stream(service: string, body?: Body, options?: CallOptions): AsyncGenerator<Message, void, void>;
  subscribe(topic: string, listener: (topic: string, message: Message) => void): () => void;
  publish(topic: string, body?: Body): void;
  work(
    service: string,
    run: (call: Call) => Body | void | Promise<Body | void> | AsyncIterable<Body> | Iterable<Body>,
    options?: { credit?: number },
  ): void;
  leave(): void;
  close(): void;
}

export function connect(url?: string, options?: ConnectOptions): Promise<Broker>;
