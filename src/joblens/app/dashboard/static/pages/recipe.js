/** Recipe: progress of its partitions through the operators, rows, rejects with examples, checkpoints. */

import { copyLine, emptyBox } from "../components/feedback.js";
import { stateBadge } from "../components/state.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

const LIVE_MS = 1000;

/** Signs of cells. @type {Record<string, { word: string, tone: string }>} */
const CELLS = {
  ".": { word: "not started", tone: "waiting" },
  r: { word: "running", tone: "running" },
  d: { word: "done", tone: "good" },
  s: { word: "saved", tone: "saved" },
  f: { word: "failed", tone: "bad" },
};

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Recipe",
  nav: "jobs",
  async mount(context) {
    const { source, signal } = context;
    const view = new RecipeView(context);
    const ask = async () => {
      if (view.isOver) return;
      /** @type {Api.RecipePage} */
      const answer = await source.get(`/jobs/${encodeURIComponent(context.params.job ?? "")}/recipe`, {}, { signal });
      if (!signal.aborted) view.show(answer);
    };
    await ask(); // an error replaces the page
    if (source.isLive && !view.isOver) {
      poll(ask, LIVE_MS, signal, (state, detail) => context.setConnection(view.isOver ? "ended" : state, detail));
    }
  },
};

class RecipeView {
  /** @param {import("../core/page.js").Context} context */
  constructor(context) {
    this._context = context;
    this.isOver = false;
    this._badge = el("span");
    this._facts = el("p", { class: "run-facts muted" });
    this._tiles = el("section", { class: "tiles", "aria-label": "Summary" });
    this._problem = el("div");
    this._progress = el("progress", { max: "1", "aria-label": "Progress" });
    this._grid = el("div", {
      class: "recipe-grid-scroll",
      tabindex: "0",
      role: "group",
      "aria-label": "Operators, scrolls",
    });
    this._note = el("span", { class: "muted" });
    this._rejects = el("section", { class: "card", "aria-label": "Rejected rows", hidden: true });
    this._checkpoints = el("section", { class: "card", "aria-label": "Checkpoints" });
    this._failed = el("section", { class: "card", "aria-label": "Failed partitions", hidden: true });
    this._stamps = new Map();
    this._isMounted = false;
  }

  /** @param {Api.RecipePage} found */
  show(found) {
    if (!this._isMounted) this._mount(found);
    this.isOver = !found.is_live;
    this._if("badge", found.status, () => fill(this._badge, stateBadge(found.status)));
    this._showFacts(found);
    this._progress.value = found.fraction ?? 0;
    this._progress.hidden = found.fraction === null || found.fraction === undefined;
    this._if("problem", found.error, () =>
      fill(
        this._problem,
        found.error ? el("div", { class: "notice notice-bad" }, el("strong", null, found.error)) : null,
      ),
    );
    this._if("grid", [found.operators, found.partitions], () => this._showGrid(found));
    this._if("failed", found.failed, () => this._showFailed(found));
    this._if("rejects", found.rejects, () => this._showRejects(found));
    this._if("checkpoints", [found.checkpoints, found.is_from_folder], () => this._showCheckpoints(found));
  }

  /**
   * Draws a part only when its data changed.
   * @param {string} part
   * @param {unknown} data
   * @param {() => void} draw
   */
  _if(part, data, draw) {
    const stamp = JSON.stringify(data);
    if (this._stamps.get(part) === stamp) return;
    this._stamps.set(part, stamp);
    draw();
  }

  /** @param {Api.RecipePage} found */
  _mount(found) {
    this._isMounted = true;
    const { root, href, setTitle } = this._context;
    setTitle(`Recipe ${found.name}`);
    fill(
      root,
      el(
        "div",
        { class: "page-head" },
        el("h1", null, found.name || "Recipe"),
        this._badge,
        el("span", { class: "grow" }),
        el("a", { class: "button", href: href(`/jobs/${found.number}`) }, `Job ${found.number}`),
      ),
      this._facts,
      this._progress,
      this._problem,
      this._tiles,
      el(
        "section",
        { class: "card", "aria-label": "Operators" },
        el(
          "div",
          { class: "card-head" },
          el("h2", null, "Operators"),
          this._note,
          el("span", { class: "grow" }),
          cellLegend(),
        ),
        this._grid,
      ),
      this._failed,
      this._rejects,
      this._checkpoints,
    );
  }

