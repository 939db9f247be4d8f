/**
 * Parallel coordinates: one axis per parameter and measurement, one line per job. Drag along an axis, or move its two
 * handles with the keyboard, to select lines; unknown values are below the axes.
 */

import { el, fill, setText, svg } from "../core/dom.js";
import * as format from "../core/format.js";
import { unitOf } from "./differences.js";
import { announce } from "./feedback.js";

const HEIGHT = 320;
const TOP = 46;
const BOTTOM = 44;
const SIDE = 76; // space for the labels of the last axis
const LEAST_APART = 124;
const HANDLE = 7;
const SNAP = 0.03; // of the axis: a pointer so near its end means the end
const MOST_WHOLE = 6; // whole numbers of an axis, each with its own tick
const LOG_FROM = 100; // numbers that span such a ratio are drawn by their logarithms

/**
 * @typedef {object} Scale
 * @property {(value: number | string | null) => number | null} place  0 is the foot of the axis, 1 its top.
 * @property {(place: number) => string} words
 * @property {{ place: number, text: string }[]} ticks
 *
 * @typedef {object} ParallelOptions
 * @property {readonly Api.Axis[]} axes
 * @property {readonly string[]} labels  One per line.
 * @property {string} noun  'job', 'run'
 * @property {(selected: ReadonlySet<number> | null) => void} onSelect  null: nothing is brushed.
 */

export class ParallelCoordinates {
  /** @param {ParallelOptions} options */
  constructor(options) {
    this._options = options;
    this._axes = options.axes;
    /** @type {Map<string, [number, number]>} */
    this._brushes = new Map();
    /** @type {string} */
    this._colour = (options.axes.find((axis) => axis.kind === "measurement") ?? options.axes[0])?.key ?? "";
    /** @type {SVGPathElement[]} */
    this._lines = [];
    this._width = 0;
    this._svg = svg("svg", { class: "parallel", role: "group", "aria-label": "Parallel coordinates" });
    this._scroll = el("div", { class: "parallel-scroll", tabindex: "0", role: "group", "aria-label": "Axes, scroll" });
    this._scroll.append(this._svg);
    this._said = el("p", { class: "parallel-said" });
    this._legend = el("span", { class: "ramp-legend" });
    this._clear = el("button", { type: "button", hidden: true, onclick: () => this._clearAll() }, "Clear selection");
    this._colours = el("select", { "aria-label": "Colour by" });
    this._colours.addEventListener("change", () => {
      this._colour = this._colours.value;
      this._paint();
    });
    this.node = el(
      "div",
      { class: "card-body" },
      el("div", { class: "parallel-tools" }, el("label", null, "Colour by ", this._colours), this._legend, this._clear),
      this._scroll,
      this._said,
    );
    this._sized = new ResizeObserver(() => {
      if (this._scroll.clientWidth && this._scroll.clientWidth !== this._width) this._build();
    });
    this._sized.observe(this._scroll);
    this.setAxes(options.axes);
  }

  /** @param {readonly Api.Axis[]} axes */
  setAxes(axes) {
    this._axes = axes;
    for (const key of [...this._brushes.keys()]) {
      if (!axes.some((axis) => axis.key === key)) this._brushes.delete(key);
    }
    if (!axes.some((axis) => axis.key === this._colour)) {
      this._colour = (axes.find((axis) => axis.kind === "measurement") ?? axes[0])?.key ?? "";
    }
    fill(
      this._colours,
      axes.map((axis) => el("option", { value: axis.key, selected: axis.key === this._colour }, axis.title)),
    );
    this._build();
  }

  destroy() {
    this._sized.disconnect();
  }

