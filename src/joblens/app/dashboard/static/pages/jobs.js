/** Jobs: search, filter and change any of a million jobs. Filters, columns and order are in the address. */

import { errorBox, toast, wordsOf } from "../components/feedback.js";
import { Table } from "../components/table.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { pause, poll } from "../core/stream.js";
import { BulkBar } from "./jobs/bulk-bar.js";
import { ColumnMenu } from "./jobs/columns.js";
import { Filters } from "./jobs/filters.js";

/** @typedef {Api.JobSummary} Job */

const PAGE = 100;
const TYPING_MS = 20; // after the last keystroke
const COUNT_MS = 400; // a reader who types on needs no count, which takes longer than rows
const REFRESH_MS = 3000;

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
    this._menu = new ColumnMenu(context, (columns) => this._table.setColumns(columns));
    /** @type {Table<Job>} */
    this._table = new Table({
      label: "Jobs",
      columns: this._menu.columns(),
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
        this._menu.node,
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
      this._isLoading = false;
      await pause(COUNT_MS, signal);
      if (!signal.aborted) await this._countAll(signal);
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
}
