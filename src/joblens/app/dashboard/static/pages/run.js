/** Run: its state and failures first, then all jobs, graph, timeline and machine use. The head waits for none of them. */

import { runActions } from "../components/run-actions.js";
import { GraphCard, TimelineCard } from "../components/run-cards.js";
import { RunRows, STATE_ORDER } from "../components/run-rows.js";
import { numberOf, stateBadge, toneOf } from "../components/state.js";
import { Table } from "../components/table.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

const LIVE_MS = 1000;
const QUIET_MS = 10_000;
const TYPING_MS = 80;
const CLOCK_MS = 1000;

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Run",
  nav: "runs",
  async mount(context) {
    await new RunPage(context).start();
  },
};

class RunPage {
  /** @param {import("../core/page.js").Context} context */
  constructor(context) {
    this._context = context;
    this._path = `/runs/${encodeURIComponent(context.params.run ?? "")}`;
    this._rows = new RunRows();
    /** @type {Api.RunHead | null} */
    this._head = null;
    this._offset_us = 0; // of the server's clock
    this._turn = 0;
    this._dueMs = 0;
    /** @type {{ close: () => void } | null} */
    this._feed = null;
    this._title = el("h1");
    this._badge = el("span");
    this._facts = el("p", { class: "run-facts muted" });
    this._took = el("span", { class: "number" });
    this._actions = el("span", { class: "actions" });
    this._states = new StateFilter((states) => this._choose({ state: states }));
    this._count = el("span", { class: "muted", role: "status" });
    this._search = el("input", {
      type: "search",
      placeholder: "Name or Job ID",
      "aria-label": "Search jobs of this run",
      value: context.query.get("text") ?? "",
    });
    this._groupChip = el("span");
    this._query = new URLSearchParams(context.query);
    /** @type {Table<import("../components/run-rows.js").RunRow>} */
    this._table = new Table({
      label: "Jobs of the run",
      columns: this._columns(),
      rowKey: (row) => String(row.index),
      href: (row) => (row.number === null ? "" : `/jobs/${row.number}`),
      open: (path) => context.go(path),
      sorted: this._sorted(),
      onSort: (sort, ascending) => this._choose({ sort, ascending: ascending ? "true" : null }),
      empty: "No job matches.",
    });
    this._table.node.classList.add("run-table");
    this._graph = new GraphCard(context, this._path, this._rows, {
      onGroup: (group) => this._choose({ group: group === null ? null : String(group) }),
      onFind: (name) => {
        this._search.value = name;
        this._choose({ text: name });
      },
    });
    this._timeline = new TimelineCard(context, this._path);
  }

  async start() {
    const { source, signal, setTitle } = this._context;
    /** @type {Api.RunPage} */
    const first = await source.get(`${this._path}/page`, {}, { signal });
    if (signal.aborted) return;
    this._offset_us = source.isLive ? first.at_us - Date.now() * 1000 : 0;
    setTitle(`Run ${first.head.label} ${first.head.name}`);
    this._rows.takeFirst(first);
    this._mount();
    this._showHead(first.head);
    this._states.choose(this._query.getAll("state"));
    this._showRows();
    const clock = setInterval(() => this._tick(), CLOCK_MS);
    signal.addEventListener("abort", () => {
      clearInterval(clock);
      this._feed?.close();
      this._timeline.destroy();
    });
    if (source.isLive) {
      poll(
        () => this._poll(),
        LIVE_MS,
        signal,
        (state, detail) => {
          if (this._head?.can_cancel) this._context.setConnection(state, detail);
        },
      );
    } else await this._poll();
  }

  _mount() {
    let typing = 0;
    this._search.addEventListener("input", () => {
      clearTimeout(typing);
      typing = setTimeout(() => this._choose({ text: this._search.value }), TYPING_MS);
    });
    fill(
      this._context.root,
      el(
        "div",
        { class: "page-head" },
        this._title,
        this._badge,
        this._took,
        el("span", { class: "grow" }),
        this._actions,
      ),
      this._facts,
      el(
        "section",
        { class: "card", "aria-label": "Jobs" },
        el(
          "div",
          { class: "card-head run-jobs-head" },
          el("h2", null, "Jobs"),
          this._count,
          this._states.node,
          this._groupChip,
          el("span", { class: "grow" }),
          this._search,
        ),
        this._states.bar,
        this._table.node,
      ),
      this._graph.node,
      this._timeline.node,
    );
  }

  // ---- data

