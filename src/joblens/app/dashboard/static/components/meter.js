/** Bars that show a share of a whole, with the numbers in words. */

import { el, setText } from "../core/dom.js";

/**
 * @param {string} tone
 * @param {string} label
 */
export function meter(tone, label) {
  return el(
    "div",
    { class: "meter-line" },
    el(
      "div",
      {
        class: `meter ${tone}`,
        role: "meter",
        "aria-label": label,
        "aria-valuemin": "0",
        "aria-valuemax": "100",
        "aria-valuenow": "0",
      },
      el("span"),
    ),
    el("span", { class: "meter-text" }),
  );
}

/**
 * @param {HTMLElement} node
 * @param {number | null} value
 * @param {number | null} most
 * @param {string} words
 */
export function showMeter(node, value, most, words) {
  const [bar, text] = /** @type {HTMLElement[]} */ ([...node.children]);
  if (!bar || !text) return;
  const share = value === null || !most ? 0 : Math.min(100, (100 * value) / most);
  const filling = /** @type {HTMLElement} */ (bar.firstElementChild);
  filling.style.width = `${share.toFixed(1)}%`;
  bar.setAttribute("aria-valuenow", share.toFixed(0));
  bar.setAttribute("aria-valuetext", words);
  setText(text, words);
}
