/** The head of the Job page: name, state, command, totals, and what can be done with the job. */

import { confirmDialog, copyLine, toast, wordsOf } from "../../components/feedback.js";
import { isFinal, stateBadge } from "../../components/state.js";
import { el, fill, setText } from "../../core/dom.js";
import * as format from "../../core/format.js";

export class Header {
  /**
   * @param {import("../../core/page.js").Context} context
   * @param {() => Promise<void>} onChanged
   */
  constructor(context, onChanged) {
    this._context = context;
    this._onChanged = onChanged;
    this._state = el("span", { role: "status" });
    this._name = el("h1", { class: "job-name" });
    this._where = el("p", { class: "muted job-where" });
    this._actions = el("div", { class: "job-actions", role: "group", "aria-label": "Actions" });
    this._command = el("div", { class: "job-command" });
    this._tiles = el("section", { class: "tiles job-tiles", "aria-label": "Totals" });
    this.node = el(
      "div",
      { class: "job-head" },
      el("div", { class: "page-head" }, this._name, this._state, el("span", { class: "grow" }), this._actions),
      this._where,
      this._command,
      this._tiles,
    );
  }

  /** @param {Api.Record} record */
  show(record) {
    this._record = record;
    const { job, attempt } = record;
    const line = format.commandLine(job);
    fill(
      this._name,
      el("span", { class: "muted job-number" }, `${record.number ?? ""} `),
      el("bdi", null, job.name?.trim() || line.slice(0, 120)),
    );
    fill(this._state, stateBadge(record.status));
    fill(this._where, this._facts(record));
    fill(this._command, copyLine(line.length > 2000 ? `${line.slice(0, 2000)}…` : line, "command of the job"));
    fill(this._actions, this._buttons(record));
    this._showTiles(tilesOf(record, attempt?.started_at_us ?? null));
  }

  /** Shows the newest numbers of a running job. @param {Api.JobCharts} charts */
  tick(charts) {
    const record = this._record;
    if (!record || isFinal(record.status) || charts.started_at_us === null) return;
    const passed = Math.max(0, (charts.now_us - charts.started_at_us) / 1e6);
    const cpu = lastOf(charts, "cpu", "cpu_total");
    const memory = lastOf(charts, "memory", "memory_used") ?? lastOf(charts, "memory", "memory_anon");
    const tiles = tilesOf(record, charts.started_at_us);
    tiles.Duration = [format.duration(passed), tiles.Duration?.[1] ?? ""];
    if (cpu !== null) tiles["CPU now"] = [format.percent(cpu), tiles["CPU now"]?.[1] ?? ""];
    if (memory !== null) tiles["Memory now"] = [format.bytes(memory), tiles["Memory now"]?.[1] ?? ""];
    this._showTiles(tiles);
  }

  /** @param {Record<string, [string, string]>} tiles */
  _showTiles(tiles) {
    const names = Object.keys(tiles).join();
    if (this._tiles.dataset.names !== names) {
      this._tiles.dataset.names = names;
      fill(
        this._tiles,
        Object.keys(tiles).map((name) =>
          el(
            "div",
            { class: "tile" },
            el("span", { class: "tile-label" }, name),
            el("span", { class: "tile-value" }),
            el("span", { class: "tile-more" }),
          ),
        ),
      );
    }
    Object.values(tiles).forEach(([value, more], index) => {
      const [, number, detail] = this._tiles.children[index]?.children ?? [];
      // The last numbers of a running job stay until newer ones come.
      if (number && !(value === format.UNKNOWN && number.textContent)) setText(number, value);
      if (detail) setText(detail, more);
    });
  }

  /** @param {Api.Record} record */
  _facts(record) {
    const { job, attempt, outcome } = record;
    const { href } = this._context;
    /** @type {import("../../core/dom.js").Child[]} */
    const parts = [];
    if (attempt) parts.push(`started ${format.time(attempt.started_at_us)}`);
    else parts.push(`created ${format.time(job.created_at_us)}`);
    if (outcome) parts.push(`ended ${format.time(outcome.ended_at_us)}`);
    if (attempt?.owner.host) parts.push(`on ${attempt.owner.host}`);
    if (job.user) parts.push(`by ${job.user}`);
    if (job.queue) parts.push(`queue ${job.queue}`);
    if (job.run && !job.run.is_command) parts.push(el("a", { href: href(`/runs/${job.run.run_uuid}`) }, "its run"));
    if (job.tool === "recipe") parts.push(el("a", { href: href(`/recipes/${record.number}`) }, "its recipe"));
    if (job.rerun_of) parts.push(el("a", { href: href(`/jobs/${job.rerun_of}`) }, "repeats an earlier job"));
    return parts.flatMap((part, index) => (index ? [" · ", part] : [part]));
  }

  /** @param {Api.Record} record */
  _buttons(record) {
    const { source } = this._context;
    if (!source.isLive) return [];
    const isOver = isFinal(record.status);
    const may = source.may("operator");
    return [
      this._downloads(record),
      may && !isOver
        ? el("button", { type: "button", class: "danger", onclick: () => this._cancel(record) }, "Cancel")
        : null,
      may && isOver ? el("button", { type: "button", onclick: () => this._rerun(record) }, "Rerun") : null,
      source.may("admin") && isOver
        ? el("button", { type: "button", onclick: () => this._delete(record) }, "Delete")
        : null,
    ];
  }

