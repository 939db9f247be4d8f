/**
 * Charts over time, drawn by uPlot when they come into view. Charts of one group share cursor and zoom. Every chart
 * has a text summary and its numbers as a table, for those who do not see curves.
 */

import { el, fill } from "../core/dom.js";
import * as format from "../core/format.js";
import { colourOf } from "./sparkline.js";

/**
 * @typedef {object} Series
 * @property {string} label
 * @property {readonly (number | null)[]} values
 * @property {readonly (number | null)[]} [drawn]  Where it is drawn, if not at its values: on top of other series.
 * @property {number} [above]  Index of the series that it is stacked on; the area between them is filled.
 * @property {string} [colour]  A CSS variable: '--cpu'.
 * @property {boolean} [isFaint]  Drawn behind: an earlier run.
 * @property {boolean} [isFilled]
 * @property {boolean} [isDashed]
 *
 * @typedef {object} Marker
 * @property {number} at_us
 * @property {string} label
 * @property {string} [colour]
 * @property {boolean} [isSilent]  Only the line, without its label.
 *
 * @typedef {object} ChartData
 * @property {readonly number[]} at_us  Ascending.
 * @property {readonly Series[]} series
 * @property {{ label: string, value: number }[]} [limits]  Horizontal lines.
 * @property {Marker[]} [markers]  Vertical lines.
 *
 * @typedef {object} ChartOptions
 * @property {string} title
 * @property {(value: number | null) => string} unit  From `format`.
 * @property {ChartGroup} [group]
 * @property {number} [height]
 * @property {readonly number[]} [steps]  Allowed distances of ticks. Default: 1, 2, 2.5, 5, 10, …
 * @property {number} [least]  The scale reaches at least this far.
 * @property {string} [help]  What the number means.
 */

const HEIGHT = 180;
const SHORTEST_US = 1e6;
const LEGEND = 26; // pixels of one line
const MOST_TABLE_ROWS = 200;

/** @typedef {{ from_us: number, to_us: number }} Range */

/** Charts that share cursor and zoom. */
export class ChartGroup {
  /**
   * @param {(range: Range | null) => void} [onZoom]  null: everything is shown.
   * @param {(at_us: number | null) => void} [onCursor]
   */
  constructor(onZoom, onCursor) {
    this.key = `group-${Math.random().toString(36).slice(2)}`;
    this._onZoom = onZoom;
    this._onCursor = onCursor;
    /** @type {number | null} */
    this._cursor_us = null;
    /** @type {Set<Chart>} */
    this.charts = new Set();
    /** @type {Range | null} */
    this.range = null;
    /** All there is to see. @type {Range} */
    this.extent = { from_us: 0, to_us: 0 };
  }

  /** @param {Range | null} range */
  zoom(range) {
    this.range = range;
    for (const chart of this.charts) chart.applyRange();
    this._onZoom?.(range);
  }

  /** @param {number} share  Of the visible time; negative: to earlier times. */
  pan(share) {
    const { from_us, to_us } = this.range ?? this.extent;
    const by = (to_us - from_us) * share;
    this._zoomWithin(from_us + by, to_us + by);
  }

  /**
   * @param {number} factor  Below 1: closer.
   * @param {number} [at_us]  Stays where it is. Default: the middle.
   */
  magnify(factor, at_us) {
    const { from_us, to_us } = this.range ?? this.extent;
    const centre = at_us ?? (from_us + to_us) / 2;
    this._zoomWithin(centre - (centre - from_us) * factor, centre + (to_us - centre) * factor);
  }

  /**
   * @param {number} from_us
   * @param {number} to_us
   */
  _zoomWithin(from_us, to_us) {
    const length = Math.max(to_us - from_us, SHORTEST_US);
    if (length >= this.extent.to_us - this.extent.from_us) return this.zoom(null);
    const start = Math.max(this.extent.from_us, Math.min(from_us, this.extent.to_us - length));
    return this.zoom({ from_us: start, to_us: start + length });
  }

  /** @param {number | null} at_us  Time under the pointer. */
  point(at_us) {
    if (at_us === this._cursor_us) return;
    this._cursor_us = at_us;
    this._onCursor?.(at_us);
  }
}

