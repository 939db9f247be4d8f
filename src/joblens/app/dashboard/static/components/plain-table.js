/** A small table of everything there is: no scrolling, no sorting, no selection. */

import { el } from "../core/dom.js";

/**
 * Columns behind the first are aligned to the right, unless `isText` or among `texts`.
 * @param {readonly string[]} head
 * @param {readonly (readonly import("../core/dom.js").Children[])[]} rows
 * @param {{ isText?: boolean, texts?: readonly number[], label?: string, rowClass?: (index: number) => string }}
 *     [options]
 */
export function plainTable(head, rows, { isText = false, texts = [], label, rowClass } = {}) {
  const align = (/** @type {number} */ index) => (index && !isText && !texts.includes(index) ? "right" : "");
  return el(
    "table",
    { class: "plain-table", "aria-label": label },
    el(
      "thead",
      null,
      el(
        "tr",
        null,
        head.map((word, index) => el("th", { scope: "col", class: align(index) }, word)),
      ),
    ),
    el(
      "tbody",
      null,
      rows.map((row, number) =>
        el(
          "tr",
          { class: rowClass?.(number) ?? null },
          row.map((cell, index) => el("td", { class: align(index) }, cell)),
        ),
      ),
    ),
  );
}

/**
 * The same, in a box that scrolls.
 * @param {string} label  For screen readers.
 * @param {HTMLElement} table
 */
export function scrolled(label, table) {
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` }, table);
}

/**
 * A table that scrolls sideways where the screen is narrow.
 * @param {string} label  For screen readers.
 * @param {readonly string[]} head
 * @param {readonly (readonly import("../core/dom.js").Children[])[]} rows
 * @param {readonly number[]} [texts]  Columns that are text besides the first.
 */
export function wideTable(label, head, rows, texts = []) {
  return el(
    "div",
    { class: "scroll-x", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` },
    plainTable(head, rows, { texts, label }),
  );
}