  /** @param {Api.Record} record */
  _downloads(record) {
    const { source } = this._context;
    const path = `/jobs/${record.number ?? record.job.uuid}`;
    const link = (/** @type {string} */ label, /** @type {string} */ url, /** @type {string | true} */ name) =>
      el("a", { href: url, download: name }, label);
    return el(
      "details",
      { class: "menu" },
      el("summary", null, "Download"),
      el(
        "div",
        { class: "menu-body" },
        link("Samples (CSV)", source.url(`${path}/samples/download`), true),
        link("Samples (JSON lines)", source.url(`${path}/samples/download`, { format: "jsonl" }), true),
        link("Output (stdout)", source.url(`${path}/logs/stdout`, { download: true }), true),
        link("Output (stderr)", source.url(`${path}/logs/stderr`, { download: true }), true),
        link("Record (JSON)", source.url(path), `job-${record.number}.json`),
      ),
    );
  }

  /** @param {Api.Record} record */
  async _cancel(record) {
    const isSure = await confirmDialog({
      title: `Cancel job ${record.number}?`,
      text: "Sends SIGTERM, then SIGKILL after the grace time.",
      action: "Cancel the job",
      isDangerous: true,
    });
    if (isSure === null) return;
    await this._change(async () => {
      await this._context.source.send("POST", `/jobs/${record.number}/cancel`);
      toast(`Cancelling job ${record.number}`);
      await this._onChanged();
    });
  }

  /** @param {Api.Record} record */
  async _rerun(record) {
    const isSure = await confirmDialog({
      title: `Rerun job ${record.number}?`,
      text: "Its command runs again in the background, as a new job.",
      action: "Rerun the job",
    });
    if (isSure === null) return;
    await this._change(async () => {
      /** @type {Api.Record} */
      const fresh = await this._context.source.send("POST", `/jobs/${record.number}/rerun`, {});
      toast(`Job ${fresh.number} repeats job ${record.number}`);
      this._context.go(`/jobs/${fresh.number}`);
    });
  }

  /** @param {Api.Record} record */
  async _delete(record) {
    const isSure = await confirmDialog({
      title: `Delete job ${record.number}?`,
      text: "Its samples, output and notes are deleted too. This cannot be undone.",
      action: "Delete the job",
      isDangerous: true,
    });
    if (isSure === null) return;
    await this._change(async () => {
      await this._context.source.send("DELETE", `/jobs/${record.number}`);
      toast(`Job ${record.number} is deleted`);
      this._context.go("/jobs");
    });
  }

  /** @param {() => Promise<void>} act */
  async _change(act) {
    try {
      await act();
    } catch (error) {
      toast(wordsOf(error), "error");
    }
  }
}

/**
 * The newest value of a curve.
 * @param {Api.JobCharts} charts
 * @param {string} chart
 * @param {string} key
 */
function lastOf(charts, chart, key) {
  const curve = charts.charts.find((each) => each.key === chart)?.curves?.find((each) => each.key === key);
  return curve?.values.findLast((value) => value !== null) ?? null;
}

/**
 * Label -> number and what it is measured against.
 * @param {Api.Record} record
 * @param {number | null} started_at_us
 * @returns {Record<string, [string, string]>}
 */
function tilesOf(record, started_at_us) {
  const { job, outcome } = record;
  const { cpus, memory_bytes, timeout_s } = job.requirements ?? {};
  const timeLimit = timeout_s ? `limit ${format.duration(timeout_s)}` : "";
  const memoryLimit = memory_bytes ? `limit ${format.bytes(memory_bytes)}` : "no limit";
  const cpuLimit = cpus ? `${cpus} CPUs requested` : "";
  if (!outcome) {
    return {
      Duration: [format.UNKNOWN, started_at_us === null ? "has not started" : timeLimit],
      "CPU now": [format.UNKNOWN, cpuLimit],
      "Memory now": [format.UNKNOWN, memoryLimit],
    };
  }
  const { usage = {} } = outcome;
  const cpu_s = usage.cpu_total_usec === null || usage.cpu_total_usec === undefined ? null : usage.cpu_total_usec / 1e6;
  const mean = cpu_s !== null && outcome.duration_s > 0 ? (100 * cpu_s) / outcome.duration_s : null;
  const ended = outcome.signal ? `signal ${outcome.signal}` : (outcome.reason ?? "");
  return {
    Duration: [format.duration(outcome.duration_s), timeLimit],
    "CPU time": [format.duration(cpu_s), `mean ${format.percent(mean)}${cpus ? ` of ${cpus * 100}%` : ""}`],
    "Memory peak": [format.bytes(usage.memory_peak_bytes), memoryLimit],
    "Disk read": [format.bytes(usage.io_read_bytes), `written ${format.bytes(usage.io_write_bytes)}`],
    Received: [format.bytes(usage.network_rx_bytes), `sent ${format.bytes(usage.network_tx_bytes)}`],
    "Exit code": [format.count(outcome.exit_code), ended],
  };
}
