/** Cards of a run's page that are drawn when they come into view: graph, timeline, machine use. */

import { el, fill } from "../core/dom.js";
import * as format from "../core/format.js";
import { Chart } from "./chart.js";
import { ChartGroup } from "./chart-group.js";
import { emptyBox, errorBox } from "./feedback.js";
import { Gantt } from "./gantt.js";
import { GraphView } from "./graph.js";

const TIMELINE_MS = 3000; // between readings of a running run

/** Calls back when the node comes near the view for the first time. @param {Element} node @param {() => void} act */
function whenSeen(node, act) {
  const observer = new IntersectionObserver(
    (entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      observer.disconnect();
      act();
    },
    { rootMargin: "200px" },
  );
  observer.observe(node);
}

export class GraphCard {
  /**
   * @param {import("../core/page.js").Context} context
   * @param {string} path
   * @param {import("./run-rows.js").RunRows} rows
   * @param {{ onGroup: (group: number | null) => void, onFind: (name: string) => void }} options  `onFind`: a job
   *     that has no page yet.
   */
  constructor(context, path, rows, options) {
    this._context = context;
    this._path = path;
    this._rows = rows;
    this._options = options;
    /** @type {Set<number>} */
    this._open = new Set(context.query.getAll("open").map(Number).filter(Number.isInteger));
    this._isGrouped = context.query.get("grouped") === "true";
    /** @type {Api.GraphAnswer | null} */
    this._answer = null;
    this._view = new GraphView({ label: "Graph of jobs and dependencies", onOpen: (box) => this._onOpen(box) });
    this._note = el("span", { class: "muted" });
    this._chips = el("span", { class: "states" });
    this._toggle = el("button", { type: "button", hidden: true });
    this._toggle.addEventListener("click", () => this._setGrouped(!this._isGrouped));
    this._body = el("div", { class: "graph-body" }, el("p", { class: "muted loading" }, "Reading the graph…"));
    this.node = el(
      "section",
      { class: "card", "aria-label": "Graph" },
      el(
        "div",
        { class: "card-head" },
        el("h2", null, "Graph"),
        this._note,
        this._chips,
        el("span", { class: "grow" }),
        this._toggle,
        this._view.tools,
      ),
      this._body,
    );
  }

  /** Reads the graph when it is needed. */
  load() {
    whenSeen(this.node, () => this.reload(true));
  }

  /** @param {boolean} [isFirst] */
  async reload(isFirst = false) {
    if (!isFirst && !this._answer) return;
    const { source, signal } = this._context;
    try {
      const query = { open: [...this._open], grouped: this._isGrouped || null };
      /** @type {Api.GraphAnswer} */
      const answer = await source.get(`${this._path}/graph`, query, { signal });
      if (signal.aborted) return;
      this._answer = answer;
      this._show(answer, isFirst);
    } catch (error) {
      if (!signal.aborted)
        fill(
          this._body,
          errorBox(error, () => this.reload(true)),
        );
    }
  }

  /** Colours boxes by the states that are known now. */
  showStates() {
    if (this._answer) this._view.setStates(this._rows.statesOf(this._answer.graph.boxes));
  }

  /**
   * @param {Api.GraphAnswer} answer
   * @param {boolean} isFirst
   */
  _show(answer, isFirst) {
    const { graph } = answer;
    if (isFirst) fill(this._body, this._view.node);
    this._view.setGraph(graph, answer.opened);
    if (isFirst) this._view.fit();
    this.showStates();
    this._showChips();
    const hidden = graph.edges_hidden ? `, ${format.count(graph.edges_hidden)} arrows are not drawn` : "";
    const kind = answer.is_grouped ? "grouped, open a group to see its jobs" : "";
    fill(this._note, [format.counted(graph.stages, "stage"), kind].filter(Boolean).join(", ") + hidden);
    const canToggle = answer.can_group && (!answer.is_grouped || this._isGrouped) && this._context.source.isLive;
    this._toggle.hidden = !canToggle;
    fill(this._toggle, this._isGrouped ? "Show every job" : "Group");
  }

