/** Jobs: search, filter and change any of a million jobs. Filters, columns and order are in the address. */

import { announce, confirmDialog, errorBox, toast, wordsOf } from "../components/feedback.js";
import { stateBadge } from "../components/state.js";
import { Table } from "../components/table.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

/** @typedef {Api.JobSummary} Job */

const PAGE = 100;
const TYPING_MS = 60; // after the last keystroke
const REFRESH_MS = 3000;
const STATES = ["running", "queued", "success", "failed", "timeout", "error", "cancelled", "lost", "measured"];
const FAILED = ["failed", "timeout", "error", "lost"];
const OVER_LIMIT = ["out-of-memory", "child-out-of-memory", "timed-out", "pids-limit", "cpu-throttled"];
const TIMES = [
  ["", "any time"],
  ["1h", "last hour"],
  ["1d", "last day"],
  ["7d", "last 7 days"],
  ["30d", "last 30 days"],
];
const FIELDS = ["name", "tool", "tag", "user", "host", "run", "finding"];
const DEFAULT_COLUMNS = ["number", "name", "status", "why", "started", "duration", "cpu", "memory", "host"];

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Jobs",
  nav: "jobs",
  mount(context) {
    new JobsPage(context).start();
  },
};

class JobsPage {
  /** @param {import("../core/page.js").Context} context */
  constructor(context) {
    this._context = context;
    this._query = new URLSearchParams(context.query);
    /** @type {Job[]} */
    this._jobs = [];
    /** @type {string | null} */
    this._next = null;
    this._isLoading = false;
    this._asked = new AbortController();
    /** @type {number | undefined} */
    this._typing = undefined;
    this._count = el("span", { class: "muted", role: "status" });
    this._problem = el("div");
    this._bulk = new BulkBar(
      context,
      () => this._reload(),
      () => this._table.clearSelection(),
    );
    const names = this._columnNames();
    /** @type {Table<Job>} */
    this._table = new Table({
      label: "Jobs",
      columns: this._columns(names),
      rowKey: (job) => String(job.number),
      href: (job) => `/jobs/${job.number}`,
      open: (path) => context.go(path),
      sorted: this._sorted(),
      onSort: (sort, ascending) => this._change({ sort, ascending: ascending ? "true" : null }),
      onSelect: (keys) => this._bulk.show(keys, this._jobs),
      onNearEnd: () => this._more(),
      empty: "No job matches these filters.",
    });
    this._table.node.classList.add("jobs-table");
    this._filters = new Filters(this._query, context.signal, (changes, isTyped) => this._change(changes, isTyped));
  }

  start() {
    const { root, signal } = this._context;
    fill(
      root,
      el(
        "div",
        { class: "page-head" },
        el("h1", null, "Jobs"),
        this._count,
        el("span", { class: "grow" }),
        this._columnMenu(),
      ),
      this._filters.node,
      this._problem,
      this._bulk.node,
      this._table.node,
    );
    signal.addEventListener("abort", () => this._asked.abort(), { once: true });
    this._reload();
    if (!this._context.source.isLive) return;
    // New jobs and new states appear while the list is at its beginning; rows further down stay where they are.
    let isFirst = true;
    poll(
      async () => {
        if (!isFirst && this._table.node.scrollTop < 40 && !this._isLoading) await this._refreshFirst();
        isFirst = false;
      },
      REFRESH_MS,
      signal,
      this._context.setConnection,
    );
  }

  /**
   * @param {Record<string, string | string[] | null>} changes
   * @param {boolean} [isTyped]
   */
  _change(changes, isTyped = false) {
    for (const [name, value] of Object.entries(changes)) {
      this._query.delete(name);
      for (const each of Array.isArray(value) ? value : [value]) if (each) this._query.append(name, each);
    }
    this._context.setQuery(changes);
    this._table.setSorted(this._sorted());
    clearTimeout(this._typing);
    this._typing = setTimeout(() => this._reload(), isTyped ? TYPING_MS : 0);
  }

  async _reload() {
    this._asked.abort();
    this._asked = new AbortController();
    const { signal } = this._asked;
    this._isLoading = true;
    try {
      const found = await this._context.source.get("/summaries", this._asParameters(), { signal });
      fill(this._problem);
      this._jobs = found.items;
      this._next = found.next ?? null;
      this._table.node.scrollTop = 0;
      this._show();
      await this._countAll(signal);
    } catch (error) {
      if (!signal.aborted)
        fill(
          this._problem,
          errorBox(error, () => this._reload()),
        );
    } finally {
      if (!signal.aborted) this._isLoading = false;
    }
  }

