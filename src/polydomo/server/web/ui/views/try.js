// Try services over HTTP: a form for each typed service, made from /openapi.json, and one for any other service.

import { h, put } from "../dom.js";
import { get, serviceNames } from "../feed.js";
import { duration } from "../format.js";
import { field, group, resolve } from "../fields.js";
import { empty, explain, heading, suggestions } from "../parts.js";

export const title = "Try services";

const PARTIALS = "application/x-ndjson";

export function show(place, chosen) {
  const list = h("div", null, h("p", null, "Loading …"));
  const search = h("input", { type: "search", placeholder: "Filter", "aria-label": "Filter services", oninput: () => filter(list, search.value) });
  place.append(
    heading("Try services"),
    h("p", { class: "note" }, "Calls are made with POST /v1/call. The descriptions come from ", h("a", { href: "/openapi.json" }, "/openapi.json"), "."),
    h("h2", null, "Typed services"), h("p", { class: "tools" }, search), list,
    h("h2", null, "Any service"), untyped());
  let ended = false;
  get("/openapi.json").then((document) => {
    if (!ended) put(list, services(document, chosen));
  }).catch((error) => {
    if (!ended) put(list, explain(error));
  });
  return () => {
    ended = true;
  };
}

function services(document, chosen) {
  const paths = callable(document);
  if (!paths.length) return empty("No worker describes its service. A Python function with type annotations does. Every service can be called with the form below.");
  return paths.map(([path, item]) => service(document, path, item.post, chosen));
}

/** One typed service. Its form is built when it is opened: there may be a thousand. */
function service(document, path, operation, chosen) {
  const element = h("details", { class: "card service", dataset: { name: operation.operationId.toLowerCase() }, ontoggle: () => open() },
    h("summary", null, h("strong", null, operation.operationId), " ", operation.summary === operation.operationId ? "" : operation.summary));
  function open() {
    if (!element.open || element.childElementCount > 1) return;
    element.append(...typedForm(document, path, operation).filter(Boolean));
  }
  if (chosen && chosen === operation.operationId) {
    element.open = true;
    open();
    requestAnimationFrame(() => element.scrollIntoView());
  }
  return element;
}

/** The paths of typed services; the document has other endpoints too. */
function callable(document) {
  return Object.entries(document.paths || {}).filter(([path, item]) => path.startsWith("/v1/call/") && item.post);
}

/** The form of one service: made from its schema if it has one. */
export function tryForm(name) {
  const place = h("div", null, "Loading …");
  const plain = () => form(() => `/v1/call/${encodeURIComponent(name)}`, "application/octet-stream", textBody());
  get("/openapi.json").then((document) => {
    const found = callable(document).find(([, item]) => item.post.operationId === name);
    put(place, found ? typedForm(document, found[0], found[1].post) : plain());
  }).catch(() => put(place, plain()));
  return place;
}

function typedForm(document, path, operation) {
  const [media, content] = Object.entries(operation.requestBody.content)[0];
  const [schema] = resolve(content.schema, document);
  const arguments_ = media !== "application/json" ? textBody() : schema.properties ? group("", schema, document, true) : field("body", schema, document, true);
  return [operation.description && operation.description !== operation.summary ? h("p", null, operation.description) : null, form(() => path, media, arguments_)];
}

function untyped() {
  const names = suggestions("names", serviceNames());
  const name = h("input", { type: "text", required: true, list: "names", autocomplete: "off", spellcheck: "false", id: "any-service" });
  const body = textBody();
  const part = { element: h("div", null, h("div", { class: "field" }, h("label", { for: "any-service" }, "Service"), name, names), body.element), read: body.read };
  return form(() => `/v1/call/${encodeURIComponent(name.value)}`, "application/octet-stream", part);
}

function textBody() {
  const body = h("textarea", { rows: 3, spellcheck: "false" });
  return { element: h("div", { class: "field" }, h("label", null, "Body of the request", body)), read: () => body.value };
}

function form(path, media, part) {
  const answer = h("output", { class: "answer" });
  const partials = h("input", { type: "checkbox" });
  const time = h("input", { type: "text", inputmode: "decimal", value: "30", class: "short", "aria-label": "Timeout in seconds" });
  const button = h("button", { class: "primary" }, "Call");
  return h("form", { class: "call", novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    let body;
    try {
      body = part.read() ?? "";
    } catch (error) {
      put(answer, h("p", { class: "error" }, error.message));
      return;
    }
    button.disabled = true;
    try {
      await send(path(), media, body, time.value.trim() || "30", partials.checked, answer);
    } catch (error) {
      put(answer, h("p", { class: "error" }, error.message));
    }
    button.disabled = false;
  } }, part.element,
  h("p", { class: "tools" }, button, h("label", null, "Timeout ", time, " s"), h("label", null, partials, " Show partial replies")), answer);
}

async function send(path, media, body, timeout, partials, answer) {
  const headers = { "Content-Type": media, "Polydomo-Timeout": timeout };
  if (partials) headers.Accept = PARTIALS;
  const began = performance.now();
  const place = h("div");
  put(answer, place, h("p", { class: "note" }, "Waiting …"));
  const response = await fetch(path, { method: "POST", headers, body });
  if (partials && response.ok) await lines(response, place);
  else put(place, h("pre", { class: response.ok ? "" : "error" }, pretty(response, await response.text())));
  const story = response.headers.get("Polydomo-Request");
  put(answer, place,
    h("p", { class: "note" }, `${response.status} ${response.statusText}, ${duration((performance.now() - began) * 1000)}`, story ? [", ", h("a", { href: `#/request/${encodeURIComponent(story)}` }, "its history")] : null),
    h("details", null, h("summary", null, "As a curl command"), h("pre", null, curl(path, headers, body))));
}

/** Shows each line of the response when it arrives: partial replies, then the final one. */
async function lines(response, place) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    const pieces = (rest + (value || "")).split("\n");
    rest = done ? "" : pieces.pop();
    for (const line of pieces.filter(Boolean)) place.append(h("pre", null, line));
    if (done) return;
  }
}

function pretty(response, text) {
  if (!(response.headers.get("Content-Type") || "").includes("json")) return text;
  if (/[0-9]{16}/.test(text)) return text; // parsing would round large numbers
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function curl(path, headers, body) {
  const quote = (text) => `'${text.replaceAll("'", `'\\''`)}'`;
  const lines = Object.entries(headers).map(([name, value]) => `  -H ${quote(`${name}: ${value}`)}`);
  return [`curl ${quote(new URL(path, location.href).href)}`, ...lines, `  --data-binary ${quote(body)}`].join(" \\\n");
}

function filter(list, text) {
  const wanted = text.trim().toLowerCase();
  for (const one of list.querySelectorAll("details.service")) one.hidden = !one.dataset.name.includes(wanted);
}
