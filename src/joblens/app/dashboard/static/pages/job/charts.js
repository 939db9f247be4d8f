/**
 * Charts of a job: one answer has all curves, running or not. Zoom and cursor are shared; a closer look asks the
 * server for more points of that time.
 */

import { Chart, unmeasured } from "../../components/chart.js";
import { ChartGroup } from "../../components/chart-group.js";
import { errorBox, toast, wordsOf } from "../../components/feedback.js";
import { el, fill, setText } from "../../core/dom.js";
import * as format from "../../core/format.js";
import { joinCharts, seriesOf, withEarlier } from "./chart-data.js";

const POINTS = 800; // as FIRST_CHARTS in web/pages.py
const ZOOM_MS = 150; // after the last change
const STEP = 0.25;

/** @type {Record<string, (value: number | null) => string>} */
const UNITS = {
  percent: format.percent,
  bytes: format.bytes,
  "bytes/s": format.rate,
  count: format.count,
  watts: (value) => (value === null ? format.UNKNOWN : `${value.toFixed(0)} W`),
};
/** @typedef {import("../../components/chart-group.js").Range} Range */

export class ChartPanel {
  /**
   * @param {import("../../core/page.js").Context} context
   * @param {string} path  Of the job.
   * @param {(at_us: number | null) => void} onCursor
   */
  constructor(context, path, onCursor) {
    this._context = context;
    this._path = path;
    /** @type {Api.JobCharts | null} */
    this._whole = null;
    /** @type {Api.JobCharts | null} */
    this._close = null;
    /** @type {readonly Api.EarlierRun[]} */
    this._earlier = [];
    /** @type {Map<string, Chart>} */
    this._charts = new Map();
    /** @type {number | undefined} */
    this._timer = undefined;
    this._group = new ChartGroup((range) => this._onZoom(range), onCursor);
    this._range = el("span", { class: "muted number" });
    this._grid = el("div", { class: "charts" });
    this._events = el("details", { class: "more", hidden: true });
    this._reset = this._button("Whole time", "Show the whole time", () => this._group.zoom(null));
    this.node = el(
      "section",
      { class: "job-charts", "aria-label": "Charts" },
      this._toolbar(),
      this._grid,
      this._events,
    );
    this.node.addEventListener("keydown", (event) => this._onKey(event));
  }

  /** Reads all curves again. */
  async load() {
    const { source, signal } = this._context;
    try {
      /** @type {Api.JobCharts} */
      const found = await source.get(`${this._path}/charts`, { points: POINTS }, { signal });
      const isFirst = this._whole === null;
      this._whole = found;
      if (isFirst) this._restoreZoom(found);
      this._show();
      return found;
    } catch (error) {
      if (signal.aborted || this._whole) throw error;
      fill(
        this._grid,
        errorBox(error, () => this.load()),
      );
      throw error;
    }
  }

  /**
   * Reads what is new since the last point.
   * @returns {Promise<Api.JobCharts>}
   */
  async update() {
    const whole = this._whole;
    const last = whole?.at_us.at(-1);
    if (!whole || last === undefined || whole.at_us.length > 2 * POINTS) return this.load();
    const { source, signal } = this._context;
    const query = { begin_us: last + 1, points: 10 * POINTS };
    /** @type {Api.JobCharts} */
    const news = await source.get(`${this._path}/charts`, query, { signal });
    const joined = joinCharts(whole, news);
    if (!joined) return this.load();
    const isSame = joined === whole || news.at_us.length === 0;
    this._whole = joined;
    if (!isSame) this._show();
    return joined;
  }

  destroy() {
    clearTimeout(this._timer);
    for (const chart of this._charts.values()) chart.destroy();
  }

  _show() {
    const whole = this._whole;
    if (!whole) return;
    const shown = this._group.range ? (this._close ?? whole) : whole;
    const began = whole.started_at_us ?? whole.at_us[0] ?? 0;
    const { at_us, curves } = withEarlier(shown.at_us, began, this._earlier);
    const whole_us = withEarlier(whole.at_us, began, this._earlier).at_us;
    this._group.extent = { from_us: whole_us[0] ?? began, to_us: whole_us.at(-1) ?? began };
    const markers = whole.markers.filter((marker) => marker.at_us !== null);
    const keys = shown.charts.map((chart) => `${chart.key}:${chart.unknown ? chart.unknown : ""}`).join();
    if (this._grid.dataset.keys !== keys) this._build(shown, keys);
    shown.charts.forEach((chart, index) => {
      this._charts.get(chart.key)?.setData({
        at_us,
        series: seriesOf(chart, at_us.length, curves),
        limits: chart.limit ? [{ label: chart.limit_title || "limit", value: chart.limit }] : [],
        markers: markers.map((marker) => ({
          at_us: marker.at_us ?? 0,
          label: marker.kind === "finding" ? marker.code : marker.text.slice(0, 48), // its words are below the charts
          colour: marker.severity === "problem" ? "--bad" : marker.severity === "warning" ? "--late" : "--muted",
          isSilent: index > 0 || (marker.kind === "event" && marker.severity === "info"),
        })),
      });
    });
    this._showEvents(markers);
    this._showRange();
  }