  _build() {
    this._width = this._scroll.clientWidth;
    const width = Math.max(this._width, 2 * SIDE + LEAST_APART * (this._axes.length - 1));
    this._svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this._svg.setAttribute("width", String(width));
    this._svg.setAttribute("height", String(HEIGHT));
    this._scales = new Map(this._axes.map((axis) => [axis.key, scaleOf(axis)]));
    this._apart = this._axes.length > 1 ? (width - 2 * SIDE) / (this._axes.length - 1) : 0;
    this._lines = this._options.labels.map((_, line) => svg("path", { d: this._path(line), class: "line" }));
    const touch = this._options.labels.map((_, line) =>
      svg("path", {
        d: this._path(line),
        class: "line-touch",
        onpointerenter: () => this._point(line),
        onpointerleave: () => this._point(null),
      }),
    );
    fill(
      this._svg,
      svg("g", { "aria-hidden": "true" }, this._lines, touch),
      this._axes.map((axis, index) => this._axis(axis, index)),
    );
    this._paint();
  }

  /** @param {number} line */
  _path(line) {
    const points = this._axes.map((axis, index) => {
      const place = this._place(axis, line);
      return `${(SIDE + index * this._apartOr0()).toFixed(1)} ${yOf(place).toFixed(1)}`;
    });
    return points.length ? `M${points.join("L")}` : "";
  }

  _apartOr0() {
    return this._apart ?? 0;
  }

  /**
   * @param {Api.Axis} axis
   * @param {number} line
   */
  _place(axis, line) {
    return this._scales?.get(axis.key)?.place(axis.values[line] ?? null) ?? null;
  }

  /**
   * @param {Api.Axis} axis
   * @param {number} index
   */
  _axis(axis, index) {
    const scale = /** @type {Scale} */ (this._scales?.get(axis.key));
    const x = SIDE + index * this._apartOr0();
    const band = svg("rect", { class: "brush", x: -HANDLE, width: HANDLE * 2, rx: 3 });
    const low = this._handle(axis, scale, "low");
    const high = this._handle(axis, scale, "high");
    const hit = svg("rect", { class: "hit", x: -14, y: TOP - 6, width: 28, height: HEIGHT - TOP - BOTTOM + 12 });
    hit.addEventListener("pointerdown", (event) => this._drag(event, axis));
    const isMany = axis.values.some((value) => value === null);
    const group = svg(
      "g",
      { transform: `translate(${x.toFixed(1)} 0)`, class: `axis axis-${axis.kind}`, data: { axis: axis.key } },
      svg("text", { class: "axis-title", y: 16 }, shortened(axis.title, 18), svg("title", null, axis.title)),
      svg("text", { class: "axis-kind", y: 30 }, axis.kind),
      svg("line", { class: "axis-line", y1: TOP, y2: HEIGHT - BOTTOM }),
      scale.ticks.flatMap((tick) => [
        svg("line", { class: "tick", x1: -4, x2: 4, y1: yOf(tick.place), y2: yOf(tick.place) }),
        svg("text", { class: "tick-text", x: 10, y: yOf(tick.place) + 4 }, shortened(tick.text, 14)),
      ]),
      isMany ? svg("text", { class: "tick-text", x: 8, y: yOf(null) + 4 }, "not known") : null,
      band,
      hit,
      low,
      high,
    );
    const show = () => this._showBrush(axis, scale, band, low, high);
    /** @type {any} */ (group).showBrush = show;
    show();
    return group;
  }

  /**
   * @param {Api.Axis} axis
   * @param {Scale} scale
   * @param {SVGRectElement} band
   * @param {SVGGElement} low
   * @param {SVGGElement} high
   */
  _showBrush(axis, scale, band, low, high) {
    const [from, to] = this._brushes.get(axis.key) ?? [0, 1];
    band.setAttribute("y", String(yOf(to)));
    band.setAttribute("height", String(Math.max(0, yOf(from) - yOf(to))));
    band.classList.toggle("is-set", this._brushes.has(axis.key));
    for (const [node, place] of /** @type {[SVGGElement, number][]} */ ([
      [low, from],
      [high, to],
    ])) {
      node.setAttribute("transform", `translate(0 ${yOf(place)})`);
      node.setAttribute("aria-valuenow", String(Math.round(place * 100)));
      node.setAttribute("aria-valuetext", scale.words(place));
    }
  }