export class Chart {
  /** @param {ChartOptions} options */
  constructor(options) {
    this._options = options;
    /** @type {ChartData | null} */
    this._data = null;
    /** @type {any} */
    this._plot = null;
    this._isVisible = false;
    this._canvas = el("div", { class: "chart-canvas", style: { "min-height": `${this._height() + LEGEND}px` } });
    this._summary = el("p", { class: "chart-summary" });
    this._table = el("details", { class: "chart-table" }, el("summary", null, "Numbers"));
    this._table.addEventListener("toggle", () => this._fillTable());
    this.node = el(
      "figure",
      { class: "chart" },
      el("figcaption", null, el("span", { class: "chart-title" }, options.title), this._summary),
      this._canvas,
      this._table,
    );
    options.group?.charts.add(this);
    this._seen = new IntersectionObserver((entries) => {
      this._isVisible = entries.some((entry) => entry.isIntersecting);
      if (this._isVisible) this._draw();
    });
    this._seen.observe(this.node);
    this._sized = new ResizeObserver(() => this._resize());
    this._sized.observe(this._canvas);
    this._left = new AbortController();
    const repaint = () => this._repaint();
    const { signal } = this._left;
    window.addEventListener("joblens-theme", repaint, { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint, { signal });
  }

  /** @param {ChartData} data */
  setData(data) {
    const isSameShape =
      this._data !== null &&
      this._data.series.length === data.series.length &&
      this._data.series.every((each, index) => each.label === data.series[index]?.label);
    this._data = data;
    this._summarize();
    if (!isSameShape) this._remove();
    if (this._isVisible) this._draw();
    if (this._table.open) this._fillTable();
  }

  /** Shows the range of its group. */
  applyRange() {
    if (!this._plot || !this._data) return;
    const range = this._options.group?.range ?? null;
    const at = this._data.at_us;
    const from = range ? range.from_us : (at[0] ?? 0);
    const to = range ? range.to_us : Math.max(at.at(-1) ?? 0, from + SHORTEST_US);
    if (to > from) this._plot.setScale("x", { min: from / 1e6, max: to / 1e6 });
  }

  destroy() {
    this._remove();
    this._seen.disconnect();
    this._sized.disconnect();
    this._left.abort();
    this._options.group?.charts.delete(this);
  }

  /** Draws again with the colours of another theme. */
  _repaint() {
    this._remove();
    if (this._isVisible) this._draw();
  }

  _remove() {
    this._plot?.destroy();
    this._plot = null;
  }

  _resize() {
    const width = this._canvas.clientWidth;
    if (this._plot && width > 0 && width !== this._plot.width) this._plot.setSize({ width, height: this._height() });
  }

  _height() {
    return this._options.height ?? HEIGHT;
  }

  _draw() {
    const data = this._data;
    const width = this._canvas.clientWidth;
    if (!data || width === 0) return;
    const columns = [data.at_us.map((us) => us / 1e6), ...data.series.map((each) => each.drawn ?? each.values)];
    if (this._plot) {
      this._plot.setData(columns, false);
      this.applyRange();
      return;
    }
    const uPlot = /** @type {any} */ (globalThis).uPlot;
    if (!uPlot) {
      this._table.open = true;
      return;
    }
    this._plot = new uPlot(this._plotOptions(data, width), columns, this._canvas);
    this._plot.over.addEventListener("wheel", (/** @type {WheelEvent} */ event) => this._onWheel(event));
    this.applyRange();
  }

  /** With Ctrl, as maps do; without, the page scrolls. @param {WheelEvent} event */
  _onWheel(event) {
    const { group } = this._options;
    if (!group || !event.ctrlKey) return;
    event.preventDefault();
    group.magnify(event.deltaY < 0 ? 0.7 : 1 / 0.7, this._plot.posToVal(event.offsetX, "x") * 1e6);
  }

  /**
   * @param {ChartData} data
   * @param {number} width
   */
  _plotOptions(data, width) {
    const { group, unit, least = 0 } = this._options;
    const axis = {
      stroke: colourOf("--muted"),
      grid: { stroke: colourOf("--line"), width: 1 },
      ticks: { stroke: colourOf("--line"), width: 1, size: 4 },
      font: "11px system-ui, sans-serif",
    };
    return {
      width,
      height: this._height(),
      legend: { live: true },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        ...(group ? { sync: { key: group.key, setSeries: false } } : {}),
        bind: {
          dblclick: () => () => group?.zoom(null),
          mousedown: (/** @type {any} */ plot, /** @type {any} */ _over, /** @type {any} */ select) =>
            group
              ? (/** @type {MouseEvent} */ event) => (event.shiftKey ? pan(plot, group, event) : select(event))
              : select,
        },
      },
      bands: data.series.flatMap((each, index) =>
        each.above === undefined
          ? []
          : [{ series: [index + 1, each.above + 1], fill: withAlpha(this._colour(each, index), 0.35) }],
      ),
      scales: {
        y: {
          range: (/** @type {any} */ _plot, /** @type {number} */ _low, /** @type {number | null} */ high) => {
            const limits = (this._data?.limits ?? []).map((limit) => limit.value);
            const top = Math.max(high ?? 0, least);
            // A limit far above the curve would flatten it: then only its label says where it is.
            const near = limits.filter((value) => value <= top * 4 || top === 0);
            return [0, Math.max(top, ...near) * 1.08 || 1];
          },
        },
      },
      axes: [
        { ...axis, space: 70 },
        {
          ...axis,
          size: 68,
          ...(this._options.steps ? { incrs: this._options.steps } : {}),
          values: (/** @type {any} */ _plot, /** @type {number[]} */ ticks) => ticks.map((tick) => unit(tick)),
        },
      ],
      series: [
        {
          value: (/** @type {any} */ _plot, /** @type {number | null} */ at) =>
            at === null ? format.UNKNOWN : format.time(at * 1e6),
        },
        ...data.series.map((each, index) => this._plotSeries(each, index)),
      ],
      hooks: {
        draw: [(/** @type {any} */ plot) => this._drawLines(plot)],
        setCursor: [
          (/** @type {any} */ plot) => {
            const index = plot.cursor.idx;
            group?.point(index === null || index === undefined ? null : (this._data?.at_us[index] ?? null));
          },
        ],
        setSelect: [
          (/** @type {any} */ plot) => {
            if (plot.select.width < 4) return;
            const from_us = plot.posToVal(plot.select.left, "x") * 1e6;
            const to_us = plot.posToVal(plot.select.left + plot.select.width, "x") * 1e6;
            plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
            if (group) group.zoom({ from_us, to_us });
            else plot.setScale("x", { min: from_us / 1e6, max: to_us / 1e6 });
          },
        ],
      },
    };
  }