  /**
   * @param {Api.JobCharts} found
   * @param {string} keys
   */
  _build(found, keys) {
    this._grid.dataset.keys = keys;
    for (const chart of this._charts.values()) chart.destroy();
    this._charts.clear();
    const nodes = found.charts.map((chart) => {
      if (chart.unknown) return unmeasured(chart.title, chart.unknown);
      const made = new Chart({ title: chart.title, unit: UNITS[chart.unit] ?? format.count, group: this._group });
      this._charts.set(chart.key, made);
      return made.node;
    });
    // Charts first: reasons of missing ones take one line each.
    nodes.sort((one, other) => Number(one.matches(".chart-absent")) - Number(other.matches(".chart-absent")));
    fill(this._grid, nodes);
  }

  _toolbar() {
    const earlier = el("input", { type: "checkbox" });
    earlier.addEventListener("change", () => this._toggleEarlier(earlier));
    return el(
      "div",
      { class: "job-toolbar", role: "toolbar", "aria-label": "Zoom of all charts" },
      el("h2", null, "Charts"),
      this._button("←", "Earlier", () => this._group.pan(-STEP)),
      this._button("→", "Later", () => this._group.pan(STEP)),
      this._button("+", "Zoom in", () => this._group.magnify(0.5)),
      this._button("−", "Zoom out", () => this._group.magnify(2)),
      this._reset,
      this._range,
      el("span", { class: "grow" }),
      el("label", { class: "check-label" }, earlier, "Earlier runs"),
    );
  }

  /**
   * @param {string} label
   * @param {string} words
   * @param {() => void} act
   */
  _button(label, words, act) {
    const isWord = label === words;
    return el("button", { type: "button", "aria-label": isWord ? null : words, title: words, onclick: act }, label);
  }

  /** @param {KeyboardEvent} event */
  _onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (target.matches("input, summary, .scroll") || event.ctrlKey || event.metaKey || event.altKey) return;
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowLeft: () => this._group.pan(-STEP),
      ArrowRight: () => this._group.pan(STEP),
      "+": () => this._group.magnify(0.5),
      "-": () => this._group.magnify(2),
      0: () => this._group.zoom(null),
    };
    const act = acts[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** @param {HTMLInputElement} box */
  async _toggleEarlier(box) {
    const { source, signal } = this._context;
    try {
      this._earlier = box.checked ? (await source.get(`${this._path}/earlier`, {}, { signal })).items : [];
      if (box.checked && this._earlier.length === 0) toast("There is no earlier run of this job with samples.");
    } catch (error) {
      if (!signal.aborted) toast(wordsOf(error), "error");
      box.checked = false;
    }
    this._show();
  }

  /** The address has seconds since the job's start. @param {Api.JobCharts} found */
  _restoreZoom(found) {
    const [from, to] = (this._context.query.get("zoom") ?? "").split("-").map(Number);
    const began = found.started_at_us;
    if (began === null || began === undefined || from === undefined || to === undefined || !(to > from)) return;
    this._group.zoom({ from_us: began + from * 1e6, to_us: began + to * 1e6 });
  }

  /** @param {Range | null} range */
  _onZoom(range) {
    const began = this._whole?.started_at_us ?? 0;
    const seconds = (/** @type {number} */ us) => ((us - began) / 1e6).toFixed(3);
    this._context.setQuery({
      zoom: range ? `${seconds(Math.max(range.from_us, began))}-${seconds(range.to_us)}` : null,
    });
    this._showRange();
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._lookCloser(range), ZOOM_MS);
  }

  /** @param {Range | null} range */
  async _lookCloser(range) {
    const { source, signal } = this._context;
    const whole = this._whole;
    this._close = null;
    if (range && whole && source.isLive && whole.samples > whole.at_us.length) {
      const query = { begin_us: Math.floor(range.from_us), end_us: Math.ceil(range.to_us), points: 2 * POINTS };
      try {
        const found = await source.get(`${this._path}/charts`, query, { signal });
        if (this._group.range === range) this._close = found;
      } catch (error) {
        if (!signal.aborted) toast(wordsOf(error), "error");
      }
    }
    this._show();
  }

  _showRange() {
    const { range, extent } = this._group;
    const { from_us, to_us } = range ?? extent;
    this._reset.disabled = range === null;
    if (to_us <= from_us) return;
    const words = `${format.shortTime(from_us)} – ${format.shortTime(to_us)} (${format.duration((to_us - from_us) / 1e6)})`;
    setText(this._range, words);
  }

  /** @param {readonly Api.Marker[]} markers */
  _showEvents(markers) {
    this._events.hidden = markers.length === 0;
    const key = markers.map((marker) => `${marker.at_us} ${marker.code}`).join();
    if (this._events.dataset.key === key) return;
    this._events.dataset.key = key;
    fill(
      this._events,
      el("summary", null, `Events (${markers.length})`),
      el(
        "ul",
        { class: "events" },
        markers.map((marker) =>
          el(
            "li",
            null,
            el("span", { class: "muted number" }, format.time(marker.at_us)),
            " ",
            el("span", null, marker.text),
          ),
        ),
      ),
    );
  }
}