  /**
   * @param {Api.Axis} axis
   * @param {Scale} scale
   * @param {"low" | "high"} end
   */
  _handle(axis, scale, end) {
    const shape =
      end === "low" ? `M${-HANDLE} 0h${2 * HANDLE}l${-HANDLE} 8Z` : `M${-HANDLE} 0h${2 * HANDLE}l${-HANDLE} -8Z`;
    const node = svg(
      "g",
      {
        class: "handle",
        role: "slider",
        tabindex: "0",
        "aria-label": `${axis.title}, ${end === "low" ? "lowest" : "highest"} selected`,
        "aria-orientation": "vertical",
        "aria-valuemin": "0",
        "aria-valuemax": "100",
      },
      svg("path", { d: shape }),
    );
    node.addEventListener("keydown", (event) => {
      const [from, to] = this._brushes.get(axis.key) ?? [0, 1];
      const place = end === "low" ? from : to;
      const next = moved(event.key, place);
      if (next === null) return;
      event.preventDefault();
      if (Number.isNaN(next)) this._brush(axis, [0, 1]);
      else this._brush(axis, end === "low" ? [Math.min(next, to), to] : [from, Math.max(next, from)]);
      announce(
        `${scale.words(end === "low" ? (this._brushes.get(axis.key)?.[0] ?? 0) : (this._brushes.get(axis.key)?.[1] ?? 1))}. ${this._said.textContent}`,
      );
    });
    return node;
  }

  /**
   * @param {PointerEvent} event
   * @param {Api.Axis} axis
   */
  _drag(event, axis) {
    event.preventDefault();
    const begin = this._placeAt(event);
    const ending = new AbortController();
    const { signal } = ending;
    let hasMoved = false;
    document.addEventListener(
      "pointermove",
      (moving) => {
        const place = this._placeAt(moving);
        if (Math.abs(place - begin) < 0.015 && !hasMoved) return;
        hasMoved = true;
        this._brush(axis, [Math.min(begin, place), Math.max(begin, place)]);
      },
      { signal },
    );
    document.addEventListener(
      "pointerup",
      () => {
        ending.abort();
        if (!hasMoved) this._brush(axis, [0, 1]);
      },
      { signal },
    );
  }

  /** @param {PointerEvent} event */
  _placeAt(event) {
    const box = this._svg.getBoundingClientRect();
    const y = ((event.clientY - box.top) / box.height) * HEIGHT;
    const place = 1 - (y - TOP) / (HEIGHT - TOP - BOTTOM);
    return place < SNAP ? 0 : place > 1 - SNAP ? 1 : place;
  }

  /**
   * @param {Api.Axis} axis
   * @param {[number, number]} range
   */
  _brush(axis, range) {
    if (range[0] <= 0 && range[1] >= 1) this._brushes.delete(axis.key);
    else this._brushes.set(axis.key, range);
    this._paint();
    this._options.onSelect(this._brushes.size ? this._selected() : null);
  }

  _clearAll() {
    this._brushes.clear();
    this._paint();
    this._options.onSelect(null);
    this._scroll.focus();
  }

  _selected() {
    const found = new Set(this._options.labels.keys());
    for (const axis of this._axes) {
      const range = this._brushes.get(axis.key);
      if (!range) continue;
      for (const line of [...found]) {
        const place = this._place(axis, line);
        if (place === null || place < range[0] - 1e-9 || place > range[1] + 1e-9) found.delete(line);
      }
    }
    return found;
  }

  _paint() {
    const axis = this._axes.find((each) => each.key === this._colour);
    const selected = this._selected();
    this._lines.forEach((line, index) => {
      const place = axis ? this._place(axis, index) : null;
      line.style.setProperty(
        "stroke",
        place === null
          ? "var(--muted)"
          : `color-mix(in oklab, var(--ramp-high) ${(place * 100).toFixed(0)}%, var(--ramp-low))`,
      );
      line.classList.toggle("out", !selected.has(index));
    });
    for (const group of this._svg.querySelectorAll(".axis")) /** @type {any} */ (group).showBrush();
    const scale = axis ? this._scales?.get(axis.key) : null;
    fill(this._legend, scale?.words(0) ?? "", el("span", { class: "ramp" }), scale?.words(1) ?? "");
    this._clear.hidden = this._brushes.size === 0;
    this._say(selected.size);
  }

