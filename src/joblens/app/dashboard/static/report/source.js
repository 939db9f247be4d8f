/** Data of a report: answers by path, as the server would give them, from blocks in the file. */

import { Problem } from "../core/source.js";
import { Blocks } from "./blocks.js";
import { comparisonOf } from "./comparison.js";
import { filtered, rowsOf, sorted } from "./job-list.js";

/**
 * @typedef {object} Manifest
 * @property {string} title
 * @property {string} version
 * @property {number} created_at_us
 * @property {{ jobs: number, failed: number, states: Record<string, number>, duration_s: number | null,
 *     cpu_s: number | null, memory_peak_bytes: number | null, first_us: number | null,
 *     last_us: number | null }} totals
 * @property {Api.Failure[]} failures
 * @property {Record<string, { item: number, label: string, workflow: string, status: string }>} runs  By uuid.
 * @property {number[]} numbers  Of the first jobs: of all that can be compared.
 * @property {{ jobs: number | null, runs: number | null }} comparisons  null: too few or too many.
 * @property {{ points: number, log_lines: number, earlier: number }} amount
 * @property {boolean} hides_paths
 * @property {Record<string, [number, number][]>} blocks
 *
 * @typedef {Record<string, any>} Query
 * @typedef {import("../core/source.js").DataSource} DataSource
 */

const MOST_COMPARED = 50;

/** @implements {DataSource} */
export class ReportSource {
  /** @param {Manifest} manifest */
  constructor(manifest) {
    this.isLive = false;
    this.pending = 0; // answers that a page waits for
    this.manifest = manifest;
    /** @type {import("../core/source.js").Session} */
    this.session = {
      principal: { name: "report", user: "", role: "reader", scope: "all" },
      csrf: null,
      version: manifest.version,
    };
    this._blocks = new Blocks(manifest.blocks);
    /** @type {Promise<import("./job-list.js").Row[]> | null} */
    this._rows = null;
    /** @type {Map<string, number> | null} */
    this._places = null;
    /** @type {{ key: string, rows: readonly import("./job-list.js").Row[] }} */
    this._list = { key: "", rows: [] };
  }

  /** A report has no addresses of downloads. @type {DataSource["url"]} */
  url() {
    return "#";
  }

  /** @type {DataSource["get"]} */
  async get(path, query = {}) {
    this.pending += 1;
    try {
      return await this._answer(path, query);
    } finally {
      this.pending -= 1;
    }
  }

  /**
   * @param {string} path
   * @param {Query} query
   */
  async _answer(path, query) {
    const [, kind = "", ident = "", ...rest] = path.split("/").map(decodeURIComponent);
    if (path === "/summaries") return this._summaries(query);
    if (path === "/count") return { count: (await this._filtered(query)).length };
    if (path === "/compare") return this._compare(query);
    if (kind === "jobs" && ident) return this._job(ident, rest.join("/"), query);
    if (kind === "runs" && ident) return this._run(ident, rest.join("/"), query);
    throw absent("this page");
  }

  /** @type {DataSource["send"]} */
  async send() {
    throw new Problem("a report changes nothing", "use the dashboard or the command line", 405);
  }

  /** @type {DataSource["follow"]} */
  follow() {
    return { close() {} };
  }

  /** @type {DataSource["may"]} */
  may() {
    return false;
  }

  /**
   * Whether the data of a page is here. Jobs are known once the first answer about one was given.
   * @param {string} path
   */
  has(path) {
    const [, kind = "", ident = ""] = path.split("/").map(decodeURIComponent);
    if (kind === "runs") return this._runUuid(ident) !== undefined;
    return !["jobs", "recipes"].includes(kind) || !ident || !this._places || this._places.has(ident);
  }

  rows() {
    this._rows ??= this._blocks.all("rows").then(rowsOf);
    return this._rows;
  }

  /** @param {Query} query */
  async _filtered(query) {
    const rows = await this.rows();
    return filtered(rows, query, this.manifest.created_at_us, (ident) => this._runUuid(ident) ?? ident);
  }

  /** @param {Query} query */
  async _summaries(query) {
    const { limit = 50, cursor, ...rest } = query;
    const key = JSON.stringify(rest);
    if (this._list.key !== key) this._list = { key, rows: sorted(await this._filtered(rest), rest) };
    const start = Number(cursor ?? 0);
    const end = start + Number(limit);
    return {
      items: this._list.rows.slice(start, end),
      next: end < this._list.rows.length ? String(end) : null,
    };
  }

  /** @param {string} ident  A number or a UUID. */
  async _place(ident) {
    if (!this._places) {
      const rows = await this.rows();
      this._places = new Map();
      rows.forEach((row, place) => {
        this._places?.set(String(row.number), place);
        this._places?.set(row.uuid, place);
      });
    }
    return this._places.get(ident);
  }

  /**
   * @param {string} ident
   * @param {string} part
   * @param {Query} query
   */
  async _job(ident, part, query) {
    const place = await this._place(ident);
    if (place === undefined) throw absent(`job ${ident}`);
    const answers = await this._blocks.item("jobs", place);
    if (part === "provenance") {
      if (typeof answers.provenance !== "number") throw absent("the provenance of this job");
      return this._blocks.item("provenances", answers.provenance);
    }
    if (part === "findings") return { items: answers[""].outcome?.findings ?? [] };
    const found = answers[part] ?? (part.endsWith("/window") ? lastLines(answers[""], part) : undefined);
    if (found === undefined) {
      if (["earlier", "annotations"].includes(part)) return { items: [] };
      if (part === "attempts") return { items: [answers[""]] };
      throw absent("that");
    }
    if (part === "charts") return chartsOf(found, query);
    return part.startsWith("logs/") ? windowOf(found, query) : found;
  }

