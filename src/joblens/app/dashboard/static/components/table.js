/**
 * A table of any number of rows: only those in view are in the document. Keyboard: arrows, Page Up/Down, Home, End,
 * Enter opens, Space selects. Sorting is the server's: the header reports the requested order.
 */

import { el, fill } from "../core/dom.js";

/**
 * @template R
 * @typedef {object} Column
 * @property {string} id
 * @property {string} label
 * @property {(row: R, cell: HTMLElement) => import("../core/dom.js").Children | void} cell  Returns the content, or
 *     updates the cell itself and returns nothing: then it is called again at every refresh.
 * @property {(row: R) => string} [key]  The content changes only when this does.
 * @property {string} [sort]  The server's name of the order.
 * @property {"right"} [align]
 * @property {number} [width]  In rem, as text is larger on very large screens; without one the column shares the rest.
 * @property {number} [narrow]  The width on phones, if it is another.
 * @property {"wide" | "roomy"} [needs]  Hidden on tablets and phones, or on phones.
 */

/**
 * @template R
 * @typedef {object} TableOptions
 * @property {string} label  For screen readers.
 * @property {readonly Column<R>[]} columns
 * @property {(row: R) => string} rowKey
 * @property {(row: R) => string} [href]  Enter and click open it.
 * @property {(path: string) => void} [open]
 * @property {{ sort: string, ascending: boolean } | null} [sorted]
 * @property {(sort: string, ascending: boolean) => void} [onSort]
 * @property {(keys: ReadonlySet<string>) => void} [onSelect]  Rows can be selected if given.
 * @property {() => void} [onNearEnd]  Load more.
 * @property {string} [empty]
 * @property {number} [rowHeight]
 * @property {(row: R) => string} [rowClass]
 */

const BEYOND = 8; // rows rendered above and below the view
const FLEXIBLE = 10.7; // at least, of a column without a width
const FLEXIBLE_NARROW = 8.4;

/** @template R */
export class Table {
  /** @param {TableOptions<R>} options */
  constructor(options) {
    this._options = options;
    this._columns = options.columns;
    this._rowHeight = options.rowHeight ?? 34;
    /** @type {readonly R[]} */
    this._rows = [];
    /** @type {Map<string, HTMLTableRowElement>} */
    this._shown = new Map();
    /** @type {Set<string>} */
    this.selected = new Set();
    this._active = 0;
    this._frame = 0;
    this._total = /** @type {number | null} */ (null);
    this._head = el("thead");
    this._body = el("tbody");
    this._above = el("tbody", { class: "space", "aria-hidden": "true" }, el("tr", null, el("td")));
    this._below = el("tbody", { class: "space", "aria-hidden": "true" }, el("tr", null, el("td")));
    this._empty = el("p", { class: "table-empty", hidden: true }, options.empty ?? "Nothing here.");
    const role = options.onSelect || options.href ? "grid" : "table";
    this._table = el("table", { "aria-label": options.label, role }, this._head, this._above, this._body, this._below);
    this.node = el(
      "div",
      { class: "table", tabindex: "0", role: "group", "aria-label": `${options.label}, scrolls` },
      this._table,
      this._empty,
    );
    this.node.addEventListener("scroll", () => this._schedule(), { passive: true });
    this.node.addEventListener("keydown", (event) => this._onKey(event));
    this.node.addEventListener("click", (event) => this._onClick(event));
    new ResizeObserver(() => this._schedule()).observe(this.node);
    this._renderHead();
  }

  /**
   * Shows these rows. The position stays.
   * @param {readonly R[]} rows
   * @param {number | null} [total]  If there are more than these.
   */
  setRows(rows, total = null) {
    this._rows = rows;
    this._total = total;
    if (total === null && this.selected.size > 0) {
      const known = new Set(rows.map((row) => this._options.rowKey(row)));
      for (const key of this.selected) if (!known.has(key)) this.selected.delete(key);
    }
    this._active = Math.min(this._active, Math.max(0, rows.length - 1));
    this._empty.hidden = rows.length > 0;
    this._schedule();
  }

  /** @param {readonly Column<R>[]} columns */
  setColumns(columns) {
    this._columns = columns;
    this._shown.clear();
    fill(this._body);
    this._renderHead();
    this._schedule();
  }

