/**
 * Colours of terminal output as classes. Everything else that a terminal would obey (cursor moves, titles, links,
 * queries) is removed: output is hostile text.
 */

import { el } from "../core/dom.js";

/**
 * @typedef {object} Style
 * @property {string} ink  '' or a class: 'ansi-1'.
 * @property {string} ground
 * @property {boolean} isBold
 * @property {boolean} isDim
 * @property {boolean} isItalic
 * @property {boolean} isUnderlined
 */

/** @type {Style} */
export const PLAIN = { ink: "", ground: "", isBold: false, isDim: false, isItalic: false, isUnderlined: false };

// CSI sequences; strings (OSC, DCS, SOS, PM, APC) up to their end; two-byte escapes; other control characters.
const SEQUENCE =
  /\u001b\[([0-?]*)[ -/]*([@-~])|\u001b[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)?|\u001b[ -/]*[0-~]|\u009b([0-?]*)[ -/]*([@-~])|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f]/g;
const LONGEST = 20_000; // characters of a line that are drawn

/**
 * A line as nodes, and the style at its end. A carriage return overwrites what is before it, as progress bars do.
 * @param {string} line
 * @param {Style} style  At its start.
 * @returns {{ nodes: (Node | string)[], style: Style }}
 */
export function colouredLine(line, style) {
  /** @type {(Node | string)[]} */
  let nodes = [];
  let now = style;
  const text = line.length > LONGEST ? `${line.slice(0, LONGEST)} …` : line;
  let from = 0;
  const add = (/** @type {string} */ part) => {
    const shown = part.lastIndexOf("\r");
    if (shown >= 0) nodes = [];
    const words = shown >= 0 ? part.slice(shown + 1) : part;
    if (words) nodes.push(styled(words, now));
  };
  for (const found of text.matchAll(SEQUENCE)) {
    add(text.slice(from, found.index));
    from = found.index + found[0].length;
    if ((found[2] ?? found[4]) === "m") now = changed(now, found[1] ?? found[3] ?? "");
  }
  add(text.slice(from));
  return { nodes, style: now };
}

/**
 * @param {string} words
 * @param {Style} style
 */
function styled(words, style) {
  const classes = [
    style.ink,
    style.ground,
    style.isBold ? "ansi-bold" : "",
    style.isDim ? "ansi-dim" : "",
    style.isItalic ? "ansi-italic" : "",
    style.isUnderlined ? "ansi-underlined" : "",
  ].filter(Boolean);
  return classes.length ? el("span", { class: classes.join(" ") }, words) : words;
}

/**
 * @param {Style} style
 * @param {string} parameters  '1;31'
 * @returns {Style}
 */
function changed(style, parameters) {
  const codes = parameters.split(/[;:]/).slice(0, 32).map(Number);
  let now = style;
  for (let index = 0; index < codes.length; index++) {
    const code = codes[index] ?? 0;
    if (code === 38 || code === 48) {
      const { colour, used } = extended(codes.slice(index + 1));
      if (colour !== null)
        now = code === 38 ? { ...now, ink: colour } : { ...now, ground: colour && `${colour}-ground` };
      index += used;
    } else now = simple(now, code);
  }
  return now;
}

/**
 * @param {Style} now
 * @param {number} code
 * @returns {Style}
 */
function simple(now, code) {
  if (code === 0) return PLAIN;
  if (code === 1) return { ...now, isBold: true };
  if (code === 2) return { ...now, isDim: true };
  if (code === 3) return { ...now, isItalic: true };
  if (code === 4) return { ...now, isUnderlined: true };
  if (code === 22) return { ...now, isBold: false, isDim: false };
  if (code === 23) return { ...now, isItalic: false };
  if (code === 24) return { ...now, isUnderlined: false };
  if (code >= 30 && code <= 37) return { ...now, ink: `ansi-${code - 30}` };
  if (code === 39) return { ...now, ink: "" };
  if (code >= 40 && code <= 47) return { ...now, ground: `ansi-${code - 40}-ground` };
  if (code === 49) return { ...now, ground: "" };
  if (code >= 90 && code <= 97) return { ...now, ink: `ansi-${code - 90 + 8}` };
  if (code >= 100 && code <= 107) return { ...now, ground: `ansi-${code - 100 + 8}-ground` };
  return now; // reverse video, blinking and concealing would make text unreadable
}

/**
 * Colours of 256 and of 24 bits, as the nearest of the 16 that are readable in both themes.
 * @param {number[]} codes  Behind 38 or 48.
 * @returns {{ colour: string | null, used: number }}
 */
function extended(codes) {
  if (codes[0] === 5) {
    const index = codes[1] ?? 0;
    if (index < 16) return { colour: `ansi-${index}`, used: 2 };
    if (index >= 232) return { colour: index < 244 ? "ansi-8" : "ansi-7", used: 2 };
    const cube = index - 16;
    const level = (/** @type {number} */ part) => (part % 6) * 51;
    return { colour: nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6)), level(cube)), used: 2 };
  }
  if (codes[0] === 2) return { colour: nearest(codes[1] ?? 0, codes[2] ?? 0, codes[3] ?? 0), used: 4 };
  return { colour: null, used: 1 };
}

/**
 * @param {number} red
 * @param {number} green
 * @param {number} blue
 */
function nearest(red, green, blue) {
  const most = Math.max(red, green, blue);
  if (most < 60) return "ansi-8";
  const bit = (/** @type {number} */ part) => (part > most * 0.6 ? 1 : 0);
  return `ansi-${bit(red) + 2 * bit(green) + 4 * bit(blue) + (most > 200 ? 8 : 0)}`;
}