  async _refreshFirst() {
    const { signal } = this._asked;
    const found = await this._context.source.get("/summaries", this._asParameters(), { signal });
    if (signal.aborted) return;
    const fresh = new Set(found.items.map((/** @type {Job} */ job) => job.number));
    const rest = this._jobs.length > PAGE ? this._jobs.slice(PAGE).filter((job) => !fresh.has(job.number)) : [];
    this._jobs = [...found.items, ...rest];
    if (!rest.length) this._next = found.next ?? null;
    this._show();
  }

  async _more() {
    if (!this._next || this._isLoading) return;
    this._isLoading = true;
    const { signal } = this._asked;
    try {
      const found = await this._context.source.get(
        "/summaries",
        { ...this._asParameters(), cursor: this._next },
        { signal },
      );
      if (signal.aborted) return;
      const known = new Set(this._jobs.map((job) => job.number));
      this._jobs = [...this._jobs, ...found.items.filter((/** @type {Job} */ job) => !known.has(job.number))];
      this._next = found.next ?? null;
      this._show();
    } catch (error) {
      if (!signal.aborted) toast(wordsOf(error), "error");
    } finally {
      if (!signal.aborted) this._isLoading = false;
    }
  }

  /** @param {AbortSignal} signal */
  async _countAll(signal) {
    if (!this._next) {
      this._say(this._jobs.length);
      return;
    }
    const { sort, ascending, limit, ...filters } = this._asParameters();
    const { count } = await this._context.source.get("/count", filters, { signal });
    this._say(count);
  }

  /** @param {number} count */
  _say(count) {
    setText(this._count, format.counted(count, "job"));
    this._table.setRows(this._jobs, count);
  }

  _show() {
    this._table.setRows(this._jobs, this._next ? this._jobs.length + 1 : null);
    if (!this._next) setText(this._count, format.counted(this._jobs.length, "job"));
  }

  /** @returns {Record<string, any>} */
  _asParameters() {
    const found = { limit: PAGE, ...this._filters.parameters(this._query) };
    const sorted = this._sorted();
    return sorted ? { ...found, sort: sorted.sort, ascending: sorted.ascending } : found;
  }

  _sorted() {
    return { sort: this._query.get("sort") ?? "started", ascending: this._query.get("ascending") === "true" };
  }

  _columnNames() {
    const asked =
      this._query
        .get("columns")
        ?.split(",")
        .filter((name) => name in COLUMNS) ?? [];
    return asked.length ? asked : DEFAULT_COLUMNS;
  }

  /**
   * @param {string[]} names
   * @returns {import("../components/table.js").Column<Job>[]}
   */
  _columns(names) {
    return names.flatMap((id) => {
      const column = COLUMNS[id];
      return column ? [{ id, ...column(this._context) }] : [];
    });
  }

  _columnMenu() {
    const chosen = new Set(this._columnNames());
    const boxes = Object.entries(COLUMNS).map(([id, column]) => {
      const box = el("input", { type: "checkbox", checked: chosen.has(id) });
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(id);
        else chosen.delete(id);
        const names = Object.keys(COLUMNS).filter((name) => chosen.has(name));
        const isDefault = names.join() === DEFAULT_COLUMNS.join();
        this._query.delete("columns");
        if (!isDefault) this._query.set("columns", names.join());
        this._context.setQuery({ columns: isDefault ? null : names.join() });
        this._table.setColumns(this._columns(names));
      });
      return el("label", null, box, column(this._context).label);
    });
    return el("details", { class: "menu" }, el("summary", null, "Columns"), el("div", { class: "menu-body" }, boxes));
  }
}

/** @typedef {Omit<import("../components/table.js").Column<Job>, "id">} ColumnDraft */