  /** @param {{ sort: string, ascending: boolean } | null} sorted */
  setSorted(sorted) {
    this._options.sorted = sorted;
    this._renderHead();
  }

  clearSelection() {
    this.selected.clear();
    this._selectionChanged();
  }

  /** Draws rows in view again, in the next frame. */
  refresh() {
    this._schedule();
  }

  _schedule() {
    if (!this._frame) this._frame = requestAnimationFrame(() => this._render());
  }

  _renderHead() {
    const { onSelect, onSort, sorted } = this._options;
    const cells = this._columns.map((column) => {
      const isSorted = Boolean(column.sort && sorted?.sort === column.sort);
      const order = isSorted ? (sorted?.ascending ? "ascending" : "descending") : null;
      const classes = `${column.align === "right" ? "right" : ""} ${column.needs ?? ""}`;
      const { width, narrow = width } = column;
      const style = width ? { "--width": `${width}rem`, "--narrow": `${narrow}rem` } : {};
      const label =
        column.sort && onSort
          ? el(
              "button",
              {
                type: "button",
                class: "sort",
                onclick: () => onSort(column.sort ?? "", isSorted ? !sorted?.ascending : false),
              },
              column.label,
              el("span", { "aria-hidden": "true" }, isSorted ? (sorted?.ascending ? "↑" : "↓") : ""),
            )
          : column.label;
      return el("th", { scope: "col", class: classes, style, "aria-sort": order }, label);
    });
    const all = el("input", { type: "checkbox", "aria-label": "Select all rows that are loaded" });
    all.addEventListener("change", () => this._selectAll(all.checked));
    this._all = all;
    // Columns without a width share the rest: narrower than this, the table scrolls instead of hiding them.
    const tablet = this._columns.filter((column) => column.needs !== "wide");
    const phone = this._columns.filter((column) => !column.needs);
    /** @type {[string, number[]][]} */
    const screens = [
      ["--table-width", this._columns.map((column) => column.width ?? FLEXIBLE)],
      ["--table-tablet-width", tablet.map((column) => column.width ?? FLEXIBLE)],
      ["--table-phone-width", phone.map((column) => column.narrow ?? column.width ?? FLEXIBLE_NARROW)],
    ];
    for (const [name, widths] of screens) {
      const sum = widths.reduce((all, each) => all + each, 0);
      this._table.style.setProperty(name, onSelect ? `calc(${sum}rem + var(--check-width))` : `${sum}rem`);
    }
    fill(this._head, el("tr", null, onSelect ? el("th", { class: "check", scope: "col" }, all) : null, cells));
  }

  _render() {
    this._frame = 0;
    const height = this._rowHeight;
    const first = Math.max(0, Math.floor(this.node.scrollTop / height) - BEYOND);
    const count = Math.ceil((this.node.clientHeight || 600) / height) + 2 * BEYOND;
    const last = Math.min(this._rows.length, first + count);
    this._table.setAttribute("aria-rowcount", String(this._total ?? this._rows.length));
    setHeight(this._above, first * height);
    setHeight(this._below, (this._rows.length - last) * height);
    /** @type {Map<string, HTMLTableRowElement>} */
    const shown = new Map();
    /** @type {Node | null} */
    let next = this._body.firstChild;
    for (let index = first; index < last; index++) {
      const row = /** @type {R} */ (this._rows[index]);
      const key = this._options.rowKey(row);
      const node = this._shown.get(key) ?? this._newRow(key);
      shown.set(key, node);
      this._update(node, row, index, key);
      if (node === next) next = next.nextSibling;
      else this._body.insertBefore(node, next);
    }
    for (const [key, node] of this._shown) if (!shown.has(key)) node.remove();
    this._shown = shown;
    if (last >= this._rows.length - BEYOND * 2) this._options.onNearEnd?.();
  }

  /** @param {string} key */
  _newRow(key) {
    const node = el("tr", { data: { key }, tabindex: "-1", style: { height: `${this._rowHeight}px` } });
    if (this._options.onSelect) {
      const box = el("input", { type: "checkbox", tabindex: "-1" });
      node.append(el("td", { class: "check" }, box));
    }
    for (const column of this._columns) {
      const classes = `${column.align === "right" ? "right" : ""} ${column.needs ?? ""}`;
      node.append(el("td", { class: classes, data: { column: column.id } }));
    }
    return node;
  }

