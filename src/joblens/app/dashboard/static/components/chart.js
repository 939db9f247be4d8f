/**
 * Charts over time, drawn by uPlot when they come into view. Charts of one group share cursor and zoom. Every chart
 * has a text summary and its numbers as a table, for those who do not see curves.
 */

import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { halo, line, lonePoints, stepsOf, textScale, timeTicks, withAlpha } from "./chart-canvas.js";
import { panWithPointer } from "./chart-group.js";
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
 * @property {boolean} [isMain]  First in the summary.
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
 * @property {import("./chart-group.js").ChartGroup} [group]
 * @property {number} [height]
 * @property {number} [least]  The scale reaches at least this far.
 * @property {string} [help]  What the number means.
 * @property {(us: number) => string} [time]  Words for a time, where times are not those of the clock.
 */

const HEIGHT = 180;
const SHORTEST_US = 1e6;
const LEGEND = 26; // pixels of one line
const MOST_TABLE_ROWS = 200;
const MOST_IN_LEGEND = 12;
const MOST_SUMMARIZED = 3;
const BRIDGED_PX = 60; // a shorter gap is a number that is read less often
const MOST_LABELS = 3; // of markers, below each other

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
      this._data.series.every(
        (each, index) => each.label === data.series[index]?.label && each.isFaint === data.series[index]?.isFaint,
      );
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
    return Math.round((this._options.height ?? HEIGHT) * textScale());
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
    const onWheel = (/** @type {WheelEvent} */ event) => this._onWheel(event);
    this._plot.over.addEventListener("wheel", onWheel, { passive: false });
    this.applyRange();
  }

  /** With Ctrl, as maps do; without, the page scrolls. @param {WheelEvent} event */
  _onWheel(event) {
    const { group } = this._options;
    if (!group || !event.ctrlKey) return;
    if (event.cancelable) event.preventDefault();
    group.magnify(event.deltaY < 0 ? 0.7 : 1 / 0.7, this._plot.posToVal(event.offsetX, "x") * 1e6);
  }

  /**
   * @param {ChartData} data
   * @param {number} width
   */
  _plotOptions(data, width) {
    const { group, unit, time, least = 0 } = this._options;
    const axis = {
      stroke: colourOf("--muted"),
      grid: { stroke: colourOf("--line"), width: 1 },
      ticks: { stroke: colourOf("--line"), width: 1, size: 4 },
      font: `${11 * textScale()}px system-ui, sans-serif`,
    };
    return {
      width,
      height: this._height(),
      legend: { live: true, show: data.series.length <= MOST_IN_LEGEND },
      cursor: {
        drag: { x: true, y: false, setScale: false },
        points: { size: 6 },
        ...(group ? { sync: { key: group.key, setSeries: false } } : {}),
        bind: {
          dblclick: () => () => group?.zoom(null),
          mousedown: (/** @type {any} */ plot, /** @type {any} */ _over, /** @type {any} */ select) =>
            group
              ? (/** @type {MouseEvent} */ event) =>
                  event.shiftKey ? panWithPointer(plot, group, event) : select(event)
              : select,
        },
      },
      bands: data.series.flatMap((each, index) =>
        each.above === undefined
          ? []
          : [{ series: [index + 1, each.above + 1], fill: withAlpha(this._colour(each, index), 0.35) }],
      ),
      scales: {
        x: { time: !time },
        y: {
          range: (/** @type {any} */ _plot, /** @type {number} */ _low, /** @type {number | null} */ high) => {
            const limits = (this._data?.limits ?? []).map((limit) => limit.value);
            const top = Math.max(high ?? 0, least);
            // A limit far above the curve would flatten it: then only its label says where it is.
            const near = limits.filter((value) => value <= top * 2.5 || top === 0);
            return [0, Math.max(top, ...near) * 1.08 || 1];
          },
        },
      },
      axes: [
        {
          ...axis,
          space: 80 * textScale(),
          size: 30 * textScale(),
          values: time
            ? (/** @type {any} */ _plot, /** @type {number[]} */ at) => at.map((s) => time(s * 1e6))
            : timeTicks,
        },
        {
          ...axis,
          size: 80 * textScale(),
          ...stepsOf(unit),
          values: (/** @type {any} */ _plot, /** @type {number[]} */ ticks) => ticks.map((tick) => unit(tick)),
        },
      ],
      series: [
        {
          label: "Time",
          value: (/** @type {any} */ _plot, /** @type {number | null} */ at) =>
            at === null ? format.UNKNOWN : (time ?? format.time)(at * 1e6),
        },
        ...data.series.map((each, index) => this._plotSeries(each, index)),
      ],
      hooks: {
        draw: [(/** @type {any} */ plot) => this._drawLines(plot)],
        setCursor: [
          (/** @type {any} */ plot) => {
            const index = plot.cursor.idx;
            plot.root.classList.toggle("is-pointing", index !== null && index !== undefined);
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
      alpha: series.isFaint ? 0.55 : 1,
      ...(series.isDashed ? { dash: [4, 3] } : {}),
      ...(series.isFilled ? { fill: withAlpha(colour, 0.15) } : {}),
      points: {
        size: 5,
        fill: colour,
        show: false,
        filter: (/** @type {any} */ plot, /** @type {number} */ at) =>
          lonePoints(plot, plot.data[at], BRIDGED_PX * (devicePixelRatio || 1)),
      },
      spanGaps: false,
      gaps: (
        /** @type {any} */ _plot,
        /** @type {any} */ _i,
        /** @type {any} */ _a,
        /** @type {any} */ _b,
        /** @type {any} */ gaps,
      ) => gaps.filter((/** @type {[number, number]} */ gap) => gap[1] - gap[0] > BRIDGED_PX * (devicePixelRatio || 1)),
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
    const ratio = (devicePixelRatio || 1) * textScale();
    context.save();
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.lineWidth = ratio;
    for (const limit of this._data?.limits ?? []) {
      const y = plot.valToPos(limit.value, "y", true);
      const isInside = y >= top && y <= top + height;
      context.strokeStyle = context.fillStyle = colourOf("--limit");
      if (isInside) line(context, left, y, left + width, y, [6 * ratio, 4 * ratio]);
      const words = `${limit.label} ${this._options.unit(limit.value)}${isInside ? "" : " ↑"}`;
      context.textAlign = "left"; // where most curves are low
      const hasRoomAbove = isInside && y - 15 * ratio > top;
      const beside = hasRoomAbove ? y - 4 * ratio : (isInside ? y : top) + 13 * ratio;
      halo(context, words, left + 4 * ratio, beside, width);
    }
    let row = 0;
    for (const marker of this._data?.markers ?? []) {
      const x = plot.valToPos(marker.at_us / 1e6, "x", true);
      if (x < left || x > left + width) continue;
      context.strokeStyle = context.fillStyle = colourOf(marker.colour ?? "--accent");
      line(context, x, top, x, top + height, [2 * ratio, 3 * ratio]);
      if (marker.isSilent || row === MOST_LABELS) continue;
      row++;
      const isRight = x > left + width / 2;
      context.textAlign = isRight ? "right" : "left";
      const y = top + (12 + 13 * row) * ratio;
      halo(
        context,
        marker.label,
        x + (isRight ? -4 : 4) * ratio,
        y,
        (isRight ? x - left : left + width - x) - 8 * ratio,
      );
    }
    context.restore();
  }

  _summarize() {
    const data = this._data;
    if (!data) return;
    const { unit } = this._options;
    const own = data.series.filter((each) => !each.isFaint);
    own.sort((one, other) => Number(other.isMain ?? false) - Number(one.isMain ?? false));
    // Not a peak, which a record has exactly: between two samples there may have been more.
    const parts = own.slice(0, MOST_SUMMARIZED).flatMap((each) => {
      const known = each.values.filter((value) => value !== null);
      if (known.length < 2) return [];
      const most = unit(largest(known));
      return [own.length === 1 ? most : `${each.label} ${most}`];
    });
    if (parts.length) parts[0] = `largest ${parts.length === 1 ? "sample" : "samples"}: ${parts[0]}`;
    const limits = (data.limits ?? []).map((limit) => `${limit.label} ${unit(limit.value)}`);
    setText(this._summary, [...parts, ...limits].join(" · "));
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
          el("th", { scope: "row" }, (this._options.time ?? format.time)(at)),
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

/** @param {readonly number[]} numbers */
function largest(numbers) {
  return numbers.reduce((most, each) => (each > most ? each : most), Number.NEGATIVE_INFINITY);
}
