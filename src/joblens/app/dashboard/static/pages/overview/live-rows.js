/** Running and queued jobs, changed in place and drawn once per frame. */

import { sparkline } from "../../components/sparkline.js";
import { stateBadge } from "../../components/state.js";
import { Table } from "../../components/table.js";
import { el, fill, setText } from "../../core/dom.js";
import * as format from "../../core/format.js";

const POINTS = 60;

/**
 * @typedef {object} Row
 * @property {Api.LiveJob} job
 * @property {(number | null)[]} cpu
 * @property {(number | null)[]} memory
 */

export class LiveRows {
  /** @param {import("../../core/page.js").Context} context */
  constructor(context) {
    /** @type {Map<number, Row>} */
    this._rows = new Map();
    this._now = 0;
    this.count = el("span", { class: "muted" });
    /** @type {Table<Row>} */
    this.table = new Table({
      label: "Running and queued jobs",
      columns: this._columns(context),
      rowKey: (row) => String(row.job.number),
      href: (row) => `/jobs/${row.job.number}`,
      open: (path) => context.go(path),
      empty: "Nothing is running. Start something: joblens run -- COMMAND",
    });
    this.table.node.classList.add("running-table");
  }

  /** @param {Api.LiveAnswer} answer */
  take(answer) {
    this._now = answer.at_us;
    if (answer.is_complete) this._rows.clear();
    for (const number of answer.gone) this._rows.delete(number);
    for (const job of answer.jobs) {
      const row = this._rows.get(job.number);
      if (row) row.job = job;
      else this._rows.set(job.number, { job, cpu: [], memory: [] });
    }
    for (const [number, cpu, memory] of /** @type {any} */ (answer.points)) {
      const row = this._rows.get(number);
      if (!row) continue;
      row.cpu.push(...cpu);
      row.memory.push(...memory);
      if (row.cpu.length > POINTS) row.cpu.splice(0, row.cpu.length - POINTS);
      if (row.memory.length > POINTS) row.memory.splice(0, row.memory.length - POINTS);
    }
    const hasChanged = answer.is_complete || answer.gone.length > 0 || answer.jobs.length > 0;
    if (hasChanged) this.table.setRows(ordered([...this._rows.values()]));
    else this.table.refresh();
    const counts = `${format.count(answer.running)} running, ${format.count(answer.queued)} queued`;
    const isPart = this._rows.size < answer.running + answer.queued;
    setText(this.count, isPart ? `${counts}; the first ${format.count(this._rows.size)} are listed` : counts);
  }

  /**
   * @param {import("../../core/page.js").Context} context
   * @returns {import("../../components/table.js").Column<Row>[]}
   */
  _columns(context) {
    return [
      {
        id: "number",
        label: "Job",
        width: 5,
        align: "right",
        needs: "wide",
        key: (row) => String(row.job.number),
        cell: numberOf,
      },
      {
        id: "name",
        label: "Name",
        key: (row) => row.job.name + row.job.command,
        cell: (row) =>
          el(
            "a",
            { href: context.href(`/jobs/${row.job.number}`), tabindex: "-1", title: row.job.command ?? "" },
            row.job.name.trim() || row.job.command || row.job.uuid.slice(0, 8),
          ),
      },
      {
        id: "status",
        label: "State",
        width: 8,
        narrow: 4.6,
        key: (row) => row.job.status,
        cell: (row) => stateBadge(row.job.status),
      },
      {
        id: "time",
        label: "Time",
        width: 6.4,
        align: "right",
        needs: "roomy",
        cell: (row, cell) => setText(cell, format.duration(Math.max(0, (this._now - row.job.since_us) / 1e6))),
      },
      {
        id: "cpu",
        label: "CPU",
        width: 12,
        narrow: 7.6,
        cell: (row, cell) => showCurve(cell, "cpu", row.cpu, row.job.cpus ? row.job.cpus * 100 : null, format.percent),
      },
      {
        id: "memory",
        label: "Memory",
        width: 13.9,
        narrow: 9.6,
        cell: (row, cell) => showCurve(cell, "memory", row.memory, row.job.memory_bytes ?? null, format.bytes),
      },
      {
        id: "limits",
        label: "Limits",
        width: 10.7,
        needs: "wide",
        key: (row) => `${row.job.cpus} ${row.job.memory_bytes} ${row.job.timeout_s}`,
        cell: (row) => el("span", { class: "muted" }, limitsOf(row.job)),
      },
      {
        id: "where",
        label: "Host",
        width: 9.3,
        needs: "wide",
        key: (row) => (row.job.host ?? "") + row.job.queue,
        cell: (row) => el("span", { class: "muted" }, row.job.host || (row.job.queue ? `queue ${row.job.queue}` : "")),
      },
      {
        id: "user",
        label: "User",
        width: 6.4,
        needs: "wide",
        key: (row) => row.job.user ?? "",
        cell: (row) => el("span", { class: "muted" }, row.job.user ?? ""),
      },
    ];
  }
}

/** @param {Row} row */
function numberOf(row) {
  return String(row.job.number);
}

/** Running ones first, oldest first. @param {Row[]} rows */
function ordered(rows) {
  return rows.sort((one, other) => {
    const byState = Number(other.job.status === "running") - Number(one.job.status === "running");
    return byState || one.job.number - other.job.number;
  });
}

/** Sparklines of cells, which live as long as their cells. @type {WeakMap<HTMLElement, CellCurve>} */
const curves = new WeakMap();

/** @typedef {{ line: import("../../components/sparkline.js").Sparkline, text: HTMLElement }} CellCurve */

/**
 * @param {HTMLElement} cell
 * @param {string} tone
 * @param {(number | null)[]} values
 * @param {number | null} limit
 * @param {(value: number | null) => string} unit
 */
function showCurve(cell, tone, values, limit, unit) {
  let curve = curves.get(cell);
  if (!curve) {
    curve = { line: sparkline(tone), text: el("span", { class: "spark-text" }) };
    fill(cell, curve.line.node, curve.text);
    curves.set(cell, curve);
  }
  const last = values.at(-1) ?? null;
  const words = unit(last);
  curve.line.draw(values, limit, limit === null ? words : `${words} of ${unit(limit)}`);
  setText(curve.text, words);
  curve.text.classList.toggle("near-limit", limit !== null && last !== null && last >= limit * 0.95);
}

/** @param {Api.LiveJob} job */
function limitsOf(job) {
  const parts = [];
  if (job.cpus) parts.push(`${job.cpus} CPU`);
  if (job.memory_bytes) parts.push(format.bytes(job.memory_bytes));
  if (job.timeout_s) parts.push(format.duration(job.timeout_s));
  return parts.join(" · ");
}
