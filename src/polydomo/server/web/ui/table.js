// A table that sorts, filters, pages and updates in place. Rows keep their elements while their key stays, so that focus and
// selection survive an update, and a thousand rows cost little.

import { h, put, setAttribute, setText } from "./dom.js";
import { compare } from "./format.js";
import { empty, name } from "./parts.js";

const PAGE = 100;

/**
 * columns: [{key, title, cell(row) -> text or element, sort(row) -> value, number, wide, extra, grow, actions, make(row)}].
 * `wide` columns are hidden on a phone, `extra` ones below 1400 px too. A column with `grow` takes that share of the room that is
 * left; what does not fit ends in an ellipsis, and hovering shows all of it. A `long` one has a line of its own on a phone. A column of `actions` stays visible when the table
 * scrolls. `make(row)` returns {element, update(row)}, which is kept and updated. `link(row)` is the address behind the first column.
 * `nothing` is an element, or text. Without `sort` the rows stay in their order, and heads are no buttons.
 */
export function table({ caption, columns, key, sort, descending = false, filter, nothing, link, tools }) {
  let rows = [];
  let order = { column: columns.find((column) => column.key === sort) || columns[0], descending };
  let words = "";
  let shown = PAGE;
  const kept = new Map(); // key of a row -> {element, cells}
  const body = h("tbody");
  const heads = columns.map((column) => head(column));
  const found = h("p", { class: "found", role: "status" });
  const more = h("button", { type: "button", class: "more", onclick: () => { shown += PAGE * 5; render(); } }, "Show more");
  const search = filter && h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${caption}`, title: "Filter (/)", oninput: (event) => { words = event.target.value.toLowerCase(); shown = PAGE; render(); } });
  const blank = h("div", { hidden: true }, nothing instanceof Node ? nothing : empty(nothing || "Nothing here."));
  const unmatched = h("p", { class: "empty", hidden: true }, "Nothing matches the filter.");
  const grid = h("table", null, h("caption", { class: "hidden" }, caption), h("thead", null, h("tr", null, heads.map((one) => one.element))), body);
  const element = h("div", { class: "table" }, search || tools ? h("div", { class: "tools" }, search, tools, found) : null, h("div", { class: "scroll" }, grid), blank, unmatched, more);
  grid.hidden = true;

  function head(column) {
    const button = sort && column.title && !column.actions ? h("button", { type: "button", onclick: () => {
      order = { column, descending: order.column === column ? !order.descending : Boolean(column.number) };
      render();
    } }, column.title) : h("span", null, column.title);
    const element = h("th", { scope: "col", class: classes(column), title: column.hint }, button);
    if (column.grow) element.style.width = `${column.grow}%`;
    return { column, element };
  }

  function classes(column) {
    return ["number", "wide", "extra", "actions", "grow", "long"].filter((one) => column[one]).join(" ") || undefined;
  }

  function value(row) {
    const found = order.column.sort ? order.column.sort(row) : row[order.column.key];
    return found === undefined || found === null ? "" : found;
  }

  function byOrder(a, b) {
    const sign = compare(value(a), value(b));
    return (order.descending ? -sign : sign) || compare(key(a), key(b));
  }

  function make(row) {
    const cells = columns.map((column) => {
      const first = column === columns[0];
      const made = column.make ? column.make(row) : null;
      const content = made ? made.element : first && link && !column.cell ? name("", link(row)) : h("span", { class: column.grow ? "name" : undefined });
      return { column, made, content, text: null, element: h(first ? "th" : "td", { scope: first ? "row" : undefined, class: classes(column), "data-title": column.title }, content) };
    });
    return { element: h("tr", null, cells.map((cell) => cell.element)), cells };
  }

  function update(entry, row) {
    for (const cell of entry.cells) {
      if (cell.made) {
        cell.made.update(row);
        continue;
      }
      const given = cell.column.cell ? cell.column.cell(row) : row[cell.column.key];
      const content = given === undefined || given === null || given === "" ? "–" : given;
      if (cell.column.long) cell.element.classList.toggle("none", content === "–");
      if (content instanceof Node) {
        const text = `${content.className}${content.getAttribute("href") || ""} ${content.textContent}`;
        if (text !== cell.text) put(cell.content, content);
        cell.text = text;
      } else {
        setText(cell.content.firstElementChild || cell.content, content);
        if (cell.column.grow) setAttribute(cell.content, "title", String(content));
      }
    }
  }

  function render() {
    if (sort) for (const one of heads) one.element.setAttribute("aria-sort", one.column === order.column ? (order.descending ? "descending" : "ascending") : "none");
    const matching = words ? rows.filter((row) => filter(row).toLowerCase().includes(words)) : rows;
    const visible = (sort ? [...matching].sort(byOrder) : matching).slice(0, shown);
    const wanted = new Set();
    let place = body.firstChild;
    for (const row of visible) {
      const id = key(row);
      wanted.add(id);
      let entry = kept.get(id);
      if (entry === undefined) kept.set(id, (entry = make(row)));
      update(entry, row);
      if (entry.element === place) place = place.nextSibling;
      else body.insertBefore(entry.element, place);
    }
    for (const [id, entry] of kept) {
      if (!wanted.has(id)) {
        entry.element.remove();
        kept.delete(id);
      }
    }
    setText(found, words || matching.length > visible.length ? `${visible.length} of ${matching.length} shown` : "");
    more.hidden = matching.length <= visible.length;
    blank.hidden = rows.length > 0;
    unmatched.hidden = !rows.length || matching.length > 0;
    grid.hidden = matching.length === 0;
  }

  return {
    element,
    set(next) {
      rows = next;
      render();
    },
  };
}
