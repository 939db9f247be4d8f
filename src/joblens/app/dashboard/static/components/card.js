/** Sections of a page, and small tables that need no scrolling. */

import { el } from "../core/dom.js";

/**
 * @param {string} title
 * @param {import("../core/dom.js").Children} more  Beside the title.
 * @param {...import("../core/dom.js").Children} content
 */
export function card(title, more, ...content) {
  return el(
    "section",
    { class: "card", "aria-label": title },
    el("div", { class: "card-head" }, el("h2", null, title), more),
    ...content,
  );
}

/**
 * A table whose first column is text and whose others are numbers, unless named.
 * @param {string} label  For screen readers.
 * @param {readonly string[]} head
 * @param {readonly import("../core/dom.js").Children[][]} rows
 * @param {readonly number[]} [texts]  Columns that are text besides the first.
 */
export function plainTable(label, head, rows, texts = []) {
  const align = (/** @type {number} */ index) => (index && !texts.includes(index) ? "right" : "");
  return el(
    "div",
    { class: "scroll-x", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` },
    el(
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
        rows.map((row) =>
          el(
            "tr",
            null,
            row.map((content, index) => el("td", { class: align(index) }, content)),
          ),
        ),
      ),
    ),
  );
}

/**
 * Title of a page with what stands beside it.
 * @param {string} title
 * @param {...import("../core/dom.js").Children} more
 */
export function pageHead(title, ...more) {
  return el("div", { class: "page-head" }, el("h1", null, title), ...more);
}