  /** @param {Api.RecipePage} found */
  _showFacts(found) {
    const facts = [
      found.started_at_us ? `started ${format.shortTime(found.started_at_us)}` : "",
      found.runs > 1 ? `resumed ${format.counted(found.runs - 1, "time")}` : "",
      found.job_dir,
      found.export_path ? `exports to ${found.export_path}` : "",
    ];
    setText(this._facts, facts.filter(Boolean).join(" · "));
    const done = found.is_from_folder
      ? `${format.count(found.completed_partitions)} of ${format.count(found.partitions)}`
      : format.count(found.partitions || null);
    const waiting = found.waiting_partitions ? `${format.count(found.waiting_partitions)} wait for the others` : "";
    const failed = found.failed_partitions ? `${format.count(found.failed_partitions)} failed` : "";
    const keep =
      found.rows_in && found.rows_out !== null && found.rows_out !== undefined
        ? `${format.share(found.rows_out / found.rows_in)} of rows in`
        : "";
    const tiles = [
      ["Partitions", done, [failed, waiting].filter(Boolean).join(", ")],
      [
        "Rows in",
        format.count(found.rows_in),
        found.rows_per_second ? `${format.count(Math.round(found.rows_per_second))} rows/s` : "",
      ],
      ["Rows out", format.count(found.rows_out), keep],
      [
        "Rejected rows",
        format.count(found.rejected_rows),
        found.retries ? `${format.count(found.retries)} ${found.retries === 1 ? "retry" : "retries"}` : "",
      ],
      [
        "Time",
        format.duration(found.duration_s),
        found.eta_s === null || found.eta_s === undefined ? "" : `about ${format.duration(found.eta_s)} left`,
      ],
    ];
    this._if("tiles", tiles, () =>
      fill(
        this._tiles,
        tiles.map(([label, value, more]) =>
          el(
            "div",
            { class: "tile" },
            el("span", { class: "tile-label" }, label),
            el("span", { class: "tile-value" }, value),
            el("span", { class: "tile-more" }, more),
          ),
        ),
      ),
    );
  }

  /** @param {Api.RecipePage} found */
  _showGrid(found) {
    const per = found.partitions_per_cell;
    setText(
      this._note,
      found.is_from_folder
        ? `${format.counted(found.partitions, "partition")}${per > 1 ? `, ${format.count(per)} per cell` : ""}`
        : "the job's directory is not on this machine: totals only",
    );
    if (!found.operators.length) {
      fill(this._grid, emptyBox("No operator has started."));
      return;
    }
    const head = [
      "Operator",
      found.is_from_folder ? "Partitions" : "",
      "Done",
      "Rows in",
      "Keep",
      "Rejected",
      "Rows/s",
      "CPU time",
      "Memory peak",
    ];
    fill(
      this._grid,
      el(
        "table",
        { class: "recipe-grid" },
        el(
          "thead",
          null,
          el(
            "tr",
            null,
            head.map((word, place) => el("th", { scope: "col", class: place > 1 ? "right" : "" }, word)),
          ),
        ),
        el(
          "tbody",
          null,
          found.operators.map((operator) => this._operatorRow(operator, per)),
        ),
      ),
    );
  }

  /**
   * @param {Api.RecipeOperator} operator
   * @param {number} per
   */
  _operatorRow(operator, per) {
    const numbers = [
      `${format.count(operator.completed)} of ${format.count(operator.planned)}`,
      format.count(operator.input_rows),
      format.share(operator.keep_rate),
      format.count(operator.rejected_rows),
      operator.rows_per_second ? format.count(Math.round(operator.rows_per_second)) : format.UNKNOWN,
      format.duration(operator.cpu_s),
      format.bytes(operator.memory_peak_bytes),
    ];
    return el(
      "tr",
      null,
      el(
        "th",
        { scope: "row", title: operator.name },
        `${operator.index + 1} ${operator.name}`,
        operator.is_global ? el("span", { class: "chip" }, "all partitions") : null,
      ),
      el("td", null, cells(operator, per)),
      numbers.map((word) => el("td", { class: "right" }, word)),
    );
  }