  /**
   * @param {Series} series
   * @param {number} index
   */
  _plotSeries(series, index) {
    const colour = this._colour(series, index);
    return {
      label: series.label,
      stroke: colour,
      width: series.isFaint ? 1 : 1.5,
      alpha: series.isFaint ? 0.35 : 1,
      ...(series.isDashed ? { dash: [4, 3] } : {}),
      ...(series.isFilled ? { fill: withAlpha(colour, 0.15) } : {}),
      points: { show: false },
      spanGaps: false,
      value: (/** @type {any} */ _plot, /** @type {any} */ _value, /** @type {any} */ _series, /** @type {any} */ at) =>
        this._options.unit(at === null ? null : (this._data?.series[index]?.values[at] ?? null)),
    };
  }

  /**
   * @param {Series} series
   * @param {number} index
   */
  _colour(series, index) {
    return colourOf(series.colour ?? `--series-${index % 8}`);
  }

  /** @param {any} plot */
  _drawLines(plot) {
    const context = /** @type {CanvasRenderingContext2D} */ (plot.ctx);
    const { left, top, width, height } = plot.bbox;
    const ratio = devicePixelRatio || 1;
    context.save();
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.lineWidth = ratio;
    for (const limit of this._data?.limits ?? []) {
      const y = plot.valToPos(limit.value, "y", true);
      const isInside = y >= top && y <= top + height;
      context.strokeStyle = context.fillStyle = colourOf("--limit");
      if (isInside) line(context, left, y, left + width, y, [6 * ratio, 4 * ratio]);
      const words = `${limit.label} ${this._options.unit(limit.value)}${isInside ? "" : " ↑"}`;
      context.textAlign = "right";
      context.fillText(
        words,
        left + width - 4 * ratio,
        isInside ? Math.max(y - 4 * ratio, top + 11 * ratio) : top + 12 * ratio,
      );
    }
    for (const marker of this._data?.markers ?? []) {
      const x = plot.valToPos(marker.at_us / 1e6, "x", true);
      if (x < left || x > left + width) continue;
      context.strokeStyle = context.fillStyle = colourOf(marker.colour ?? "--accent");
      line(context, x, top, x, top + height, [2 * ratio, 3 * ratio]);
      if (marker.isSilent) continue;
      context.textAlign = x > left + width * 0.6 ? "right" : "left";
      context.fillText(marker.label, x + (context.textAlign === "left" ? 4 : -4) * ratio, top + 12 * ratio);
    }
    context.restore();
  }

