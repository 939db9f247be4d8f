/** Overview: failures first, running jobs with live numbers, machines, queue, workers, today against last week. */

import { plainTable } from "../components/card.js";
import { failureItem } from "../components/failure.js";
import { emptyBox, errorBox } from "../components/feedback.js";
import { meter, showMeter } from "../components/meter.js";
import { sparkline } from "../components/sparkline.js";
import { stateBadge } from "../components/state.js";
import { Table } from "../components/table.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

const LIVE_MS = 1000;
const SLOW_MS = 10_000;
const POINTS = 60;

/**
 * @typedef {object} Row
 * @property {Api.LiveJob} job
 * @property {(number | null)[]} cpu
 * @property {(number | null)[]} memory
 */

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Overview",
  nav: "overview",
  mount(context) {
    const { root, source, signal } = context;
    const live = new LiveRows(context);
    const tiles = new Tiles(context);
    const failures = el("section", { class: "card", "aria-label": "Failures", hidden: true });
    const machines = el("div", { class: "card-body machines" });
    const queue = el("section", { class: "card", "aria-label": "Queue and workers", hidden: true });
    fill(
      root,
      el("h1", { class: "visually-hidden" }, "Overview"),
      tiles.node,
      failures,
      el(
        "section",
        { class: "card", "aria-label": "Running jobs" },
        el("div", { class: "card-head" }, el("h2", null, "Running and queued"), live.count),
        live.table.node,
      ),
      el(
        "div",
        { class: "grid" },
        el(
          "section",
          { class: "card", "aria-label": "Machines" },
          el("div", { class: "card-head" }, el("h2", null, "Machines")),
          machines,
        ),
        queue,
      ),
    );
    let turn = 0;
    poll(
      async () => {
        /** @type {Api.LiveAnswer} */
        const answer = await source.get("/live", { since: turn }, { signal });
        turn = answer.turn;
        live.take(answer);
        tiles.showLive(answer);
        showMachines(machines, answer.machines);
      },
      LIVE_MS,
      signal,
      context.setConnection,
    );
    poll(
      async () => {
        try {
          /** @type {Api.Overview} */
          const answer = await source.get("/overview", { midnight_us: midnight() }, { signal });
          showFailures(failures, answer.failures, context);
          showQueue(queue, answer);
          if (answer.days) tiles.showDays(answer.days);
        } catch (error) {
          if (!signal.aborted) tiles.showProblem(error);
          throw error;
        }
      },
      SLOW_MS,
      signal,
      () => {},
    );
  },
};

