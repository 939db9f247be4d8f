/**
 * Output of a job: a window of some hundred lines on a file of any size. It follows new output, and loads more when
 * the reader comes to an edge; lines far away are dropped again.
 */

import { colouredLine, PLAIN } from "../../components/ansi.js";
import { errorBox, toast, wordsOf } from "../../components/feedback.js";
import { isFinal } from "../../components/state.js";
import { el, fill, setText } from "../../core/dom.js";
import * as format from "../../core/format.js";
import { LogSearch } from "./log-search.js";

const LINES = 400; // of one request
const MOST_LINES = 1600; // in the document
const MOST_TURNS = 3; // requests to catch up with new output
const MOST_BEHIND = 1 << 16; // bytes
const EDGE = 300; // pixels
const STREAMS = ["stdout", "stderr"];

/** @typedef {{ at: number, node: HTMLElement, style: import("../../components/ansi.js").Style }} Line */

export class LogCard {
  /**
   * @param {import("../../core/page.js").Context} context
   * @param {string} path  Of the job.
   */
  constructor(context, path) {
    this._context = context;
    this._path = path;
    this._stream = "stdout";
    /** @type {Line[]} */
    this._lines = [];
    this._start = 0;
    this._next = 0;
    this._total = 0;
    this._isFinal = false;
    this._isBusy = false;
    this._isFollowing = true;
    this._tabs = el("div", { class: "tabs", role: "group", "aria-label": "Stream" });
    this._position = el("span", { class: "muted number" });
    this._slider = el("input", {
      type: "range",
      min: "0",
      max: "1000",
      value: "1000",
      "aria-label": "Position in the output",
    });
    this._slider.addEventListener("change", () => this._jumpTo((Number(this._slider.value) / 1000) * this._total));
    this._end = el("button", { type: "button", onclick: () => this._goToEnd() }, "End");
    this._body = el("div", { class: "log-lines" });
    this._view = el(
      "div",
      { class: "log", role: "region", tabindex: "0", "aria-label": "Output of the job" },
      this._body,
    );
    this._view.addEventListener("scroll", () => this._onScroll(), { passive: true });
    this._notice = el("p", { class: "muted log-notice", hidden: true });
    this._search = new LogSearch(context.source, context.signal, {
      path: () => `${this._path}/logs/${this._stream}`,
      position: () => this._firstVisible(),
      show: (at, length) => this._showMatch(at, length),
    });
    this.node = el(
      "section",
      { class: "card job-log", "aria-label": "Output" },
      el(
        "div",
        { class: "card-head log-head" },
        el("h2", null, "Output"),
        this._tabs,
        this._search.node,
        el("span", { class: "grow" }),
        this._wrapBox(),
        el("button", { type: "button", onclick: () => this._goToStart() }, "Start"),
        this._end,
      ),
      this._notice,
      this._view,
      el("div", { class: "log-foot" }, this._slider, this._position),
    );
  }

  /** @param {Api.Record} record */
  async load(record) {
    const hasFailed = isFinal(record.status) && record.status !== "success";
    const asked = this._context.query.get("stream") ?? "";
    const first = hasFailed && (record.outcome?.stderr_bytes ?? 0) > 0 ? "stderr" : "stdout";
    await this._choose(STREAMS.includes(asked) ? asked : first);
  }

  /** Shows new output of a running job. */
  async update() {
    if (this._isBusy || this._isFinal) return;
    if (this._isFollowing || this._next >= this._total) await this._forward();
    else await this._ask({ at: this._total, part: "forward", limit: 1 });
  }

  /** @param {string} stream */
  async _choose(stream) {
    this._stream = stream;
    fill(
      this._tabs,
      STREAMS.map((each) =>
        el(
          "button",
          {
            type: "button",
            class: "tab",
            "aria-pressed": String(each === stream),
            onclick: () => {
              this._context.setQuery({ stream: each });
              this._choose(each);
            },
          },
          each,
        ),
      ),
    );
    this._isFinal = false;
    await this._goToEnd();
  }

  async _goToEnd() {
    this._isFollowing = true;
    await this._replace({ part: "backward" });
    this._scrollToEnd();
  }

  async _goToStart() {
    this._isFollowing = false;
    await this._replace({ part: "forward", at: 0 });
    this._view.scrollTop = 0;
  }

  /** @param {number} at */
  async _jumpTo(at) {
    this._isFollowing = false;
    await this._replace({ part: "around", at: Math.floor(at) });
    this._view.scrollTop = this._view.scrollHeight / 3;
  }

  /**
   * Shows a match, marked.
   * @param {number} at
   * @param {number} length
   */
  async _showMatch(at, length) {
    this._isFollowing = false;
    const isLoaded = at >= this._start && at < this._next && this._lines.length > 0;
    if (!isLoaded) await this._replace({ part: "around", at });
    for (const each of this._body.querySelectorAll(".log-match")) each.classList.remove("log-match");
    const line = this._lines.findLast((each) => each.at <= at);
    line?.node.classList.add("log-match");
    line?.node.scrollIntoView({ block: "center" });
    return length > 0 && line !== undefined;
  }

  /** @param {Record<string, string | number>} query */
  async _ask(query) {
    const { source, signal } = this._context;
    /** @type {Api.LogWindow} */
    const found = await source.get(`${this._path}/logs/${this._stream}/window`, { limit: LINES, ...query }, { signal });
    this._total = found.total;
    this._showPosition();
    return found;
  }