  /** Opened groups, each with a button that closes it. */
  _showChips() {
    const chips = [...this._open].map((group) => {
      const name = this._rows.groups[group] ?? String(group);
      return el(
        "button",
        { type: "button", class: "chip", "aria-label": `Close group ${name}`, onclick: () => this._openOrClose(group) },
        `${name} ×`,
      );
    });
    fill(this._chips, chips);
  }

  /** @param {number} group */
  _openOrClose(group) {
    if (!this._open.delete(group)) this._open.add(group);
    this._context.setQuery({ open: [...this._open].map(String) });
    this._options.onGroup(this._open.has(group) ? group : null);
    this.reload();
  }

  /** @param {boolean} isGrouped */
  _setGrouped(isGrouped) {
    this._isGrouped = isGrouped;
    this._open.clear();
    this._context.setQuery({ grouped: isGrouped ? "true" : null, open: null });
    this.reload();
  }

  /** @param {Api.GraphBox} box */
  _onOpen(box) {
    if (box.index === null || box.index === undefined) {
      this._openOrClose(box.group);
      return;
    }
    const row = this._rows.at(box.index);
    if (row?.number) this._context.go(`/jobs/${row.number}`);
    else if (row) this._options.onFind(row.name);
  }
}

export class TimelineCard {
  /**
   * @param {import("../core/page.js").Context} context
   * @param {string} path
   */
  constructor(context, path) {
    this._context = context;
    this._path = path;
    /** @type {readonly string[]} */
    this._states = [];
    /** @type {number | null} */
    this._group = null;
    this._isSeen = false;
    this._isAsking = false;
    this._nextMs = 0;
    /** @type {number | undefined} */
    this._later = undefined;
    const from = Number(context.query.get("from"));
    const to = Number(context.query.get("to"));
    this._charts = new ChartGroup((range) => {
      this._gantt.setRange(range);
      this._keep(range);
    });
    this._gantt = new Gantt({
      onOpen: (number) => context.go(`/jobs/${number}`),
      onGroup: (group) => {
        this._group = group;
        this._ask();
      },
      onZoom: (range) => this._charts.zoom(range),
    });
    if (from > 0 && to > from) {
      this._charts.range = { from_us: from * 1000, to_us: to * 1000 };
      this._gantt.setRange(this._charts.range);
    }
    const chart = (/** @type {string} */ title, /** @type {(value: number | null) => string} */ unit) =>
      new Chart({ title, unit, group: this._charts, height: 130 });
    this._cpus = chart("CPUs", (value) => (value === null ? format.UNKNOWN : Number(value.toFixed(1)).toString()));
    this._memory = chart("Memory", format.bytes);
    this._jobs = chart("Jobs", format.count);
    this._critical = el("details", { class: "critical" });
    this._note = el("span", { class: "muted" });
    this._body = el("div", { class: "card-body" }, el("p", { class: "muted loading" }, "Reading the timeline…"));
    this.node = el(
      "section",
      { class: "card", "aria-label": "Timeline" },
      el(
        "div",
        { class: "card-head" },
        el("h2", null, "Timeline"),
        this._note,
        el("span", { class: "grow" }),
        this._gantt.tools,
      ),
      this._body,
    );
  }

  destroy() {
    clearTimeout(this._later);
    this._gantt.destroy();
    for (const chart of [this._cpus, this._memory, this._jobs]) chart.destroy();
  }

  /** @param {readonly string[]} states */
  load(states) {
    this._states = states;
    whenSeen(this.node, () => {
      this._isSeen = true;
      this._ask();
    });
  }

  /** Jobs changed: reads it again soon, but not more often than it takes. @param {readonly string[]} states */
  changed(states) {
    this._states = states;
    if (!this._isSeen || this._later !== undefined) return;
    this._later = setTimeout(
      () => {
        this._later = undefined;
        this._ask();
      },
      Math.max(0, this._nextMs - performance.now()),
    );
  }

  async _ask() {
    if (this._isAsking) return;
    this._isAsking = true;
    const { source, signal } = this._context;
    const began = performance.now();
    try {
      const group = this._group;
      /** @type {Api.TimelineAnswer} */
      const answer = await source.get(`${this._path}/timeline`, { group }, { signal });
      if (signal.aborted) return;
      this._show(answer, group);
    } catch (error) {
      if (!signal.aborted)
        fill(
          this._body,
          errorBox(error, () => this._ask()),
        );
    } finally {
      this._isAsking = false;
      this._nextMs = performance.now() + Math.max(TIMELINE_MS, 5 * (performance.now() - began));
    }
  }

