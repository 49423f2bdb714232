// A table that sorts, filters, pages and updates in place. Rows keep their elements while their key stays, so that focus and
// selection survive an update, and a thousand rows cost little.

import { empty, h, put, setText } from "./dom.js";
import { compare } from "./format.js";

const PAGE = 100;

/**
 * columns: [{key, title, cell(row) -> text or element, sort(row) -> value, number, wide}]. `wide` columns are hidden on a phone.
 * A cell that is an object {element, update(row)} is kept and updated.
 */
export function table({ caption, columns, key, sort, descending = false, filter, nothing, link }) {
  let rows = [];
  let order = { column: columns.find((column) => column.key === sort) || columns[0], descending };
  let words = "";
  let shown = PAGE;
  const kept = new Map(); // key of a row -> {element, cells}
  const body = h("tbody");
  const heads = columns.map((column) => head(column));
  const found = h("p", { class: "found", role: "status" });
  const more = h("button", { type: "button", class: "more", onclick: () => { shown += PAGE * 5; render(); } }, "Show more");
  const search = filter && h("input", { type: "search", placeholder: "Filter", "aria-label": `Filter ${caption}`, oninput: (event) => { words = event.target.value.toLowerCase(); shown = PAGE; render(); } });
  const blank = h("div", { hidden: true }, empty(nothing || "Nothing here."));
  const grid = h("table", null, h("caption", { class: "hidden" }, caption), h("thead", null, h("tr", null, heads.map((one) => one.element))), body);
  const element = h("div", { class: "table" }, h("div", { class: "tools" }, search, found), h("div", { class: "scroll" }, grid), blank, more);

  function head(column) {
    const button = h("button", { type: "button", onclick: () => {
      order = { column, descending: order.column === column ? !order.descending : Boolean(column.number) };
      render();
    } }, column.title);
    return { column, element: h("th", { scope: "col", class: classes(column) }, button) };
  }

  function classes(column) {
    return [column.number && "number", column.wide && "wide"].filter(Boolean).join(" ") || undefined;
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
      const made = column.make ? column.make(row) : null;
      const content = made ? made.element : link && column === columns[0] ? h("a", { href: link(row) }) : h("span");
      return { column, made, content, element: h(column === columns[0] ? "th" : "td", { scope: column === columns[0] ? "row" : undefined, class: classes(column), "data-title": column.title }, content) };
    });
    return { element: h("tr", null, cells.map((cell) => cell.element)), cells };
  }

  function update(entry, row) {
    for (const cell of entry.cells) {
      if (cell.made) cell.made.update(row);
      else {
        const content = cell.column.cell ? cell.column.cell(row) : row[cell.column.key];
        if (content instanceof Node) {
          if (cell.content.textContent !== content.textContent || !cell.content.childElementCount) put(cell.content, content);
        } else setText(cell.content, content === undefined || content === null ? "–" : content);
      }
    }
  }

  function render() {
    for (const one of heads) one.element.setAttribute("aria-sort", one.column === order.column ? (order.descending ? "descending" : "ascending") : "none");
    const matching = words ? rows.filter((row) => filter(row).toLowerCase().includes(words)) : rows;
    const visible = [...matching].sort(byOrder).slice(0, shown);
    const wanted = new Set();
    let place = body.firstChild;
    for (const row of visible) {
      const name = key(row);
      wanted.add(name);
      let entry = kept.get(name);
      if (entry === undefined) kept.set(name, (entry = make(row)));
      update(entry, row);
      if (entry.element === place) place = place.nextSibling;
      else body.insertBefore(entry.element, place);
    }
    for (const [name, entry] of kept) {
      if (!wanted.has(name)) {
        entry.element.remove();
        kept.delete(name);
      }
    }
    setText(found, words || matching.length > visible.length ? `${visible.length} of ${matching.length} shown` : "");
    more.hidden = matching.length <= visible.length;
    blank.hidden = matching.length > 0;
    grid.hidden = matching.length === 0;
  }

  return {
    element,
    set(next) {
      rows = next;
      render();
    },
    focusFilter() {
      if (search) search.focus();
    },
  };
}
