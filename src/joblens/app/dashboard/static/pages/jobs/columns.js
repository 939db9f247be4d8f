/** Columns of the list of jobs, and the menu that chooses them. The choice is in the address. */

import { numberOf, stateBadge } from "../../components/state.js";
import { el } from "../../core/dom.js";
import * as format from "../../core/format.js";

/** @typedef {Api.JobSummary} Job */

const DEFAULT_COLUMNS = ["number", "name", "status", "why", "started", "duration", "cpu", "memory", "host"];

export class ColumnMenu {
  /**
   * @param {import("../../core/page.js").Context} context
   * @param {(columns: import("../../components/table.js").Column<Job>[]) => void} onChange
   */
  constructor(context, onChange) {
    this._context = context;
    this._chosen = new Set(namesIn(context.query.get("columns") ?? ""));
    const boxes = Object.entries(COLUMNS).map(([id, column]) => {
      const box = el("input", { type: "checkbox", checked: this._chosen.has(id) });
      box.addEventListener("change", () => {
        if (box.checked) this._chosen.add(id);
        else this._chosen.delete(id);
        const names = this._names();
        context.setQuery({ columns: names.join() === DEFAULT_COLUMNS.join() ? null : names.join() });
        onChange(this.columns());
      });
      return el("label", null, box, column(context).label);
    });
    this.node = el(
      "details",
      { class: "menu" },
      el("summary", null, "Columns"),
      el("div", { class: "menu-body" }, boxes),
    );
  }

  /** @returns {import("../../components/table.js").Column<Job>[]} */
  columns() {
    return this._names().flatMap((id) => {
      const column = COLUMNS[id];
      return column ? [{ id, ...column(this._context) }] : [];
    });
  }

  _names() {
    return Object.keys(COLUMNS).filter((name) => this._chosen.has(name));
  }
}

/** @param {string} text  Of the address. */
function namesIn(text) {
  const asked = text.split(",").filter((name) => Object.hasOwn(COLUMNS, name));
  return asked.length ? asked : DEFAULT_COLUMNS;
}

/** @typedef {Omit<import("../../components/table.js").Column<Job>, "id">} ColumnDraft */

/** @type {Record<string, (context: import("../../core/page.js").Context) => ColumnDraft>} */
const COLUMNS = {
  number: () => ({
    label: "Job",
    width: 5.1,
    needs: "roomy",
    align: "right",
    key: (job) => String(job.number),
    cell: (job) => String(job.number),
  }),
  name: (context) => ({
    label: "Name",
    sort: "name",
    key: (job) => job.name + job.command,
    cell: (job) =>
      el(
        "a",
        { href: context.href(`/jobs/${job.number}`), tabindex: "-1", title: job.command ?? "" },
        job.name.trim() || job.command || job.uuid.slice(0, 8),
      ),
  }),
  status: () => ({
    label: "State",
    width: 8.4,
    narrow: 4.6,
    key: (job) => job.status,
    cell: (job) => stateBadge(job.status),
  }),
  why: () => ({
    label: "Why",
    needs: "roomy",
    key: (job) => job.why ?? "",
    cell: (job) => el("span", { class: "muted", title: job.why ?? "" }, job.why ?? ""),
  }),
  started: () => ({
    label: "Started",
    sort: "started",
    width: 10.1,
    key: (job) => String(job.started_at_us),
    cell: (job) => el("span", { title: format.time(job.started_at_us) }, format.shortTime(job.started_at_us)),
  }),
  ended: () => ({
    label: "Ended",
    sort: "ended",
    width: 10.1,
    key: (job) => String(job.ended_at_us),
    cell: (job) => el("span", { title: format.time(job.ended_at_us) }, format.shortTime(job.ended_at_us)),
  }),
  duration: () => ({
    label: "Duration",
    sort: "duration",
    width: 7.4,
    align: "right",
    key: (job) => `${job.duration_s} ${job.status === "running" ? Math.floor(Date.now() / 1000) : ""}`,
    cell: (job) => format.duration(durationOf(job)),
  }),
  cpu: () => ({
    label: "CPU time",
    sort: "cpu",
    width: 7.1,
    align: "right",
    key: (job) => `${job.status} ${job.cpu_s}`,
    cell: (job) => numberOf(job.status, format.duration(job.cpu_s), "so far"),
  }),
  utilization: () => ({
    label: "CPU",
    width: 5.3,
    align: "right",
    key: (job) => String(job.cpu_percent),
    cell: (job) => format.percent(job.cpu_percent),
  }),
  memory: () => ({
    label: "Memory peak",
    sort: "memory",
    width: 8.9,
    align: "right",
    key: (job) => `${job.status} ${job.memory_peak_bytes} ${job.memory_bytes} ${job.memory_limit_bytes}`,
    cell: (job) => {
      const limit = job.memory_limit_bytes ? `limit ${format.bytes(job.memory_limit_bytes)}` : "no limit";
      return numberOf(job.status, format.bytes(job.memory_peak_bytes ?? job.memory_bytes), "in use now", limit);
    },
  }),
  limit: () => ({
    label: "Memory limit",
    width: 8.9,
    align: "right",
    key: (job) => String(job.memory_limit_bytes),
    cell: (job) => (job.memory_limit_bytes ? format.bytes(job.memory_limit_bytes) : ""),
  }),
  exit: () => ({
    label: "Exit",
    width: 4.3,
    align: "right",
    key: (job) => String(job.exit_code),
    cell: (job) => format.count(job.exit_code),
  }),
  host: () => ({
    label: "Host",
    width: 9.3,
    needs: "wide",
    key: (job) => job.host ?? "",
    cell: (job) => job.host ?? "",
  }),
  user: () => ({
    label: "User",
    width: 6.4,
    needs: "wide",
    key: (job) => job.user ?? "",
    cell: (job) => job.user ?? "",
  }),
  tool: () => ({
    label: "Tool",
    width: 7.9,
    needs: "wide",
    key: (job) => job.tool ?? "",
    cell: (job) => job.tool ?? "",
  }),
  queue: () => ({
    label: "Queue",
    width: 7.1,
    needs: "wide",
    key: (job) => job.queue ?? "",
    cell: (job) => job.queue ?? "",
  }),
  run: (context) => ({
    label: "Run",
    width: 6.9,
    needs: "wide",
    key: (job) => job.run ?? "",
    cell: (job) =>
      job.run ? el("a", { href: context.href(`/runs/${job.run}`), tabindex: "-1" }, job.run.slice(0, 8)) : "",
  }),
  tags: () => ({
    label: "Tags",
    width: 12.1,
    needs: "wide",
    key: (job) => (job.tags ?? []).join(),
    cell: (job) => (job.tags ?? []).map((tag) => el("span", { class: "chip" }, tag)),
  }),
  findings: () => ({
    label: "Findings",
    width: 15.7,
    needs: "wide",
    key: (job) => (job.findings ?? []).join(),
    cell: (job) => el("span", { class: "muted" }, (job.findings ?? []).join(", ")),
  }),
  command: () => ({
    label: "Command",
    needs: "wide",
    key: (job) => job.command ?? "",
    cell: (job) => el("code", { title: job.command ?? "" }, job.command ?? ""),
  }),
};

/** @param {Job} job */
function durationOf(job) {
  if (job.duration_s !== undefined && job.duration_s !== null) return job.duration_s;
  return job.status === "running" && job.started_at_us
    ? Math.max(0, Date.now() / 1000 - job.started_at_us / 1e6)
    : null;
}
