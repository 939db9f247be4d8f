/**
 * Timeline of a run on canvas: a row per job, or a lane per group in a large run. Thin lines are waiting time, frames
 * the critical path. Drag to zoom; with the keyboard arrows move, Enter opens, + and − zoom.
 */

import { el, fill, plain } from "../core/dom.js";
import * as format from "../core/format.js";
import { clipped, cross, font, prepared, textScale, ticks } from "./canvas.js";
import { announce } from "./feedback.js";
import { colourOf } from "./sparkline.js";
import { toneOf } from "./state.js";

const ROW = 20;
const LANE = 38;
const AXIS = 22;
const STRIP = 22;
const MOST_HEIGHT = 440;
const NARROW = 620;

/**
 * @typedef {object} GanttOptions
 * @property {(number: number) => void} onOpen  A job.
 * @property {(group: number | null) => void} onGroup  Shows the bars of a group, or of all.
 * @property {(range: Range | null) => void} onZoom
 *
 * @typedef {{ from_us: number, to_us: number }} Range
 * @typedef {{ name: string, y: number, height: number, lane: Api.TimelineLane | null, bars: Api.TimelineBar[] }} Row
 */

export class Gantt {
  /** @param {GanttOptions} options */
  constructor(options) {
    this._options = options;
    /** @type {Api.Timeline | null} */
    this._data = null;
    /** @type {readonly string[]} */
    this._states = [];
    /** @type {Row[]} */
    this._rows = [];
    /** @type {Range | null} */
    this._range = null;
    /** @type {number | null} */
    this._opened = null;
    this._cursor = { row: -1, bar: 0 };
    /** @type {{ from: number, to: number } | null} */
    this._drag = null;
    this._frame = 0;
    this._scale = textScale();
    this._head = el("canvas", { class: "gantt-head", "aria-hidden": "true" });
    this._canvas = el("canvas", { class: "gantt-canvas", role: "img" });
    this._space = el("div", { class: "gantt-space" }, this._canvas);
    this._scroll = el(
      "div",
      { class: "gantt-scroll", tabindex: "0", role: "group", "aria-label": "Timeline, arrows move, Enter opens" },
      this._space,
    );
    this._tip = el("div", { class: "gantt-tip", hidden: true });
    this.node = el("div", { class: "gantt" }, this._head, this._scroll, this._tip);
    const zoom = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ by) =>
      el("button", { type: "button", "aria-label": label, title: label, onclick: () => this._zoomBy(by) }, text);
    this.tools = el(
      "span",
      { class: "graph-tools" },
      zoom("−", "Show more time", 2),
      zoom("+", "Show less time", 0.5),
      el("button", { type: "button", onclick: () => this._setRange(null, true) }, "All"),
    );
    this._listen();
    this._sized = new ResizeObserver(() => this._schedule());
    this._sized.observe(this._scroll);
    this._repaint = () => this._schedule();
    window.addEventListener("joblens-theme", this._repaint);
  }

  destroy() {
    this._sized.disconnect();
    window.removeEventListener("joblens-theme", this._repaint);
  }

  /**
   * @param {Api.Timeline} data
   * @param {readonly string[]} states
   * @param {number | null} opened  The group whose bars these are.
   */
  setData(data, states, opened) {
    this._data = data;
    this._states = states;
    this._opened = opened;
    this._rows = rowsOf(data, opened, this._scale);
    const last = this._rows.at(-1);
    const height = last ? last.y + last.height + 4 : ROW;
    this._space.style.height = `${height}px`;
    this._scroll.style.height = `${Math.min(height, MOST_HEIGHT)}px`;
    const failed = data.lanes.reduce((sum, lane) => sum + lane.failed, 0);
    this._canvas.setAttribute(
      "aria-label",
      `${format.counted(data.attempts, "attempt")} in ${format.duration((data.end_us - data.begin_us) / 1e6)}` +
        (failed ? `, ${format.count(failed)} failed` : ""),
    );
    this._schedule();
  }

  /** @param {Range | null} range */
  setRange(range) {
    this._setRange(range, false);
  }

  /**
   * @param {Range | null} range
   * @param {boolean} isOwn
   */
  _setRange(range, isOwn) {
    this._range = range;
    this._schedule();
    if (isOwn) this._options.onZoom(range);
  }

  _listen() {
    const canvas = this._canvas;
    this._scroll.addEventListener("scroll", () => this._schedule(), { passive: true });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "touch" || event.offsetX < this._left()) return;
      this._drag = { from: event.offsetX, to: event.offsetX };
      this._tip.hidden = true;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this._drag) {
        this._drag.to = event.offsetX;
        this._schedule();
      } else this._hover(event);
    });
    canvas.addEventListener("pointerleave", () => {
      this._tip.hidden = true;
    });
    canvas.addEventListener("pointerup", (event) => {
      const drag = this._drag;
      this._drag = null;
      if (drag && Math.abs(drag.to - drag.from) > 5) {
        const from_us = this._timeAt(Math.min(drag.from, drag.to));
        this._setRange({ from_us, to_us: this._timeAt(Math.max(drag.from, drag.to)) }, true);
      } else this._click(event);
    });
    canvas.addEventListener("dblclick", () => this._setRange(null, true));
    this._scroll.addEventListener("keydown", (event) => this._onKey(event));
  }

  // ---- positions

  _width() {
    return this._scroll.clientWidth;
  }

  _left() {
    return this._width() < NARROW ? 92 : 190 * this._scale;
  }

  /** @returns {Range} */
  _shown() {
    const { begin_us = 0, end_us = 1 } = this._data ?? {};
    return this._range ?? { from_us: begin_us, to_us: Math.max(end_us, begin_us + 1) };
  }

  /** @param {number} us */
  _x(us) {
    const { from_us, to_us } = this._shown();
    return this._left() + ((us - from_us) / (to_us - from_us)) * (this._width() - this._left() - 10);
  }

  /** @param {number} x */
  _timeAt(x) {
    const { from_us, to_us } = this._shown();
    return from_us + ((x - this._left()) / (this._width() - this._left() - 10)) * (to_us - from_us);
  }

  /** @param {number} by */
  _zoomBy(by) {
    const { from_us, to_us } = this._shown();
    const middle = (from_us + to_us) / 2;
    const half = ((to_us - from_us) / 2) * by;
    const { begin_us = 0, end_us = 1 } = this._data ?? {};
    const range = { from_us: Math.max(begin_us, middle - half), to_us: Math.min(end_us, middle + half) };
    this._setRange(range.from_us <= begin_us && range.to_us >= end_us ? null : range, true);
  }

  // ---- drawing

  _schedule() {
    if (this._frame) return;
    this._frame = requestAnimationFrame(() => {
      this._frame = 0;
      this._draw();
    });
  }

  _draw() {
    const data = this._data;
    const width = this._width();
    if (!data || width === 0) return;
    this._drawHead(data, width);
    const height = this._scroll.clientHeight;
    const context = prepared(this._canvas, width, height);
    if (!context) return;
    const top = this._scroll.scrollTop;
    context.translate(0, -top);
    for (const { at } of this._ticks()) {
      context.fillStyle = colourOf("--line");
      context.fillRect(Math.round(this._x(at)), top, 1, height);
    }
    for (const [place, row] of this._rows.entries()) {
      if (row.y + row.height < top || row.y > top + height) continue;
      if (place === this._cursor.row) {
        context.fillStyle = colourOf("--selected");
        context.fillRect(0, row.y, width, row.height);
      }
      if (row.lane) this._drawLane(context, row, row.lane);
      this._drawName(context, row);
      for (const [number, bar] of row.bars.entries()) {
        this._drawBar(context, row, bar, place === this._cursor.row && number === this._cursor.bar);
      }
    }
    if (this._drag) {
      context.globalAlpha = 0.16;
      context.fillStyle = colourOf("--accent");
      context.fillRect(this._drag.from, top, this._drag.to - this._drag.from, height);
      context.globalAlpha = 1;
    }
  }

  /**
   * @param {Api.Timeline} data
   * @param {number} width
   */
  _drawHead(data, width) {
    const axis = AXIS * this._scale;
    const strip = STRIP * this._scale;
    const context = prepared(this._head, width, axis + strip);
    if (!context) return;
    context.font = font(this._scale);
    context.fillStyle = colourOf("--muted");
    context.textBaseline = "middle";
    context.textAlign = "center";
    for (const { at, words } of this._ticks()) {
      const x = this._x(at);
      if (x + context.measureText(words).width / 2 <= width) context.fillText(words, x, axis / 2);
    }
    context.textAlign = "left";
    context.fillText(this._left() < 100 ? "Critical" : "Critical path", 10, axis + strip / 2);
    clipped(context, this._left(), 0, width - this._left(), axis + strip, () => {
      for (const [number, part] of data.critical.entries()) {
        const from = this._x(part.began_us);
        const to = Math.max(from + 1, this._x(part.ended_us));
        context.fillStyle = colourOf(number % 2 ? "--series-1" : "--series-4");
        context.fillRect(from, axis + 4, Math.max(1, to - from - 1), strip - 8);
      }
    });
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Row} row
   */
  _drawName(context, row) {
    context.font = font(this._scale);
    context.textAlign = "left";
    context.textBaseline = "middle";
    const left = row.lane ? 10 : this._data?.lanes.length ? 24 : 10;
    const opens = row.lane ? (row.lane.group === this._opened ? "▾ " : "▸ ") : "";
    clipped(context, 0, row.y, this._left() - 6, row.height, () => {
      context.fillStyle = colourOf(row.lane ? "--ink" : "--muted");
      context.fillText(opens + plain(row.name), left, row.y + (row.lane ? 13 * this._scale : row.height / 2));
      if (!row.lane) return;
      const failed = row.lane.failed ? `, ${format.count(row.lane.failed)} failed` : "";
      context.fillStyle = colourOf(row.lane.failed ? "--bad" : "--muted");
      context.fillText(`${format.count(row.lane.attempts)}${failed}`, left + 14, row.y + 28 * this._scale);
    });
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Row} row
   * @param {Api.TimelineLane} lane
   */
  _drawLane(context, row, lane) {
    const most = lane.running.reduce((top, each) => Math.max(top, each), 1);
    const bottom = row.y + row.height - 4;
    const reach = row.height - 10;
    clipped(context, this._left(), row.y, this._width() - this._left(), row.height, () => {
      context.fillStyle = colourOf("--running");
      context.beginPath();
      context.moveTo(this._x(lane.at_us[0] ?? 0), bottom);
      lane.at_us.forEach((at, place) => {
        const y = bottom - ((lane.running[place] ?? 0) / most) * reach;
        context.lineTo(this._x(at), y);
        context.lineTo(this._x(lane.at_us[place + 1] ?? at), y);
      });
      context.lineTo(this._x(lane.at_us.at(-1) ?? 0), bottom);
      context.globalAlpha = 0.75;
      context.fill();
      context.globalAlpha = 1;
      context.fillStyle = colourOf("--bad");
      for (const at of lane.failed_at_us) cross(context, this._x(at), row.y + 6);
    });
    context.fillStyle = colourOf("--line");
    context.fillRect(0, row.y + row.height - 1, this._width(), 1);
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {Row} row
   * @param {Api.TimelineBar} bar
   * @param {boolean} isActive
   */
  _drawBar(context, row, bar, isActive) {
    const tone = toneOf(this._states[bar.state] ?? "");
    const middle = row.y + row.height / 2;
    clipped(context, this._left(), row.y, this._width() - this._left(), row.height, () => {
      const ready = this._x(bar.ready_us);
      const began = this._x(bar.began_us);
      const width = Math.max(2, this._x(bar.ended_us) - began);
      context.fillStyle = colourOf("--muted");
      if (began - ready > 1) {
        for (let x = ready; x < began - 1; x += 5) context.fillRect(x, middle - 1, Math.min(3, began - x), 2);
      }
      context.fillStyle = colourOf(`--${tone}`);
      context.globalAlpha = tone === "good" ? 0.75 : 1;
      context.fillRect(began, row.y + 4, width, row.height - 8);
      context.globalAlpha = 1;
      if (tone !== "good" && tone !== "running" && width >= 8) {
        context.fillStyle = colourOf("--paper"); // a sign besides the colour
        cross(context, began + 6, middle);
      }
      if (bar.is_critical || isActive) {
        context.strokeStyle = colourOf(isActive ? "--accent" : "--series-1");
        context.lineWidth = 2;
        context.strokeRect(began - 1, row.y + 3, width + 2, row.height - 6);
      }
    });
  }

  /** Instants of the grid. */
  _ticks() {
    const { from_us, to_us } = this._shown();
    return ticks(from_us, to_us, Math.floor((this._width() - this._left()) / 110));
  }

  // ---- pointing

  /** @param {number} y  In the canvas. */
  _rowAt(y) {
    const at = y + this._scroll.scrollTop;
    return this._rows.findIndex((row) => at >= row.y && at < row.y + row.height);
  }

  /** @param {number} place @param {number} x */
  _barAt(place, x) {
    const bars = this._rows[place]?.bars ?? [];
    return bars.findIndex(
      (bar) => x >= this._x(bar.ready_us) - 2 && x <= Math.max(this._x(bar.ended_us), this._x(bar.began_us) + 2) + 2,
    );
  }

  /** @param {PointerEvent} event */
  _hover(event) {
    const place = this._rowAt(event.offsetY);
    const words = this._words(place, this._barAt(place, event.offsetX));
    this._canvas.style.cursor = words ? "pointer" : "crosshair";
    this._tip.hidden = !words;
    if (!words) return;
    fill(
      this._tip,
      words.map((line, number) => el(number ? "div" : "strong", null, line)),
    );
    const box = this.node.getBoundingClientRect();
    const x = event.clientX - box.left;
    this._tip.style.left = `${Math.min(x + 14, box.width - this._tip.offsetWidth - 4)}px`;
    this._tip.style.top = `${event.clientY - box.top + 16}px`;
  }

  /**
   * @param {number} place
   * @param {number} number
   * @returns {string[] | null}
   */
  _words(place, number) {
    const row = this._rows[place];
    const bar = row?.bars[number];
    if (bar) {
      const waited = (bar.began_us - bar.ready_us) / 1e6;
      const state = (this._states[bar.state] ?? "").replaceAll("_", " ");
      return [
        `${bar.name}${bar.attempt > 1 ? `, attempt ${bar.attempt}` : ""}`,
        `${state}, ran ${format.duration((bar.ended_us - bar.began_us) / 1e6)}`,
        ...(waited > 0.1 ? [`waited ${format.duration(waited)}`] : []),
        `from ${format.shortTime(bar.began_us)}`,
        ...(bar.is_critical ? ["on the critical path"] : []),
      ];
    }
    if (!row?.lane) return null;
    const { lane } = row;
    return [
      lane.name,
      `${format.counted(lane.attempts, "attempt")}${lane.failed ? `, ${format.count(lane.failed)} failed` : ""}`,
      `at most ${format.count(lane.running.reduce((top, each) => Math.max(top, each), 0))} at once`,
      `${format.shortTime(lane.began_us)} to ${format.shortTime(lane.ended_us)}`,
    ];
  }

  /** @param {PointerEvent} event */
  _click(event) {
    const place = this._rowAt(event.offsetY);
    const bar = this._barAt(place, event.offsetX);
    this._cursor = { row: place, bar: Math.max(0, bar) };
    this._schedule();
    if (bar >= 0 || event.offsetX < this._left() || this._rows[place]?.lane) this._open(place, Math.max(0, bar));
  }

  /** @param {number} place @param {number} number */
  _open(place, number) {
    const row = this._rows[place];
    if (row?.lane) this._options.onGroup(row.lane.group === this._opened ? null : row.lane.group);
    else if (row?.bars[number]) this._options.onOpen(row.bars[number].number);
  }

  /** @param {KeyboardEvent} event */
  _onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const { row, bar } = this._cursor;
    if (event.key === "+" || event.key === "-") this._zoomBy(event.key === "+" ? 0.5 : 2);
    else if (event.key === "Escape" || event.key === "0") this._setRange(null, true);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp")
      this._move(row + (event.key === "ArrowDown" ? 1 : -1), 0);
    else if (event.key === "Home" || event.key === "End")
      this._move(event.key === "Home" ? 0 : this._rows.length - 1, 0);
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      this._move(row, bar + (event.key === "ArrowRight" ? 1 : -1));
    } else if (event.key === "Enter" && row >= 0) this._open(row, bar);
    else return;
    event.preventDefault();
  }

  /** @param {number} row @param {number} bar */
  _move(row, bar) {
    const place = Math.max(0, Math.min(this._rows.length - 1, row));
    const found = this._rows[place];
    if (!found) return;
    this._cursor = { row: place, bar: Math.max(0, Math.min(found.bars.length - 1, bar)) };
    const view = this._scroll;
    if (found.y < view.scrollTop) view.scrollTop = found.y;
    else if (found.y + found.height > view.scrollTop + view.clientHeight) {
      view.scrollTop = found.y + found.height - view.clientHeight;
    }
    announce((this._words(place, this._cursor.bar) ?? [found.name]).join(", "));
    this._schedule();
  }
}

/**
 * @param {Api.Timeline} data
 * @param {number | null} opened
 * @param {number} scale
 * @returns {Row[]}
 */
function rowsOf(data, opened, scale) {
  /** @type {Row[]} */
  const rows = [];
  let y = 2;
  const add = (
    /** @type {string} */ name,
    /** @type {Api.TimelineLane | null} */ lane,
    /** @type {Api.TimelineBar[]} */ bars,
  ) => {
    const height = (lane ? LANE : ROW) * scale;
    rows.push({ name, y, height, lane, bars });
    y += height;
  };
  /** @type {Map<number, Api.TimelineBar[]>} */
  const byJob = new Map();
  for (const bar of data.bars) {
    const known = byJob.get(bar.index);
    if (known) known.push(bar);
    else byJob.set(bar.index, [bar]);
  }
  const addJobs = () => {
    for (const bars of byJob.values()) add(bars[0]?.name ?? "", null, bars);
  };
  if (data.lanes.length === 0) addJobs();
  for (const lane of data.lanes) {
    add(lane.name, lane, []);
    if (lane.group === opened) addJobs();
  }
  return rows;
}
