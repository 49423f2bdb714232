// Small helpers to build and update the page. Text always goes in as text nodes, never as HTML, so that no name or body can
// inject markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** An HTML element: h("td", {class: "number"}, "42"). */
export function h(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

const sameAs = (one) => `${one.tagName} ${one.getAttribute("href")} ${one.textContent}`;

/** Replaces what an element contains. A link or button that is there again keeps the focus. */
export function put(element, ...children) {
  const active = document.activeElement;
  const wanted = active !== element && element.contains(active) && sameAs(active);
  element.replaceChildren();
  append(element, children);
  const again = wanted && [...element.querySelectorAll("a, button")].find((one) => sameAs(one) === wanted);
  if (again) again.focus({ preventScroll: true });
  return element;
}

/** Sets the text of an element, and touches the page only if it changed. */
export function setText(element, text) {
  const value = String(text);
  if (element.textContent !== value) element.textContent = value;
}

/** Sets an attribute, and touches the page only if it changed. */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