  /** @param {Record<string, string | number>} query */
  async _replace(query) {
    this._isBusy = true;
    try {
      const found = await this._ask(query);
      this._lines = [];
      fill(this._body);
      this._start = found.start;
      this._take(found);
      this._showNotice(found);
    } catch (error) {
      if (this._context.signal.aborted) return;
      fill(
        this._body,
        errorBox(error, () => this._choose(this._stream)),
      );
    } finally {
      this._isBusy = false;
    }
  }

  /** Appends what follows; a line whose end was not there yet is replaced. */
  async _forward() {
    this._isBusy = true;
    try {
      for (let turn = 0; turn < MOST_TURNS; turn++) {
        const found = await this._ask({ at: this._next, part: "forward" });
        if (found.total < this._next) return await this._goToEnd(); // the job started again
        this._take(found);
        this._showNotice(found);
        if (!this._isFollowing || found.lines.length < LINES) break;
      }
    } finally {
      this._isBusy = false;
    }
    if (!this._isFollowing) return;
    const isBehind = this._total - this._next > MOST_BEHIND; // more is printed than anyone reads
    if (isBehind) await this._goToEnd();
    else this._scrollToEnd();
  }

  async _backward() {
    if (this._start <= 0 || this._isBusy) return;
    this._isBusy = true;
    try {
      const found = await this._ask({ at: this._start, part: "backward" });
      const before = this._view.scrollHeight;
      let style = PLAIN;
      const lines = found.lines.map((line) => {
        const made = newLine(line, style);
        style = made.style;
        return made;
      });
      this._body.prepend(...lines.map((line) => line.node));
      this._lines = [...lines, ...this._lines];
      this._start = found.start;
      this._view.scrollTop += this._view.scrollHeight - before;
      while (this._lines.length > MOST_LINES) {
        const dropped = /** @type {Line} */ (this._lines.pop());
        dropped.node.remove();
        this._next = dropped.at;
      }
    } catch (error) {
      if (!this._context.signal.aborted) toast(wordsOf(error), "error");
    } finally {
      this._isBusy = false;
    }
    this._showPosition();
  }

  /** @param {Api.LogWindow} found */
  _take(found) {
    const first = found.lines[0]?.at ?? found.next;
    while (this._lines.length && /** @type {Line} */ (this._lines.at(-1)).at >= first) this._lines.pop()?.node.remove();
    let style = this._lines.at(-1)?.style ?? PLAIN;
    const made = found.lines.map((line) => {
      const each = newLine(line, style);
      style = each.style;
      return each;
    });
    this._body.append(...made.map((line) => line.node));
    this._lines.push(...made);
    this._next = found.next;
    this._isFinal = found.is_final && found.next >= found.total;
    const extra = this._lines.length - MOST_LINES;
    if (extra > 0) {
      const before = this._view.scrollHeight;
      for (const line of this._lines.splice(0, extra)) line.node.remove();
      this._start = this._lines[0]?.at ?? this._start;
      this._view.scrollTop -= before - this._view.scrollHeight; // the same lines stay in view
    }
    this._showPosition();
  }

  /** @param {Api.LogWindow} found */
  _showNotice(found) {
    let words = "";
    if (found.source === "record") {
      const where = found.node ? ` The file is on ${found.node}, or was deleted.` : "";
      words = found.total ? `Only the last lines, from the job's record.${where}` : `No output.${where}`;
    } else if (found.total === 0) words = found.is_final ? "The job printed nothing here." : "No output yet.";
    this._view.hidden = found.total === 0;
    this._notice.hidden = words === "";
    setText(this._notice, words);
  }

  _onScroll() {
    const { scrollTop, scrollHeight, clientHeight } = this._view;
    const below = scrollHeight - scrollTop - clientHeight;
    this._isFollowing = below < 24 && this._total - this._next <= MOST_BEHIND;
    if (scrollTop < EDGE) this._backward();
    else if (below < EDGE && this._next < this._total && !this._isBusy) {
      this._forward().catch((error) => toast(wordsOf(error), "error"));
    }
    this._showPosition();
  }

  _scrollToEnd() {
    this._view.scrollTop = this._view.scrollHeight;
  }

  /** Position of the first line in view. */
  _firstVisible() {
    const top = this._view.getBoundingClientRect().top;
    const line = this._lines.find((each) => each.node.getBoundingClientRect().bottom > top);
    return line?.at ?? 0;
  }

  _showPosition() {
    const at = this._isFollowing ? this._total : this._firstVisible();
    const isShort = this._start <= 0 && this._next >= this._total;
    this._slider.hidden = isShort;
    if (document.activeElement !== this._slider) {
      this._slider.value = String(this._total ? Math.round((1000 * at) / this._total) : 1000);
    }
    const words = isShort ? format.bytes(this._total) : `at ${format.bytes(at)} of ${format.bytes(this._total)}`;
    setText(this._position, `${words}${this._isFollowing && !this._isFinal ? ", following" : ""}`);
    this._slider.setAttribute("aria-valuetext", words);
    setText(this._end, this._isFinal ? "End" : this._isFollowing ? "Following" : "Follow");
  }

  _wrapBox() {
    const box = el("input", { type: "checkbox", checked: true });
    this._view.classList.add("log-wrapped");
    box.addEventListener("change", () => this._view.classList.toggle("log-wrapped", box.checked));
    return el("label", { class: "check-label" }, box, "Wrap");
  }
}

/**
 * @param {Api.LogLine} line
 * @param {import("../../components/ansi.js").Style} style
 * @returns {Line}
 */
function newLine(line, style) {
  const coloured = colouredLine(line.text, style);
  return { at: line.at, node: el("div", { class: "log-line" }, coloured.nodes), style: coloured.style };
}
