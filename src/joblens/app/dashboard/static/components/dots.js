/** Runs of benchmarks as dots, one column per result, with the median and its interval: noise is visible. */

import { el, fill, svg } from "../core/dom.js";

const HEIGHT = 260;
const LEFT = 64;
const TOP = 14;
const BOTTOM = 40;
const COLUMN = 64;
const MOST_DOTS = 60; // per column; more would hide each other

/**
 * @typedef {object} DotColumn
 * @property {string} label  Below the column.
 * @property {string} words  For screen readers and the tooltip.
 * @property {{ name: string, values: readonly number[], median: number | null, low: number | null,
 *     high: number | null }[]} groups
 */

/**
 * @param {string} label
 * @param {readonly DotColumn[]} columns
 * @param {(value: number | null) => string} unit
 */
export function dotPlot(label, columns, unit) {
  const all = columns.flatMap((column) => column.groups.flatMap((group) => [...group.values, group.median ?? 0]));
  const most = Math.max(...all, 1e-9) * 1.06;
  const least = Math.min(...all.filter((value) => value > 0), most);
  const floor = least > most / 2 ? least - (most - least) * 0.35 : 0; // close values stay distinguishable
  const y = (/** @type {number} */ value) => TOP + (1 - (value - floor) / (most - floor)) * (HEIGHT - TOP - BOTTOM);
  const scroll = el("div", {
    class: "parallel-scroll",
    tabindex: "0",
    role: "group",
    "aria-label": `${label}, scrolls`,
  });
  const draw = () => {
    const width = Math.max(scroll.clientWidth || 600, LEFT + COLUMN * columns.length + 10);
    const apart = (width - LEFT - 10) / Math.max(1, columns.length);
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => floor + (most - floor) * share);
    fill(
      scroll,
      svg(
        "svg",
        { class: "dots", viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": label },
        ticks.flatMap((tick) => [
          svg("line", { class: "grid-line", x1: LEFT, x2: width, y1: y(tick), y2: y(tick) }),
          svg("text", { class: "tick-text end", x: LEFT - 6, y: y(tick) + 4 }, unit(tick)),
        ]),
        columns.map((column, index) => drawn(column, LEFT + apart * (index + 0.5), Math.min(apart, 90), y)),
      ),
    );
  };
  new ResizeObserver(draw).observe(scroll);
  draw();
  return scroll;
}

/**
 * @param {DotColumn} column
 * @param {number} x
 * @param {number} width
 * @param {(value: number) => number} y
 */
function drawn(column, x, width, y) {
  const part = width / column.groups.length;
  return svg(
    "g",
    null,
    svg("title", null, column.words),
    column.groups.map((group, index) => {
      const middle = x + (index - (column.groups.length - 1) / 2) * part;
      const half = Math.min(part * 0.36, 18);
      const colour = { "--dot": `var(--series-${index % 8})` };
      return svg(
        "g",
        { style: colour },
        group.low !== null && group.high !== null
          ? svg("rect", {
              class: "interval",
              x: middle - half,
              width: half * 2,
              y: y(group.high),
              height: Math.max(1, y(group.low) - y(group.high)),
            })
          : null,
        group.values
          .slice(-MOST_DOTS)
          .map((value, place) =>
            svg("circle", { class: "dot", cx: middle + ((place * 0.618) % 1) * half - half / 2, cy: y(value), r: 2.6 }),
          ),
        group.median === null
          ? null
          : svg("line", {
              class: "median",
              x1: middle - half,
              x2: middle + half,
              y1: y(group.median),
              y2: y(group.median),
            }),
      );
    }),
    svg("text", { class: "tick-text middle", x, y: HEIGHT - BOTTOM + 18 }, column.label),
  );
}
