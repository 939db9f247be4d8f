/** Lines, texts and ticks on the canvas of a chart. */

import { plain } from "../core/dom.js";
import * as format from "../core/format.js";
import { colourOf } from "./sparkline.js";

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 * @param {number[]} dash
 */
export function line(context, x1, y1, x2, y2, dash) {
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
  context.setLineDash([]);
}

/**
 * Text that is readable on curves. Too long a text is cut.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} width  Available width.
 */
export function halo(context, text, x, y, width) {
  let words = text;
  while (words.length > 4 && context.measureText(words).width > width) words = `${words.slice(0, -5)}…`;
  const { fillStyle } = context;
  const box = context.measureText(words);
  const left = context.textAlign === "right" ? x - box.width : x;
  const height = box.actualBoundingBoxAscent + box.actualBoundingBoxDescent + 4;
  context.globalAlpha = 0.8;
  context.fillStyle = colourOf("--raised");
  context.fillRect(left - 2, y - box.actualBoundingBoxAscent - 2, box.width + 4, height);
  context.globalAlpha = 1;
  context.fillStyle = fillStyle;
  context.fillText(plain(words), x, y);
}

/**
 * Times in the reader's zone; the date where a day begins.
 * @param {any} _plot
 * @param {readonly number[]} ticks  Seconds.
 * @param {number} _axis
 * @param {number} _space
 * @param {number} step
 */
export function timeTicks(_plot, ticks, _axis, _space, step) {
  return ticks.map((tick) => {
    const [day = "", clock = ""] = format.time(tick * 1e6).split(" ");
    if (step >= 86_400 || clock === "00:00:00") return day.slice(5);
    if (step >= 60) return clock.slice(0, 5);
    return step >= 1 ? clock : `${clock.slice(3)}.${String(Math.round((tick % 1) * 1000)).padStart(3, "0")}`;
  });
}

const POWERS = Array.from({ length: 51 }, (_, power) => 2 ** power);
const WHOLE = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((each) => each * 10 ** power)).flat();

/**
 * Distances of ticks that read well in a unit: powers of two for bytes, whole numbers for counts.
 * @param {(value: number | null) => string} unit  From `format`.
 */
export function stepsOf(unit) {
  if (unit === format.bytes || unit === format.rate) return { incrs: POWERS };
  return unit === format.count ? { incrs: WHOLE } : {};
}

/**
 * Values without a neighbour that a line would lead to: they are drawn as dots, or they would not be seen.
 * @param {any} plot
 * @param {readonly (number | null | undefined)[]} values
 * @param {number} bridged  Pixels of the canvas across which a line leads.
 * @returns {number[]}
 */
export function lonePoints(plot, values, bridged) {
  const known = [...values.keys()].filter((at) => values[at] !== null && values[at] !== undefined);
  const isNear = (/** @type {number | undefined} */ one, /** @type {number | undefined} */ other) =>
    one !== undefined && other !== undefined && (other - one === 1 || xOf(other) - xOf(one) <= bridged);
  const xOf = (/** @type {number} */ at) => plot.valToPos(plot.data[0][at], "x", true);
  return known.filter((at, place) => !isNear(known[place - 1], at) && !isNear(at, known[place + 1]));
}

/**
 * @param {string} colour  '#rrggbb'
 * @param {number} alpha
 */
export function withAlpha(colour, alpha) {
  return /^#[0-9a-f]{6}$/i.test(colour)
    ? colour +
        Math.round(alpha * 255)
          .toString(16)
          .padStart(2, "0")
    : colour;
}

/** Size of text against that of an ordinary screen: very large screens have larger text. */
export function textScale() {
  return Number.parseFloat(getComputedStyle(document.documentElement).fontSize) / 14 || 1;
}
