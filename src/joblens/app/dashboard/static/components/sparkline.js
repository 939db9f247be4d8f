/** Small curves in tables: one canvas each, drawn only when its numbers change. */

import { el } from "../core/dom.js";

const WIDTH = 96;
const HEIGHT = 22;

/**
 * @typedef {object} Sparkline
 * @property {HTMLElement} node
 * @property {(values: readonly (number | null)[], limit: number | null, words: string) => void} draw
 */

/**
 * A curve from the left edge, filled below, with its limit as a dashed line; `words` is its text alternative.
 * @param {string} tone  CSS class that sets its colour: 'cpu', 'memory'.
 * @returns {Sparkline}
 */
export function sparkline(tone) {
  const canvas = el("canvas", { class: `spark spark-${tone}`, role: "img" });
  let drawn = "";
  return {
    node: canvas,
    draw(values, limit, words) {
      const key = `${values.length}:${values.at(0)}:${values.at(-1)}:${limit}:${words}`;
      if (key === drawn) return;
      drawn = key;
      canvas.setAttribute("aria-label", words);
      paint(canvas, values, limit);
    },
  };
}

/** Colours by tone: reading computed styles for every canvas would cost a layout each. @type {Map<string, string>} */
const colours = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colours.clear());

/** Forgets colours, after the reader chose another theme. */
export function forgetColours() {
  colours.clear();
}

/** @param {string} name  Of a CSS variable. */
export function colourOf(name) {
  let found = colours.get(name);
  if (found === undefined) {
    found = getComputedStyle(document.documentElement).getPropertyValue(name).trim() || "#777";
    colours.set(name, found);
  }
  return found;
}

/**
 * @param {HTMLCanvasElement} canvas
 * @param {readonly (number | null)[]} values
 * @param {number | null} limit
 */
function paint(canvas, values, limit) {
  const scale = Math.min(2, devicePixelRatio || 1);
  if (canvas.width !== WIDTH * scale) {
    canvas.width = WIDTH * scale;
    canvas.height = HEIGHT * scale;
  }
  const context = canvas.getContext("2d");
  if (!context) return;
  const tone = canvas.classList.contains("spark-memory") ? "--memory" : "--cpu";
  const known = values.filter((value) => value !== null);
  const most = Math.max(limit ?? 0, ...known, 1e-9);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, WIDTH, HEIGHT);
  const step = WIDTH / Math.max(1, values.length - 1);
  /** @param {number} value */
  const y = (value) => HEIGHT - 1.5 - (value / most) * (HEIGHT - 4);
  context.beginPath();
  let isDown = false;
  let last = 0;
  values.forEach((value, index) => {
    if (value === null) return;
    if (isDown) context.lineTo(index * step, y(value));
    else context.moveTo(index * step, y(value));
    isDown = true;
    last = index;
  });
  context.lineWidth = 1.4;
  context.strokeStyle = colourOf(tone);
  context.stroke();
  if (isDown) {
    context.lineTo(last * step, HEIGHT);
    context.lineTo(0, HEIGHT);
    context.globalAlpha = 0.14;
    context.fillStyle = colourOf(tone);
    context.fill();
    context.globalAlpha = 1;
  }
  if (limit !== null && limit > 0) {
    context.beginPath();
    context.setLineDash([3, 2]);
    context.moveTo(0, y(limit));
    context.lineTo(WIDTH, y(limit));
    context.lineWidth = 1;
    context.strokeStyle = colourOf("--limit");
    context.stroke();
    context.setLineDash([]);
  }
}
