/** Sections and the head of a page. */

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
 * Title of a page with what stands beside it.
 * @param {string} title
 * @param {...import("../core/dom.js").Children} more
 */
export function pageHead(title, ...more) {
  return el("div", { class: "page-head" }, el("h1", null, title), ...more);
}