  /**
   * @param {Api.TimelineAnswer} answer
   * @param {number | null} group
   */
  _show(answer, group) {
    const { timeline } = answer;
    if (!timeline) {
      fill(this._body, emptyBox("No job has started yet."));
      return;
    }
    if (this._gantt.node.parentElement !== this._body) {
      fill(
        this._body,
        legend(),
        this._gantt.node,
        this._critical,
        el("h3", { class: "machine-title" }, "Machine"),
        el(
          "div",
          { class: "run-charts" },
          [this._cpus, this._memory, this._jobs].map((chart) => chart.node),
        ),
      );
    }
    this._gantt.setData(timeline, this._states, group);
    const mean = timeline.waited_s / Math.max(1, timeline.attempts);
    const waited = mean > 0.1 ? `, waited ${format.duration(mean)} for resources on average` : "";
    fill(
      this._note,
      `${format.counted(timeline.attempts, "attempt")}, ran ${format.duration(timeline.ran_s)} in total${waited}`,
    );
    this._showCritical(timeline);
    this._showUse(timeline.use);
  }

  /** @param {Api.Timeline} timeline */
  _showCritical(timeline) {
    const total = format.duration(timeline.critical_ran_s + timeline.critical_waited_s);
    const waited =
      timeline.critical_waited_s > 0.1 ? `, ${format.duration(timeline.critical_waited_s)} of it waiting` : "";
    const { context } = { context: this._context };
    fill(
      this._critical,
      el("summary", null, `Critical path: ${total}${waited}`),
      el(
        "ol",
        null,
        timeline.critical.map((part) =>
          el(
            "li",
            null,
            part.number
              ? el("a", { href: context.href(`/jobs/${part.number}`) }, part.name)
              : el("strong", null, `${part.name} ×${format.count(part.jobs)}`),
            ` ran ${format.duration(part.ran_s)}`,
            part.waited_s > 0.1 ? `, waited ${format.duration(part.waited_s)}` : "",
            el("span", { class: "muted" }, ` · started when ${part.cause}`),
          ),
        ),
      ),
    );
  }

  /** @param {Api.UseCurves} use */
  _showUse(use) {
    const data = (/** @type {[string, string, string][]} */ wanted, /** @type {string} */ offered) => {
      const limit = use.values[offered]?.at(-1) ?? null;
      return {
        at_us: use.at_us,
        series: wanted
          .filter(([name]) => use.values[name])
          .map(([name, label, colour]) => ({
            label,
            values: use.values[name] ?? [],
            colour,
            isDashed: name.endsWith("waiting"),
            isFilled: name.endsWith("used") || name.endsWith("running"),
          })),
        limits: limit === null ? [] : [{ label: "available", value: limit }],
      };
    };
    const reserved = "--series-1";
    this._cpus.setData(
      data(
        [
          ["cpus_used", "used", "--cpu"],
          ["cpus_reserved", "reserved", reserved],
        ],
        "cpus_offered",
      ),
    );
    this._memory.setData(
      data(
        [
          ["memory_used", "used", "--memory"],
          ["memory_reserved", "reserved", reserved],
        ],
        "memory_offered",
      ),
    );
    this._jobs.setData(
      data(
        [
          ["jobs_running", "running", "--running"],
          ["jobs_waiting", "waiting", reserved],
        ],
        "",
      ),
    );
  }

  /** Keeps the zoom in the address. @param {{ from_us: number, to_us: number } | null} range */
  _keep(range) {
    this._context.setQuery({
      from: range ? String(Math.round(range.from_us / 1000)) : null,
      to: range ? String(Math.round(range.to_us / 1000)) : null,
    });
  }
}

function legend() {
  const entry = (/** @type {string} */ kind, /** @type {string} */ words) =>
    el("span", null, el("span", { class: `gantt-key key-${kind}` }), words);
  return el(
    "p",
    { class: "gantt-legend muted" },
    entry("good", "completed"),
    entry("running", "running"),
    entry("bad", "failed ×"),
    entry("critical", "on the critical path"),
    entry("wait", "waiting"),
    "drag to zoom",
  );
}