  /**
   * @param {string} ident
   * @param {string} part
   * @param {Query} query
   */
  async _run(ident, part, query) {
    const run = this.manifest.runs[this._runUuid(ident) ?? ""];
    await this._place(""); // now it is known which jobs have pages
    if (!run) throw absent(`run ${ident}`);
    const answers = await this._blocks.item("runs", run.item);
    const [group] = [query.open ?? query.group ?? []].flat();
    const found = answers[`${part} ${group}`] ?? answers[part];
    if (found === undefined) throw absent("that");
    return found;
  }

  /** @param {string} ident  A UUID or '3.2'. */
  _runUuid(ident) {
    const { runs } = this.manifest;
    if (runs[ident]) return ident;
    return Object.keys(runs).find((uuid) => runs[uuid]?.label === ident || uuid.startsWith(ident));
  }

  /** @param {Query} query */
  async _compare(query) {
    const runs = [query.run ?? []].flat().map(String);
    const wanted = runs.length ? runs : [query.job ?? []].flat().map(String);
    const item = this.manifest.comparisons[runs.length ? "runs" : "jobs"];
    if (item === null) {
      throw new Problem(
        "this report has no comparison",
        `a report of 2 to ${MOST_COMPARED} jobs has one: joblens report JOB JOB …`,
        404,
      );
    }
    const order = Object.keys(this.manifest.runs);
    const places = await Promise.all(
      wanted.map((ident) => (runs.length ? order.indexOf(this._runUuid(ident) ?? "") : this._place(ident))),
    );
    const missing = places.findIndex((place) => place === undefined || place < 0);
    if (missing >= 0) throw absent(`${runs.length ? "run" : "job"} ${wanted[missing]}`);
    const whole = await this._blocks.item("comparisons", item);
    return comparisonOf(whole, [...new Set(/** @type {number[]} */ (places))]);
  }
}

/**
 * Charts with the time of each point; of a zoom, the points inside.
 * @param {any} found
 * @param {Query} query
 * @returns {Api.JobCharts}
 */
function chartsOf(found, query) {
  let at = 0;
  const times = found.at_steps.map((/** @type {number} */ step, /** @type {number} */ index) => {
    at += index ? step * 1000 : step;
    return at;
  });
  const begin = Number(query.begin_us ?? 0);
  const end = Number(query.end_us ?? Number.MAX_SAFE_INTEGER);
  const isInside = (/** @type {number} */ index) => times[index] >= begin && times[index] < end;
  const inside = (/** @type {any[]} */ values) => values.filter((_value, index) => isInside(index));
  return {
    ...found,
    at_us: inside(times),
    charts: found.charts.map((/** @type {any} */ chart) => ({
      ...chart,
      curves: chart.curves.map((/** @type {any} */ curve) => ({ ...curve, values: inside(curve.values) })),
    })),
  };
}

/**
 * The last lines that the record itself has.
 * @param {Api.Record} record
 * @param {string} part  'logs/stderr/window'
 */
function lastLines(record, part) {
  const stream = part.split("/")[1];
  const text = (stream === "stderr" ? record.outcome?.stderr_tail : record.outcome?.stdout_tail) ?? "";
  let at = 0;
  const lines = text
    .split("\n")
    .slice(0, text.endsWith("\n") ? -1 : undefined)
    .map((line) => {
      const found = { at, text: line };
      at += line.length + 1;
      return found;
    });
  return { start: 0, next: at, total: at, lines: text ? lines : [], is_final: true, source: "record", node: "" };
}

/**
 * Lines of the end of an output, which is all that a report has of it.
 * @param {Api.LogWindow} whole
 * @param {Query} query
 * @returns {Api.LogWindow}
 */
function windowOf(whole, query) {
  const cut = { at: 0, text: "[earlier output is not in this report]" };
  const lines = whole.start > 0 ? [cut, ...whole.lines] : whole.lines;
  const limit = Number(query.limit ?? lines.length);
  const at = Number(query.at ?? Number.MAX_SAFE_INTEGER);
  const place = lines.findIndex((line) => line.at >= at);
  const before = place < 0 ? lines : lines.slice(0, place);
  const behind = place < 0 ? [] : lines.slice(place);
  const half = Math.floor(limit / 2);
  const shown = {
    forward: behind.slice(0, limit),
    backward: before.slice(-limit),
    around: [...before.slice(before.length - Math.min(half, before.length)), ...behind.slice(0, limit - half)],
  }[String(query.part ?? "backward")];
  const last = shown?.at(-1);
  const following = last ? lines[lines.indexOf(last) + 1] : undefined;
  return {
    ...whole,
    start: shown?.[0]?.at ?? 0,
    next: following ? following.at : whole.next,
    lines: shown ?? [],
    is_final: true,
  };
}

/** @param {string} what */
function absent(what) {
  return new Problem(`this report does not have ${what}`, "open it in the dashboard: joblens serve", 404);
}
