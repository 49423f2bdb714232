// Form fields from a JSON Schema. A field returns JSON text, not a value, so that large integers keep all their digits.

import { h } from "./dom.js";

let fields = 0;

/** Follows a reference inside `root`, and reduces "a type or null" to the type. Returns [schema, may be null]. */
export function resolve(schema, root) {
  let found = schema === true || !schema ? {} : schema;
  for (let steps = 0; found.$ref && steps < 16; steps += 1) {
    const path = decodeURIComponent(found.$ref.slice(2)).split("/").map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));
    found = path.reduce((place, part) => (place || {})[part], root) || {};
  }
  const choices = found.anyOf || found.oneOf;
  if (choices) {
    const others = choices.filter((choice) => choice.type !== "null");
    if (others.length === 1 && others.length < choices.length) {
      const [inner] = resolve(others[0], root);
      return [{ ...inner, description: found.description || inner.description, default: found.default }, true];
    }
  }
  return [found, false];
}

/** A field of one parameter: {element, read()}. `read` returns JSON text, or undefined if it was left empty. */
export function field(name, schema, root, required, depth = 0) {
  const [type, nullable] = resolve(schema, root);
  const id = `field-${++fields}`;
  if (type.type === "object" && type.properties && depth < 4) return group(name, type, root, required, depth);
  const [input, read, kind] = control(id, type, required);
  const hint = [kind, required ? "required" : "optional", nullable ? "or null" : "", "default" in type && type.default !== undefined ? `default ${JSON.stringify(type.default)}` : ""];
  const element = h("div", { class: "field" },
    h("label", { for: id }, name, " ", h("span", { class: "note" }, hint.filter(Boolean).join(", "))),
    type.description ? h("p", { class: "note", id: `${id}-note` }, type.description) : null, input);
  if (type.description) input.setAttribute("aria-describedby", `${id}-note`);
  return { element, read() {
    input.removeAttribute("aria-invalid");
    try {
      return read();
    } catch (error) {
      input.setAttribute("aria-invalid", "true");
      input.focus();
      throw new Error(`${name}: ${error.message}`);
    }
  } };
}

/** The fields of an object: {element, read()}. */
export function group(name, type, root, required, depth = 0) {
  const wanted = new Set(type.required || []);
  const parts = Object.entries(type.properties || {}).map(([key, schema]) => [key, field(key, schema, root, wanted.has(key), depth + 1)]);
  const element = h("fieldset", null, name ? h("legend", null, name) : null, parts.map(([, part]) => part.element), parts.length ? null : h("p", { class: "note" }, "No parameters."));
  return { element, read() {
    const pairs = parts.map(([key, part]) => [key, part.read()]).filter(([, text]) => text !== undefined);
    if (!pairs.length && !required) return undefined;
    return `{${pairs.map(([key, text]) => `${JSON.stringify(key)}: ${text}`).join(", ")}}`;
  } };
}

function control(id, type, required) {
  if (type.enum) {
    const input = h("select", { id }, required ? null : h("option", { value: "" }, "–"), type.enum.map((value) => h("option", { value: JSON.stringify(value) }, String(value))));
    return [input, () => input.value || undefined, "one of these"];
  }
  if (type.type === "boolean") {
    const input = h("select", { id }, required ? null : h("option", { value: "" }, "–"), h("option", null, "true"), h("option", null, "false"));
    return [input, () => input.value || undefined, "boolean"];
  }
  if (type.type === "integer" || type.type === "number") {
    const input = h("input", { id, type: "text", inputmode: type.type === "integer" ? "numeric" : "decimal", required, autocomplete: "off" });
    const form = type.type === "integer" ? /^-?(0|[1-9][0-9]*)$/ : /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$/;
    return [input, () => {
      const text = input.value.trim();
      if (text && !form.test(text)) throw new Error(`${text} is not ${type.type === "integer" ? "an integer" : "a number"}`);
      return text || undefined;
    }, type.type];
  }
  if (type.type === "string") {
    const input = h("input", { id, type: "text", autocomplete: "off", spellcheck: "false" });
    return [input, () => (input.value || required ? JSON.stringify(input.value) : undefined), type.format || "text"];
  }
  const input = h("textarea", { id, rows: 2, spellcheck: "false", placeholder: type.type === "array" ? "[]" : "JSON" });
  return [input, () => {
    const text = input.value.trim();
    if (!text) return undefined;
    JSON.parse(text); // throws what is wrong with it
    return text;
  }, type.type ? `${type.type} as JSON` : "JSON"];
}
