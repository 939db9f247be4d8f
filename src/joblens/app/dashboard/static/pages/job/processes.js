/** Processes of a job at one time: the time under the pointer in the charts, or that of the slider. */

import { card } from "../../components/card.js";
import { el, fill, setText } from "../../core/dom.js";
import * as format from "../../core/format.js";

/**
 * @typedef {object} Process
 * @property {number} pid
 * @property {number} parent
 * @property {string} name
 * @property {number | null} started_us
 * @property {number | null} ended_us
 * @property {number} cpu_usec
 * @property {number} threads
 */

export class ProcessCard {
  constructor() {
    /** @type {Process[]} */
    this._processes = [];
    /** @type {number | null} null: at the end, or all of a job that has ended. */
    this._at_us = null;
    this._from_us = 0;
    this._to_us = 0;
    this._words = el("span", { class: "muted number" });
    this._slider = el("input", {
      type: "range",
      min: "0",
      max: "1000",
      value: "1000",
      "aria-label": "Time of the process tree",
    });
    this._slider.addEventListener("input", () => {
      const share = Number(this._slider.value) / 1000;
      this._at_us = share === 1 ? null : this._from_us + (this._to_us - this._from_us) * share;
      this._draw();
    });
    this._tree = el("div", { class: "scroll processes", tabindex: "0", role: "group", "aria-label": "Process tree" });
    this._note = el("p", { class: "muted" }, "Loading…");
    this.node = card(
      "Processes",
      this._words,
      el("div", { class: "card-body stack" }, this._slider, this._tree, this._note),
    );
  }

  /**
   * @param {Api.Details} details
   * @param {Api.Record} record
   */
  show(details, record) {
    const table = details.threads;
    this._from_us = record.attempt?.started_at_us ?? 0;
    this._to_us = record.outcome ? this._from_us + record.outcome.duration_s * 1e6 : (table?.at_us ?? this._from_us);
    this._processes = processesOf(table?.threads ?? []);
    const unread = Math.max(0, (table?.seen ?? 0) - (table?.threads?.length ?? 0)) + (table?.unread ?? 0);
    let note = "";
    if (this._processes.length === 0)
      note = `Not measured: ${details.unknown?.threads ?? (record.attempt ? "no process was seen" : "the job has not started")}.`;
    else if (unread) note = `${format.count(unread)} short or idle threads are not shown.`;
    this.fail(note);
    this._draw();
  }

  /** @param {string} words  Why there is nothing, or not all. */
  fail(words) {
    this._slider.hidden = this._tree.hidden = this._processes.length === 0;
    this._note.hidden = words === "";
    setText(this._note, words);
  }

  /** @param {number | null} at_us  Time under the pointer in a chart. */
  point(at_us) {
    if (at_us === null || this._processes.length === 0 || this._to_us <= this._from_us) return;
    this._at_us = at_us;
    this._slider.value = String(Math.round((1000 * (at_us - this._from_us)) / (this._to_us - this._from_us)));
    this._draw();
  }

  _draw() {
    const at = this._at_us;
    const shown = at === null ? this._processes : this._processes.filter((each) => isAlive(each, at));
    const when = at === null ? "all of them" : `at ${format.shortTime(at)}`;
    const words = this._processes.length
      ? `${when}: ${shown.length === 1 ? "1 process" : `${format.count(shown.length)} processes`}`
      : "";
    setText(this._words, words);
    this._slider.setAttribute("aria-valuetext", when);
    fill(this._tree, tree(shown, this._from_us));
  }
}

/**
 * @param {Process} process
 * @param {number} at
 */
function isAlive(process, at) {
  return (process.started_us ?? 0) <= at && (process.ended_us === null || process.ended_us >= at);
}

/**
 * Threads of one process together.
 * @param {readonly Api.ThreadUse[]} threads
 * @returns {Process[]}
 */
function processesOf(threads) {
  /** @type {Map<number, Process>} */
  const found = new Map();
  for (const thread of threads) {
    const process = found.get(thread.pid) ?? {
      pid: thread.pid,
      parent: 0,
      name: thread.process ?? "",
      started_us: null,
      ended_us: null,
      cpu_usec: 0,
      threads: 0,
    };
    process.cpu_usec += thread.cpu_usec ?? 0;
    process.threads++;
    if (thread.tid === thread.pid) {
      process.name = thread.name || process.name;
      process.parent = thread.parent ?? 0;
      process.started_us = thread.started_at_us ?? null;
      process.ended_us = thread.ended_at_us ?? null;
    }
    found.set(thread.pid, process);
  }
  return [...found.values()].sort(
    (one, other) => (one.started_us ?? 0) - (other.started_us ?? 0) || one.pid - other.pid,
  );
}

/**
 * @param {readonly Process[]} shown
 * @param {number} from_us
 */
function tree(shown, from_us) {
  const pids = new Set(shown.map((each) => each.pid));
  /** @type {Map<number, Process[]>} */
  const children = new Map();
  for (const each of shown) {
    const parent = pids.has(each.parent) && each.parent !== each.pid ? each.parent : 0;
    children.set(parent, [...(children.get(parent) ?? []), each]);
  }
  return branch(0, children, new Set(), from_us) ?? el("p", { class: "muted" }, "No process was seen at that time.");
}

/**
 * @param {number} parent
 * @param {Map<number, Process[]>} children
 * @param {Set<number>} drawn  Reused numbers could make a circle.
 * @param {number} from_us
 * @returns {HTMLElement | null}
 */
function branch(parent, children, drawn, from_us) {
  const own = (children.get(parent) ?? []).filter((each) => !drawn.has(each.pid));
  if (own.length === 0) return null;
  for (const each of own) drawn.add(each.pid);
  return el(
    "ul",
    { class: "process-tree" },
    own.map((each) =>
      el(
        "li",
        null,
        el("span", { class: "process-name" }, el("bdi", null, each.name || "?")),
        " ",
        el("span", { class: "muted number" }, factsOf(each, from_us)),
        branch(each.pid, children, drawn, from_us),
      ),
    ),
  );
}

/**
 * @param {Process} process
 * @param {number} from_us
 */
function factsOf(process, from_us) {
  const parts = [String(process.pid), `CPU ${format.seconds(process.cpu_usec)}`];
  if (process.threads > 1) parts.push(format.counted(process.threads, "thread"));
  if (process.started_us !== null) {
    const start = format.duration(Math.max(0, (process.started_us - from_us) / 1e6));
    const end = process.ended_us === null ? "" : format.duration((process.ended_us - from_us) / 1e6);
    parts.push(end ? `from ${start} to ${end}` : `since ${start}`);
  }
  return parts.join(" · ");
}