  /** Asks for changes when they are due: every second while it runs. */
  async _poll() {
    const now = performance.now();
    if (now < this._dueMs) return;
    const { source, signal } = this._context;
    /** @type {Api.RunTable} */
    const answer = await source.get(`${this._path}/table`, { since: this._turn || null }, { signal });
    if (signal.aborted) return;
    const took = performance.now() - now;
    this._turn = answer.turn;
    const isNew = !this._rows.isWhole;
    const hasMore = answer.head.jobs !== this._head?.jobs;
    this._rows.take(answer);
    this._showHead(answer.head);
    if (isNew || answer.rows.index.length > 0) {
      this._showRows();
      this._graph.showStates();
      this._timeline.changed(answer.states);
    } else this._table.refresh();
    if (isNew) {
      this._graph.load();
      this._timeline.load(answer.states);
    } else if (hasMore) this._graph.reload();
    this._dueMs = performance.now() + (answer.head.can_cancel ? Math.max(0, took * 2) : QUIET_MS);
    this._follow(answer.head.can_cancel);
  }

  /** Events of a run that is driven make the page ask at once. @param {boolean} isDriven */
  _follow(isDriven) {
    const { source } = this._context;
    if (!isDriven) {
      this._feed?.close();
      this._feed = null;
      if (source.isLive) this._context.setConnection("ended");
      return;
    }
    if (this._feed || !source.isLive) return;
    const askNow = () => {
      this._dueMs = 0;
    };
    this._feed = source.follow(`${this._path}/events/stream`, {
      events: { "run-event": askNow },
      onEnd: askNow,
      onState: (state, detail) => {
        if (state === "waiting") this._context.setConnection(state, detail);
      },
    });
  }

  // ---- head

  /** @param {Api.RunHead} head */
  _showHead(head) {
    const { context, before } = { context: this._context, before: this._head };
    this._head = head;
    this._states.show(this._rows.isWhole ? this._rows.counts() : head.counts, head.jobs);
    const total = format.counted(head.jobs, "job");
    setText(this._count, this._rows.isWhole ? total : `reading ${total}…`);
    this._tick();
    if (before && JSON.stringify(before) === JSON.stringify(head)) return;
    fill(this._title, el("a", { href: context.href(`/workflows/${head.workflow}`) }, head.name), ` run ${head.label}`);
    fill(this._badge, stateBadge(head.status));
    fill(this._facts, joined(this._factsOf(head)));
    fill(
      this._actions,
      runActions(context, head, (next) => {
        if (next.uuid === head.uuid) this._dueMs = 0;
        else context.go(`/runs/${next.uuid}`);
      }),
    );
  }

  /**
   * @param {Api.RunHead} head
   * @returns {import("../core/dom.js").Child[]}
   */
  _factsOf(head) {
    const base = head.base
      ? el(
          "span",
          null,
          "repeats part of ",
          el("a", { href: this._context.href(`/runs/${head.base}`) }, `run ${head.base}`),
        )
      : null;
    return [
      head.started_at_us
        ? `started ${format.shortTime(head.started_at_us)}`
        : `created ${format.shortTime(head.created_at_us)}`,
      head.ended_at_us && !head.can_cancel ? `ended ${format.shortTime(head.ended_at_us)}` : null,
      head.user || null,
      head.host || null,
      head.engine === "local" ? null : head.engine,
      head.cpus ? `${head.cpus} CPUs available` : null,
      head.memory_bytes ? `${format.bytes(head.memory_bytes)} available` : null,
      base,
      head.description || null,
    ];
  }

  _tick() {
    const head = this._head;
    if (!head) return;
    const isRunning = head.status === "running" && this._context.source.isLive;
    const now_us = Date.now() * 1000 + this._offset_us;
    const passed = isRunning && head.started_at_us ? (now_us - head.started_at_us) / 1e6 : head.took_s;
    setText(this._took, passed === null || passed === undefined ? "" : format.duration(Math.max(0, passed)));
    if (isRunning) this._table.refresh();
  }

  // ---- table

  /** @param {Record<string, string | string[] | null>} changes */
  _choose(changes) {
    for (const [name, value] of Object.entries(changes)) {
      this._query.delete(name);
      for (const each of Array.isArray(value) ? value : [value]) if (each) this._query.append(name, each);
    }
    this._context.setQuery(changes);
    this._table.setSorted(this._sorted());
    this._table.node.scrollTop = 0;
    this._showRows();
  }

  _showRows() {
    const group = this._query.get("group");
    const rows = this._rows.chosen({
      states: new Set(this._query.getAll("state")),
      text: this._query.get("text") ?? "",
      group: group === null ? null : Number(group),
      ...this._sorted(),
    });
    this._table.setRows(rows, rows.length);
    const name = group === null ? "" : (this._rows.groups[Number(group)] ?? "");
    fill(
      this._groupChip,
      name
        ? el(
            "button",
            {
              type: "button",
              class: "chip",
              onclick: () => this._choose({ group: null }),
              "aria-label": `Show all groups, not only ${name}`,
            },
            `${name} ×`,
          )
        : null,
    );
  }

  _sorted() {
    return { sort: this._query.get("sort") ?? "", ascending: this._query.get("ascending") === "true" };
  }