  /** @param {number} count */
  _say(count) {
    const { labels, noun } = this._options;
    const all = format.counted(labels.length, noun);
    setText(
      this._said,
      this._brushes.size
        ? `${count} of ${all} selected; the tables and curves highlight them.`
        : `${all}. Drag along an axis to select some; with the keyboard, move the handles of an axis.`,
    );
  }

  /** @param {number | null} line */
  _point(line) {
    this._lines.forEach((each, index) => {
      each.classList.toggle("hot", index === line);
    });
    if (line === null) {
      this._say(this._selected().size);
      return;
    }
    const parts = this._axes.map((axis) => {
      const value = axis.values[line] ?? null;
      return `${axis.title} ${typeof value === "string" ? value : unitOf(axis.unit ?? "")(value)}`;
    });
    setText(this._said, `${this._options.labels[line]}: ${parts.join(" · ")}`);
  }
}

/** @param {number | null} place */
function yOf(place) {
  return place === null ? HEIGHT - BOTTOM + 26 : TOP + (1 - place) * (HEIGHT - TOP - BOTTOM);
}

/**
 * Where a key moves a handle; NaN: back to the whole axis; null: not a key of a slider.
 * @param {string} key
 * @param {number} place
 */
function moved(key, place) {
  /** @type {Record<string, number>} */
  const steps = { ArrowUp: 0.02, ArrowRight: 0.02, ArrowDown: -0.02, ArrowLeft: -0.02, PageUp: 0.2, PageDown: -0.2 };
  const step = steps[key];
  if (step !== undefined) return Math.max(0, Math.min(1, place + step));
  if (key === "Home") return 0;
  if (key === "End") return 1;
  return key === "Escape" || key === "Delete" ? Number.NaN : null;
}

/**
 * @param {Api.Axis} axis
 * @returns {Scale}
 */
export function scaleOf(axis) {
  const known = axis.values.filter((value) => value !== null);
  if (axis.is_category) return categories([...new Set(known.map(String))].sort());
  const numbers = known.map(Number);
  const unit = unitOf(axis.unit ?? "");
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  if (!numbers.length || low === high) {
    return { place: (value) => (value === null ? null : 0.5), words: () => unit(numbers[0] ?? null), ticks: [] };
  }
  const isLog = low > 0 && high / low >= LOG_FROM;
  const [to, from] = isLog ? [Math.log, Math.exp] : [(/** @type {number} */ n) => n, (/** @type {number} */ n) => n];
  const valueAt = (/** @type {number} */ place) => from(to(low) + place * (to(high) - to(low)));
  const placeOf = (/** @type {number} */ value) => (to(value) - to(low)) / (to(high) - to(low));
  const isWhole = !axis.unit && numbers.every(Number.isInteger);
  const count = isWhole && high - low <= MOST_WHOLE ? high - low : 4;
  const values = Array.from({ length: count + 1 }, (_, index) => valueAt(index / count));
  const shown = isWhole ? [...new Set(values.map(Math.round))] : values;
  const ticks = shown.map((value) => ({ place: placeOf(value), text: unit(value) }));
  const isRepeated = new Set(ticks.map((tick) => tick.text)).size < ticks.length;
  return {
    place: (value) => (value === null ? null : placeOf(Number(value))),
    words: (place) => unit(valueAt(place)),
    // Where rounded numbers repeat, the ends say all there is to say.
    ticks: isRepeated ? ticks.filter((_, index) => index === 0 || index === ticks.length - 1) : ticks,
  };
}

/**
 * @param {string[]} names
 * @returns {Scale}
 */
function categories(names) {
  const placeOf = (/** @type {number} */ index) => (names.length > 1 ? index / (names.length - 1) : 0.5);
  return {
    place: (value) => (value === null ? null : placeOf(names.indexOf(String(value)))),
    words: (place) => names[Math.round(place * (names.length - 1))] ?? "",
    ticks: names.map((text, index) => ({ place: placeOf(index), text })),
  };
}

/**
 * @param {string} text
 * @param {number} most
 */
function shortened(text, most) {
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}