/** Rows of running and queued jobs, changed in place and drawn once per frame. */
class LiveRows {
  /** @param {import("../core/page.js").Context} context */
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
    setText(this.count, `${format.count(answer.running)} running, ${format.count(answer.queued)} queued`);
  }

  /**
   * @param {import("../core/page.js").Context} context
   * @returns {import("../components/table.js").Column<Row>[]}
   */
  _columns(context) {
    return [
      {
        id: "number",
        label: "Job",
        width: "70px",
        align: "right",
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
            row.job.name || row.job.command || row.job.uuid.slice(0, 8),
          ),
      },
      {
        id: "status",
        label: "State",
        width: "112px",
        key: (row) => row.job.status,
        cell: (row) => stateBadge(row.job.status),
      },
      {
        id: "time",
        label: "Time",
        width: "96px",
        align: "right",
        cell: (row, cell) => setText(cell, format.duration(Math.max(0, (this._now - row.job.since_us) / 1e6))),
      },
      {
        id: "cpu",
        label: "CPU",
        width: "184px",
        cell: (row, cell) => showCurve(cell, "cpu", row.cpu, row.job.cpus ? row.job.cpus * 100 : null, format.percent),
      },
      {
        id: "memory",
        label: "Memory",
        width: "204px",
        cell: (row, cell) => showCurve(cell, "memory", row.memory, row.job.memory_bytes ?? null, format.bytes),
      },
      {
        id: "limits",
        label: "Limits",
        width: "150px",
        isWide: true,
        key: (row) => `${row.job.cpus} ${row.job.memory_bytes} ${row.job.timeout_s}`,
        cell: (row) => el("span", { class: "muted" }, limitsOf(row.job)),
      },
      {
        id: "where",
        label: "Host",
        width: "130px",
        isWide: true,
        key: (row) => (row.job.host ?? "") + row.job.queue,
        cell: (row) => el("span", { class: "muted" }, row.job.host || row.job.queue || ""),
      },
      {
        id: "user",
        label: "User",
        width: "90px",
        isWide: true,
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

/** @typedef {{ line: import("../components/sparkline.js").Sparkline, text: HTMLElement }} CellCurve */

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

/** Numbers at the top: now, and today against the week before. */
class Tiles {
  /** @param {import("../core/page.js").Context} context */
  constructor(context) {
    const jobs = (/** @type {string} */ query) => context.href("/jobs", new URLSearchParams(query));
    this._running = tile("Running", jobs("status=running"));
    this._queued = tile("Queued", jobs("status=queued"));
    this._today = tile("Started today", jobs("since=1d"));
    this._failed = tile("Failed today", jobs("status=failed&status=timeout&status=error&status=lost&since=1d"));
    this._cpu = tile("CPU time today", null);
    this.node = el(
      "section",
      { class: "tiles", "aria-label": "Summary" },
      [this._running, this._queued, this._today, this._failed, this._cpu].map((each) => each.node),
    );
  }

  /** @param {Api.LiveAnswer} answer */
  showLive(answer) {
    this._running.show(format.count(answer.running), "");
    this._queued.show(format.count(answer.queued), "");
  }

  /** @param {Api.Days} days */
  showDays(days) {
    const { today, before } = days;
    this._today.show(
      format.count(today.jobs),
      compared(today.jobs, mean(before.map((day) => day.jobs ?? 0)), format.count),
    );
    this._failed.show(
      format.count(today.failed),
      compared(today.failed ?? 0, mean(before.map((day) => day.failed ?? 0)), format.count),
    );
    this._failed.node.classList.toggle("has-failures", (today.failed ?? 0) > 0);
    this._cpu.show(
      format.duration(today.cpu_s),
      compared(today.cpu_s ?? 0, mean(before.map((day) => day.cpu_s ?? 0)), format.duration),
    );
  }

  /** @param {unknown} error */
  showProblem(error) {
    for (const each of [this._today, this._failed, this._cpu]) {
      each.show(format.UNKNOWN, error instanceof Error ? error.message : String(error));
    }
  }
}

/**
 * @param {string} label
 * @param {string | null} href
 */
function tile(label, href) {
  const value = el("span", { class: "tile-value" }, format.UNKNOWN);
  const more = el("span", { class: "tile-more" });
  const parts = [el("span", { class: "tile-label" }, label), value, more];
  const node = href ? el("a", { class: "tile", href }, parts) : el("div", { class: "tile" }, parts);
  return {
    node,
    /**
     * @param {string} text
     * @param {string} detail
     */
    show(text, detail) {
      setText(value, text);
      setText(more, detail);
    },
  };
}

/** @param {number[]} numbers */
function mean(numbers) {
  return numbers.length ? numbers.reduce((sum, each) => sum + each, 0) / numbers.length : 0;
}

/**
 * 'usually 12 by now': the mean of the seven days before, up to the same time of day.
 * @param {number | undefined} today
 * @param {number} usual
 * @param {(value: number) => string} unit
 */
function compared(today, usual, unit) {
  if (!usual) return today ? "none in the week before" : "";
  const rounded = unit === format.count ? Math.round(usual * 10) / 10 : usual;
  return `usual by now: ${unit(rounded)}`;
}

/** Midnight of the reader, in µs. */
function midnight() {
  const at = new Date();
  at.setHours(0, 0, 0, 0);
  return at.getTime() * 1000;
}

/**
 * @param {HTMLElement} card
 * @param {readonly Api.Failure[]} failures
 * @param {import("../core/page.js").Context} context
 */
function showFailures(card, failures, context) {
  const key = failures.map((each) => each.uuid).join();
  if (card.dataset.key === key) return;
  card.dataset.key = key;
  card.hidden = failures.length === 0;
  const all = new URLSearchParams("status=failed&status=timeout&status=error&status=lost");
  fill(
    card,
    el(
      "div",
      { class: "card-head" },
      el("h2", null, "Failures"),
      el("span", { class: "muted" }, "last 7 days, newest first"),
      el("span", { class: "grow" }),
      el("a", { href: context.href("/jobs", all) }, "All failures"),
    ),
    el(
      "ul",
      { class: "failures", tabindex: "0", "aria-label": "Failed jobs" },
      failures.map((failure) => failureItem(failure, context)),
    ),
  );
}

/**
 * @param {HTMLElement} body
 * @param {readonly Api.Machine[]} machines
 */
function showMachines(body, machines) {
  const key = machines.map((each) => each.host).join();
  if (body.dataset.key !== key) {
    body.dataset.key = key;
    fill(
      body,
      machines.map((each) => {
        const cpu = meter("cpu", `CPU of ${each.host}`);
        const memory = meter("memory", `memory of ${each.host}`);
        return el(
          "div",
          { class: "machine" },
          el("strong", null, each.host),
          el("span", { class: "muted" }),
          cpu,
          memory,
        );
      }),
    );
  }
  machines.forEach((each, index) => {
    const [, facts, cpu, memory] = /** @type {HTMLElement[]} */ ([...(body.children[index]?.children ?? [])]);
    if (!facts || !cpu || !memory) return;
    const load = each.load1 === null || each.load1 === undefined ? "" : ` · load ${each.load1.toFixed(1)}`;
    setText(
      facts,
      `${format.counted(each.jobs ?? 0, "job")}${each.cpu_count ? ` · ${each.cpu_count} CPUs` : ""}${load}`,
    );
    showMeter(cpu, each.cpu_percent ?? null, 100, `CPU ${format.percent(each.cpu_percent)}`);
    const total = each.memory_total_bytes ?? null;
    showMeter(
      memory,
      each.memory_used_bytes ?? null,
      total,
      `memory ${format.bytes(each.memory_used_bytes)} of ${format.bytes(total)}`,
    );
  });
}

/**
 * @param {HTMLElement} card
 * @param {Api.Overview} found
 */
function showQueue(card, found) {
  card.hidden = found.workers.length === 0 && found.backlog.length === 0;
  if (card.hidden) return;
  fill(
    card,
    el("div", { class: "card-head" }, el("h2", null, "Queue and workers")),
    el(
      "div",
      { class: "card-body" },
      found.backlog.length
        ? plainTable(
            "Queues",
            ["Queue", "Waiting", "On workers", "Oldest waits"],
            found.backlog.map((each) => [
              each.queue || "default",
              format.count(each.waiting),
              format.count(each.held),
              each.waiting ? format.seconds(each.oldest_waiting_us) : "",
            ]),
          )
        : emptyBox("No job waits for a worker."),
      found.workers.length
        ? plainTable(
            "Workers",
            ["Worker", "Jobs", "Seen"],
            found.workers.map((each) => [
              each.name,
              `${each.running} of ${each.concurrency}`,
              format.ago(each.seen_at_us),
            ]),
          )
        : errorBox("No worker serves the queues"),
    ),
  );
}