  /** @returns {import("../components/table.js").Column<import("../components/run-rows.js").RunRow>[]} */
  _columns() {
    const context = this._context;
    return [
      {
        id: "job",
        label: "Job",
        sort: "job",
        width: 5.1,
        align: "right",
        needs: "wide",
        key: (row) => String(row.number),
        cell: (row) => (row.number === null ? format.UNKNOWN : String(row.number)),
      },
      {
        id: "name",
        label: "Name",
        sort: "name",
        key: (row) => `${row.number} ${row.name}`,
        cell: (row) =>
          row.number === null
            ? el("span", { title: row.name }, row.name)
            : el("a", { href: context.href(`/jobs/${row.number}`), tabindex: "-1", title: row.name }, row.name),
      },
      {
        id: "status",
        label: "State",
        width: 9,
        narrow: 4.6,
        key: (row) => row.state,
        cell: (row) => stateBadge(row.state),
      },
      {
        id: "why",
        label: "Why",
        needs: "roomy",
        key: (row) => row.why,
        cell: (row) => el("span", { class: "muted", title: row.why }, row.why),
      },
      {
        id: "started",
        label: "Started",
        sort: "started",
        width: 10.6,
        needs: "wide",
        key: (row) => String(row.began_us),
        cell: (row) => el("span", { title: format.time(row.began_us) }, format.shortTime(row.began_us)),
      },
      {
        id: "duration",
        label: "Duration",
        sort: "duration",
        width: 6.1,
        align: "right",
        cell: (row, cell) => setText(cell, format.duration(this._durationOf(row))),
      },
      {
        id: "cpu",
        label: "CPU time",
        sort: "cpu",
        width: 6.6,
        align: "right",
        needs: "wide",
        key: (row) => `${row.state} ${row.cpu_s}`,
        cell: (row) => numberOf(row.state, format.duration(row.cpu_s), "so far"),
      },
      {
        id: "memory",
        label: "Memory peak",
        sort: "memory",
        width: 9,
        align: "right",
        needs: "wide",
        key: (row) => `${row.state} ${row.memory_bytes}`,
        cell: (row) => numberOf(row.state, format.bytes(row.memory_bytes), "in use now"),
      },
      {
        id: "attempts",
        label: "Attempts",
        sort: "attempts",
        width: 6.7,
        align: "right",
        needs: "wide",
        key: (row) => String(row.attempts),
        cell: (row) => (row.attempts ? String(row.attempts) : format.UNKNOWN),
      },
    ];
  }

  /** @param {import("../components/run-rows.js").RunRow} row */
  _durationOf(row) {
    if (row.state !== "running" || row.began_us === null || !this._context.source.isLive) return row.duration_s;
    return Math.max(0, (Date.now() * 1000 + this._offset_us - row.began_us) / 1e6);
  }
}

/** Counts by state, which filter the table, and the same as a bar. */
class StateFilter {
  /** @param {(states: string[]) => void} onChange */
  constructor(onChange) {
    this._onChange = onChange;
    /** @type {Set<string>} */
    this._chosen = new Set();
    /** @type {Map<string, { button: HTMLButtonElement, count: HTMLElement }>} */
    this._buttons = new Map();
    this.node = el("span", { class: "states", role: "group", "aria-label": "Filter by state" });
    this.bar = el("div", { class: "state-bar", "aria-hidden": "true" });
  }

  /** @param {string[]} states */
  choose(states) {
    this._chosen = new Set(states);
    for (const [state, { button }] of this._buttons)
      button.setAttribute("aria-pressed", String(this._chosen.has(state)));
  }

  /**
   * @param {Record<string, number>} counts
   * @param {number} total
   */
  show(counts, total) {
    const states = STATE_ORDER.filter((state) => counts[state] || this._chosen.has(state));
    for (const state of states) {
      const known = this._buttons.get(state) ?? this._add(state);
      setText(known.count, format.count(counts[state] ?? 0));
    }
    const wanted = states.map((state) => /** @type {HTMLButtonElement} */ (this._buttons.get(state)?.button));
    if (
      wanted.length !== this.node.childElementCount ||
      wanted.some((node, place) => node !== this.node.children[place])
    ) {
      this.node.replaceChildren(...wanted);
    }
    fill(
      this.bar,
      states.map((state) =>
        el("span", { class: `tone-${toneOf(state)}`, style: { flex: `${(counts[state] ?? 0) / Math.max(1, total)}` } }),
      ),
    );
  }

  /** @param {string} state */
  _add(state) {
    const count = el("span", { class: "number" });
    const badge = stateBadge(state);
    badge.prepend(count);
    const button = el(
      "button",
      { type: "button", class: "state-filter", "aria-pressed": String(this._chosen.has(state)) },
      badge,
    );
    button.addEventListener("click", () => {
      if (!this._chosen.delete(state)) this._chosen.add(state);
      this.choose([...this._chosen]);
      this._onChange([...this._chosen]);
    });
    const made = { button, count };
    this._buttons.set(state, made);
    return made;
  }
}

/** @param {import("../core/dom.js").Child[]} parts */
function joined(parts) {
  return parts.filter(Boolean).flatMap((part, place) => (place ? [" · ", part] : [part]));
}