  _summarize() {
    const data = this._data;
    if (!data) return;
    const { unit } = this._options;
    const parts = data.series
      .filter((each) => !each.isFaint)
      .slice(0, 4)
      .map((each) => {
        const known = each.values.filter((value) => value !== null);
        if (known.length === 0) return `${each.label}: ${format.UNKNOWN}`;
        return `${each.label}: now ${unit(known.at(-1) ?? null)}, peak ${unit(largest(known))}`;
      });
    const limits = (data.limits ?? []).map((limit) => `${limit.label} ${unit(limit.value)}`);
    this._summary.textContent = [...parts, ...limits].join(" · ");
  }

  _fillTable() {
    const data = this._data;
    if (!this._table.open || !data) return;
    const step = Math.max(1, Math.ceil(data.at_us.length / MOST_TABLE_ROWS));
    const rows = data.at_us
      .map((at, index) => ({ at, index }))
      .filter(({ index }) => index % step === 0)
      .map(({ at, index }) =>
        el(
          "tr",
          null,
          el("th", { scope: "row" }, format.time(at)),
          data.series.map((each) => el("td", { class: "right" }, this._options.unit(each.values[index] ?? null))),
        ),
      );
    const head = el(
      "tr",
      null,
      ["Time", ...data.series.map((each) => each.label)].map((word) => el("th", null, word)),
    );
    fill(
      this._table,
      el("summary", null, "Numbers"),
      el(
        "div",
        { class: "scroll", tabindex: "0", role: "group", "aria-label": `Numbers of ${this._options.title}` },
        el("table", null, el("thead", null, head), el("tbody", null, rows)),
      ),
    );
  }
}

/**
 * In place of a chart: why there is none.
 * @param {string} title
 * @param {string} reason
 */
export function unmeasured(title, reason) {
  return el(
    "figure",
    { class: "chart chart-absent" },
    el("figcaption", null, el("span", { class: "chart-title" }, title)),
    el("p", null, `Not measured: ${reason}.`),
  );
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {number} x1
 * @param {number} y1
 * @param {number} x2
 * @param {number} y2
 * @param {number[]} dash
 */
function line(context, x1, y1, x2, y2, dash) {
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x2, y2);
  context.stroke();
  context.setLineDash([]);
}

/**
 * Moves the visible time with the pointer until the button is released.
 * @param {any} plot
 * @param {ChartGroup} group
 * @param {MouseEvent} event
 */
function pan(plot, group, event) {
  event.preventDefault();
  const ending = new AbortController();
  let last = event.clientX;
  const move = (/** @type {MouseEvent} */ moved) => {
    group.pan((last - moved.clientX) / plot.over.clientWidth);
    last = moved.clientX;
  };
  document.addEventListener("mousemove", move, { signal: ending.signal });
  document.addEventListener("mouseup", () => ending.abort(), { once: true });
}

/** @param {readonly number[]} numbers */
function largest(numbers) {
  return numbers.reduce((most, each) => (each > most ? each : most), Number.NEGATIVE_INFINITY);
}

/**
 * @param {string} colour  '#rrggbb'
 * @param {number} alpha
 */
function withAlpha(colour, alpha) {
  return /^#[0-9a-f]{6}$/i.test(colour)
    ? colour +
        Math.round(alpha * 255)
          .toString(16)
          .padStart(2, "0")
    : colour;
}