  /**
   * @param {HTMLTableRowElement} node
   * @param {R} row
   * @param {number} index
   * @param {string} key
   */
  _update(node, row, index, key) {
    const offset = this._options.onSelect ? 1 : 0;
    node.setAttribute("aria-rowindex", String(index + 1));
    node.tabIndex = index === this._active ? 0 : -1;
    const extra = this._options.rowClass?.(row) ?? "";
    if (node.className !== extra) node.className = extra;
    if (offset) {
      const box = /** @type {HTMLInputElement} */ (node.cells[0]?.firstChild);
      const isSelected = this.selected.has(key);
      if (box.checked !== isSelected) box.checked = isSelected;
      node.setAttribute("aria-selected", String(isSelected));
      if (!box.hasAttribute("aria-label")) box.setAttribute("aria-label", `Select ${key}`);
    }
    this._columns.forEach((column, position) => {
      const cell = /** @type {HTMLTableCellElement} */ (node.cells[position + offset]);
      const stamp = column.key?.(row);
      if (stamp !== undefined && cell.dataset.stamp === stamp) return;
      const content = column.cell(row, cell);
      if (content !== undefined) fill(cell, /** @type {any} */ (content));
      if (stamp !== undefined) cell.dataset.stamp = stamp;
    });
  }

  /** @param {KeyboardEvent} event */
  _onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.matches("input:not([type=checkbox]), button, a, code")) return;
    const page = Math.max(1, Math.floor(this.node.clientHeight / this._rowHeight) - 2);
    /** @type {Record<string, number>} */
    const moves = {
      ArrowDown: this._active + 1,
      ArrowUp: this._active - 1,
      PageDown: this._active + page,
      PageUp: this._active - page,
      Home: 0,
      End: this._rows.length - 1,
      j: this._active + 1,
      k: this._active - 1,
    };
    const to = moves[event.key];
    const row = this._rows[this._active];
    if (to !== undefined && !event.ctrlKey && !event.metaKey) this._activate(to);
    else if (event.key === "Enter" && row !== undefined) this._open(row);
    else if ((event.key === " " || event.key === "x") && this._options.onSelect && row !== undefined) {
      this._toggle(this._options.rowKey(row));
    } else return;
    event.preventDefault();
  }

  /** @param {MouseEvent} event */
  _onClick(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    const node = target.closest("tbody tr[data-key]");
    if (!(node instanceof HTMLElement)) return;
    const key = node.dataset.key ?? "";
    this._active = this._rows.findIndex((row) => this._options.rowKey(row) === key);
    if (target.closest(".check")) this._toggle(key);
    else if (!target.closest("a, button, input, code") && !getSelection()?.toString()) {
      const row = this._rows[this._active];
      if (row !== undefined) this._open(row);
    }
  }

  /** @param {R} row */
  _open(row) {
    const path = this._options.href?.(row);
    if (path) this._options.open?.(path);
  }

  /** @param {number} index */
  _activate(index) {
    this._active = Math.max(0, Math.min(this._rows.length - 1, index));
    const top = this._active * this._rowHeight;
    const head = this._head.offsetHeight;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top + this._rowHeight + head > this.node.scrollTop + this.node.clientHeight) {
      this.node.scrollTop = top + this._rowHeight + head - this.node.clientHeight;
    }
    this._render();
    const row = this._rows[this._active];
    if (row !== undefined) this._shown.get(this._options.rowKey(row))?.focus({ preventScroll: true });
  }

  /** @param {string} key */
  _toggle(key) {
    if (!this.selected.delete(key)) this.selected.add(key);
    this._selectionChanged();
  }

  /** @param {boolean} isAll */
  _selectAll(isAll) {
    this.selected = new Set(isAll ? this._rows.map((row) => this._options.rowKey(row)) : []);
    this._selectionChanged();
  }

  _selectionChanged() {
    if (this._all) {
      this._all.checked = this.selected.size > 0 && this.selected.size === this._rows.length;
      this._all.indeterminate = this.selected.size > 0 && !this._all.checked;
    }
    this._options.onSelect?.(this.selected);
    this._schedule();
  }
}

/**
 * @param {HTMLTableSectionElement} body
 * @param {number} height
 */
function setHeight(body, height) {
  const cell = body.rows[0]?.cells[0];
  if (cell) cell.style.height = `${height}px`;
  body.hidden = height === 0;
}