/** @type {Record<string, (context: import("../core/page.js").Context) => ColumnDraft>} */
const COLUMNS = {
  number: () => ({
    label: "Job",
    width: "84px",
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
        job.name || job.command || job.uuid.slice(0, 8),
      ),
  }),
  status: () => ({ label: "State", width: "118px", key: (job) => job.status, cell: (job) => stateBadge(job.status) }),
  why: () => ({
    label: "Why",
    isWide: true,
    key: (job) => job.why ?? "",
    cell: (job) => el("span", { class: "muted", title: job.why ?? "" }, job.why ?? ""),
  }),
  started: () => ({
    label: "Started",
    sort: "started",
    width: "142px",
    key: (job) => String(job.started_at_us),
    cell: (job) => el("span", { title: format.time(job.started_at_us) }, format.shortTime(job.started_at_us)),
  }),
  ended: () => ({
    label: "Ended",
    sort: "ended",
    width: "142px",
    key: (job) => String(job.ended_at_us),
    cell: (job) => el("span", { title: format.time(job.ended_at_us) }, format.shortTime(job.ended_at_us)),
  }),
  duration: () => ({
    label: "Duration",
    sort: "duration",
    width: "104px",
    align: "right",
    key: (job) => `${job.duration_s} ${job.status === "running" ? Math.floor(Date.now() / 1000) : ""}`,
    cell: (job) => format.duration(durationOf(job)),
  }),
  cpu: () => ({
    label: "CPU time",
    sort: "cpu",
    width: "100px",
    align: "right",
    key: (job) => String(job.cpu_s),
    cell: (job) => format.duration(job.cpu_s),
  }),
  utilization: () => ({
    label: "CPU",
    width: "74px",
    align: "right",
    key: (job) => String(job.cpu_percent),
    cell: (job) => format.percent(job.cpu_percent),
  }),
  memory: () => ({
    label: "Memory peak",
    sort: "memory",
    width: "124px",
    align: "right",
    key: (job) => `${job.memory_peak_bytes} ${job.memory_limit_bytes}`,
    cell: (job) =>
      el(
        "span",
        { title: job.memory_limit_bytes ? `limit ${format.bytes(job.memory_limit_bytes)}` : "no limit" },
        format.bytes(job.memory_peak_bytes),
      ),
  }),
  limit: () => ({
    label: "Memory limit",
    width: "124px",
    align: "right",
    key: (job) => String(job.memory_limit_bytes),
    cell: (job) => (job.memory_limit_bytes ? format.bytes(job.memory_limit_bytes) : ""),
  }),
  exit: () => ({
    label: "Exit",
    width: "60px",
    align: "right",
    key: (job) => String(job.exit_code),
    cell: (job) => format.count(job.exit_code),
  }),
  host: () => ({
    label: "Host",
    width: "130px",
    isWide: true,
    key: (job) => job.host ?? "",
    cell: (job) => job.host ?? "",
  }),
  user: () => ({
    label: "User",
    width: "90px",
    isWide: true,
    key: (job) => job.user ?? "",
    cell: (job) => job.user ?? "",
  }),
  tool: () => ({
    label: "Tool",
    width: "110px",
    isWide: true,
    key: (job) => job.tool ?? "",
    cell: (job) => job.tool ?? "",
  }),
  queue: () => ({
    label: "Queue",
    width: "100px",
    isWide: true,
    key: (job) => job.queue ?? "",
    cell: (job) => job.queue ?? "",
  }),
  run: (context) => ({
    label: "Run",
    width: "96px",
    isWide: true,
    key: (job) => job.run ?? "",
    cell: (job) =>
      job.run ? el("a", { href: context.href(`/runs/${job.run}`), tabindex: "-1" }, job.run.slice(0, 8)) : "",
  }),
  tags: () => ({
    label: "Tags",
    width: "170px",
    isWide: true,
    key: (job) => (job.tags ?? []).join(),
    cell: (job) => (job.tags ?? []).map((tag) => el("span", { class: "chip" }, tag)),
  }),
  findings: () => ({
    label: "Findings",
    width: "220px",
    isWide: true,
    key: (job) => (job.findings ?? []).join(),
    cell: (job) => el("span", { class: "muted" }, (job.findings ?? []).join(", ")),
  }),
  command: () => ({
    label: "Command",
    isWide: true,
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

/** Search field, states, time, and fields that are added when they are needed. */
class Filters {
  /**
   * @param {URLSearchParams} query
   * @param {AbortSignal} signal
   * @param {(changes: Record<string, string | string[] | null>, isTyped: boolean) => void} onChange
   */
  constructor(query, signal, onChange) {
    this._onChange = onChange;
    const search = el("input", {
      type: "search",
      value: query.get("name_contains") ?? "",
      placeholder: "Search names",
      "aria-label": "Search names",
      class: "search",
    });
    search.addEventListener("input", () => onChange({ name_contains: search.value || null }, true));
    const onKey = (/** @type {KeyboardEvent} */ event) => {
      const target = /** @type {HTMLElement} */ (event.target);
      if (event.key !== "/" || target.matches("input, textarea, select")) return;
      event.preventDefault();
      search.focus();
    };
    document.addEventListener("keydown", onKey, { signal });
    const since = el(
      "select",
      { "aria-label": "Started" },
      TIMES.map(([value, label]) => el("option", { value, selected: (query.get("since") ?? "") === value }, label)),
    );
    const known = TIMES.some(([value]) => value === (query.get("since") ?? ""));
    if (!known)
      since.append(el("option", { value: query.get("since") ?? "", selected: true }, `since ${query.get("since")}`));
    since.addEventListener("change", () => onChange({ since: since.value || null }, false));
    this.node = el(
      "form",
      { class: "filters", role: "search", "aria-label": "Filter jobs", onsubmit: stay },
      search,
      el("div", { class: "states", role: "group", "aria-label": "States" }, this._states(query)),
      since,
      this._toggle("Over limit", "over_limit", query),
      this._fields(query),
    );
  }

  /**
   * Parameters of the API for an address.
   * @param {URLSearchParams} query
   */
  parameters(query) {
    /** @type {Record<string, any>} */
    const found = {};
    for (const name of ["name_contains", "since", "until", "user", "run", "id"]) found[name] = query.get(name);
    for (const name of ["status", "name", "tool", "tag", "host"]) found[name] = query.getAll(name);
    const codes = query.getAll("finding");
    found.finding = query.get("over_limit") && !codes.length ? OVER_LIMIT : codes;
    return found;
  }

  /** @param {URLSearchParams} query */
  _states(query) {
    const chosen = new Set(query.getAll("status"));
    return STATES.map((status) => {
      const button = el(
        "button",
        { type: "button", class: "state-filter", "aria-pressed": String(chosen.has(status)) },
        stateBadge(status),
      );
      button.addEventListener("click", (event) => {
        // With Alt, all failures together.
        const group = event.altKey && FAILED.includes(status) ? FAILED : [status];
        for (const each of group) if (!chosen.delete(each)) chosen.add(each);
        for (const other of button.parentElement?.children ?? []) {
          const index = [...(button.parentElement?.children ?? [])].indexOf(other);
          other.setAttribute("aria-pressed", String(chosen.has(STATES[index] ?? "")));
        }
        this._onChange({ status: [...chosen] }, false);
      });
      return button;
    });
  }

  /**
   * @param {string} label
   * @param {string} name
   * @param {URLSearchParams} query
   */
  _toggle(label, name, query) {
    const box = el("input", { type: "checkbox", checked: query.get(name) === "1" });
    box.addEventListener("change", () => this._onChange({ [name]: box.checked ? "1" : null }, false));
    return el("label", { class: "check-label" }, box, label);
  }

  /** @param {URLSearchParams} query */
  _fields(query) {
    const shown = el("div", { class: "more-filters" });
    const add = (/** @type {string} */ name, /** @type {string} */ value) => {
      const input = el("input", { type: "text", value, placeholder: FIELD_HINTS[name] ?? name, size: "14" });
      const remove = el("button", { type: "button", class: "plain", "aria-label": `Remove the filter ${name}` }, "×");
      const field = el("label", { class: "field" }, el("span", null, name), input, remove);
      input.addEventListener("input", () => this._onChange({ [name]: valuesOf(shown, name) }, true));
      remove.addEventListener("click", () => {
        field.remove();
        this._onChange({ [name]: valuesOf(shown, name) }, false);
      });
      field.dataset.name = name;
      shown.append(field);
      return input;
    };
    for (const name of [...FIELDS, "id", "until"]) for (const value of query.getAll(name)) add(name, value);
    const menu = el(
      "select",
      { "aria-label": "Add a filter" },
      el("option", { value: "" }, "+ filter"),
      [...FIELDS, "id", "until"].map((name) => el("option", { value: name }, name)),
    );
    menu.addEventListener("change", () => {
      if (menu.value) add(menu.value, "").focus();
      menu.value = "";
    });
    return [menu, shown];
  }
}

/** @type {Record<string, string>} */
const FIELD_HINTS = {
  name: "train*",
  tag: "key=value",
  run: "3.2",
  until: "2h or 2026-01-31",
  finding: "out-of-memory",
};

/**
 * @param {HTMLElement} shown
 * @param {string} name
 */
function valuesOf(shown, name) {
  const fields = /** @type {HTMLElement[]} */ ([...shown.children]).filter((field) => field.dataset.name === name);
  return fields.map((field) => field.querySelector("input")?.value.trim() ?? "").filter(Boolean);
}

/** @param {Event} event */
function stay(event) {
  event.preventDefault();
}

/** Changes of the selected jobs. */
class BulkBar {
  /**
   * @param {import("../core/page.js").Context} context
   * @param {() => void} onChanged
   * @param {() => void} onClear
   */
  constructor(context, onChanged, onClear) {
    this._context = context;
    this._onChanged = onChanged;
    this._onClear = onClear;
    /** @type {string[]} */
    this._numbers = [];
    this.node = el("div", { class: "bulk card", role: "toolbar", "aria-label": "Selected jobs", hidden: true });
  }

  /**
   * @param {ReadonlySet<string>} keys
   * @param {readonly Job[]} jobs
   */
  show(keys, jobs) {
    this._numbers = [...keys];
    this.node.hidden = keys.size === 0;
    if (!keys.size) return;
    const { source } = this._context;
    const chosen = jobs.filter((job) => keys.has(String(job.number)));
    const isRunning = chosen.some((job) => job.status === "running" || job.status === "queued");
    const isEnded = chosen.some((job) => job.status !== "running" && job.status !== "queued");
    const may = source.may("operator");
    announce(`${keys.size} selected`);
    fill(
      this.node,
      el("strong", null, `${format.count(keys.size)} selected`),
      may ? this._button("Cancel", isRunning, () => this._ask("cancel", "Cancel", true)) : null,
      may ? this._button("Rerun", isEnded, () => this._ask("rerun", "Rerun", false)) : null,
      may ? this._button("Tag…", true, () => this._tag()) : null,
      source.may("admin") ? this._button("Delete", isEnded, () => this._ask("delete", "Delete", true)) : null,
      this._button("Compare", keys.size >= 2 && keys.size <= 50, () => this._compare()),
      el("span", { class: "grow" }),
      el("button", { type: "button", class: "plain", onclick: this._onClear }, "Clear"),
    );
  }

  /**
   * @param {string} label
   * @param {boolean} isEnabled
   * @param {() => void} act
   */
  _button(label, isEnabled, act) {
    return el("button", { type: "button", disabled: !isEnabled, onclick: act }, label);
  }

  _compare() {
    this._context.go("/compare", new URLSearchParams({ ids: this._numbers.join() }));
  }

  /**
   * @param {"cancel" | "rerun" | "delete"} action
   * @param {string} verb
   * @param {boolean} isDangerous
   */
  async _ask(action, verb, isDangerous) {
    const jobs = format.counted(this._numbers.length, "job");
    const effect = {
      cancel: "They are asked to end; those that have ended stay as they are.",
      rerun: "Their commands run again in the background, as new jobs.",
      delete: "Their samples, output and notes are deleted too. This cannot be undone.",
    }[action];
    const answer = await confirmDialog({
      title: `${verb} ${jobs}?`,
      text: effect,
      action: `${verb} ${jobs}`,
      isDangerous,
    });
    if (answer !== null) await this._send(action, verb, {});
  }

  async _tag() {
    const jobs = format.counted(this._numbers.length, "job");
    const answer = await confirmDialog({
      title: `Tag ${jobs}`,
      text: "Tags are separated by spaces; -NAME removes one.",
      action: `Tag ${jobs}`,
      field: { label: "Tags", placeholder: "night model=large -draft" },
    });
    const words = answer?.split(/[\s,]+/).filter(Boolean) ?? [];
    if (!words.length) return;
    const add = words.filter((word) => !word.startsWith("-"));
    const remove = words.filter((word) => word.startsWith("-")).map((word) => word.slice(1));
    await this._send("tag", "Tag", { tags: { add, remove } });
  }

  /**
   * @param {string} action
   * @param {string} verb
   * @param {object} more
   */
  async _send(action, verb, more) {
    try {
      /** @type {Api.BulkResult} */
      const result = await this._context.source.send("POST", "/bulk", { action, jobs: this._numbers, ...more });
      const first = result.refused[0];
      toast(`${verb}: ${format.counted(result.changed, "job")}`);
      if (first) {
        toast(
          `${format.counted(result.refused.length, "job")} unchanged. Job ${first.job}: ${first.detail}. ${first.hint}`,
          "error",
        );
      }
      this._onClear();
      this._onChanged();
    } catch (error) {
      toast(wordsOf(error), "error");
    }
  }
}