  /** @param {Api.RecipePage} found */
  _showFailed(found) {
    this._failed.hidden = found.failed.length === 0;
    fill(
      this._failed,
      el(
        "div",
        { class: "card-head" },
        el("h2", null, "Failed partitions"),
        el("span", { class: "muted" }, format.count(found.failed_partitions)),
      ),
      el(
        "ul",
        { class: "recipe-list" },
        found.failed.map((each) =>
          el(
            "li",
            null,
            el("strong", null, `Partition ${each.partition}`),
            ` ${each.operator} `,
            el("code", null, each.error),
          ),
        ),
      ),
    );
  }

  /** @param {Api.RecipePage} found */
  _showRejects(found) {
    this._rejects.hidden = found.rejects.length === 0;
    const note = found.are_rejects_all ? "by reason" : "by reason; only the first ones are counted while it runs";
    fill(
      this._rejects,
      el("div", { class: "card-head" }, el("h2", null, "Rejected rows"), el("span", { class: "muted" }, note)),
      el(
        "ul",
        { class: "recipe-list" },
        found.rejects.map((each) =>
          el(
            "li",
            null,
            el("strong", { class: "number" }, format.counted(each.rows, "row")),
            ` ${each.operator || "reading"}: ${each.reason}`,
            each.examples.length
              ? el(
                  "details",
                  null,
                  el("summary", null, each.examples.length === 1 ? "Example" : `${each.examples.length} examples`),
                  each.examples.map((example) =>
                    el(
                      "figure",
                      { class: "reject" },
                      el(
                        "figcaption",
                        { class: "muted" },
                        [example.source, example.position].filter(Boolean).join(", "),
                      ),
                      el("code", null, example.row),
                    ),
                  ),
                )
              : null,
          ),
        ),
      ),
    );
  }

  /** @param {Api.RecipePage} found */
  _showCheckpoints(found) {
    const { checkpoints } = found;
    this._checkpoints.hidden = !found.is_from_folder;
    const facts = [
      ["Strategy", checkpoints.strategy || "none"],
      ["Saved results", format.count(checkpoints.operations)],
      ["Last", checkpoints.last_at_us ? format.time(checkpoints.last_at_us) : format.UNKNOWN],
      ["Can be resumed", checkpoints.is_resumable ? "yes" : "no"],
    ];
    fill(
      this._checkpoints,
      el("div", { class: "card-head" }, el("h2", null, "Checkpoints")),
      el(
        "div",
        { class: "card-body" },
        el(
          "dl",
          { class: "facts" },
          facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)]),
        ),
        checkpoints.resume && !found.is_live
          ? el("p", { class: "advice-line" }, copyLine(checkpoints.resume, "command that resumes it"))
          : null,
      ),
    );
  }
}

/**
 * The partitions of one operator as small cells; runs of equal cells are one element.
 * @param {Api.RecipeOperator} operator
 * @param {number} per
 */
function cells(operator, per) {
  if (!operator.cells) return null;
  /** @type {{ sign: string, count: number, first: number }[]} */
  const runs = [];
  [...operator.cells].forEach((sign, place) => {
    const last = runs.at(-1);
    if (last?.sign === sign) last.count += 1;
    else runs.push({ sign, count: 1, first: place });
  });
  const words = Object.entries(CELLS)
    .map(([sign, { word }]) => ({ word, count: [...operator.cells].filter((each) => each === sign).length }))
    .filter(({ count }) => count)
    .map(({ word, count }) => `${format.count(count * per)} ${word}`);
  return el(
    "div",
    { class: "cells", role: "img", "aria-label": words.join(", "), title: words.join(", ") },
    runs.map(({ sign, count }) =>
      el("span", {
        class: `cell cell-${CELLS[sign]?.tone ?? "waiting"}`,
        style: { flex: String(count), "--cells": String(count) },
      }),
    ),
  );
}

function cellLegend() {
  return el(
    "span",
    { class: "gantt-legend muted cell-legend" },
    Object.values(CELLS).map(({ word, tone }) =>
      el("span", null, el("span", { class: `gantt-key cell-${tone}` }), word),
    ),
  );
}
