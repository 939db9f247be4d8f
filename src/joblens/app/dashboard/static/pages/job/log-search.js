/** Search in the output of a job. The server looks through the file in parts; the reader goes from match to match. */

import { announce } from "../../components/feedback.js";
import { el, setText } from "../../core/dom.js";
import * as format from "../../core/format.js";

const MOST_TURNS = 60; // requests of at most a second each

/**
 * @typedef {object} Searched
 * @property {() => string} path  Of the log in the API.
 * @property {() => number} position  Of the first visible line.
 * @property {(at: number, length: number) => unknown} show
 */

export class LogSearch {
  /**
   * @param {import("../../core/source.js").DataSource} source
   * @param {AbortSignal} signal
   * @param {Searched} log
   */
  constructor(source, signal, log) {
    this._source = source;
    this._signal = signal;
    this._log = log;
    /** @type {number | null} */
    this._at = null;
    this._turn = 0;
    this._field = el("input", { type: "search", placeholder: "Search output", "aria-label": "Search output" });
    this._words = el("span", { class: "muted", role: "status" });
    this.node = el(
      "form",
      { class: "log-search", role: "search", "aria-label": "Search the output", hidden: !source.isLive },
      this._field,
      this._button("Previous match", "↑", "backward"),
      this._button("Next match", "↓", "forward"),
      this._words,
    );
    this.node.addEventListener("submit", (event) => {
      event.preventDefault();
      this._go("forward");
    });
    this._field.addEventListener("input", () => {
      this._at = null;
      this._turn++;
      setText(this._words, "");
    });
  }

  /**
   * @param {string} words
   * @param {string} label
   * @param {"forward" | "backward"} direction
   */
  _button(words, label, direction) {
    return el(
      "button",
      { type: "button", "aria-label": words, title: words, onclick: () => this._go(direction) },
      label,
    );
  }

  /** @param {"forward" | "backward"} direction */
  async _go(direction) {
    const text = this._field.value;
    if (!text) return;
    const turn = ++this._turn;
    const isForward = direction === "forward";
    const from = this._at === null ? this._log.position() : this._at;
    /** @type {number | null} */
    let start = this._at !== null && isForward ? from + 1 : from;
    let hasTurned = false;
    for (let asked = 0; asked < MOST_TURNS && turn === this._turn; asked++) {
      /** @type {Api.LogMatches} */
      const found = await this._source.get(
        `${this._log.path()}/search`,
        { text, start, direction, limit: 1 },
        { signal: this._signal },
      );
      const at = found.offsets[0];
      if (turn !== this._turn) return;
      if (at !== undefined) {
        this._at = at;
        await this._log.show(at, found.length);
        this._say(`at ${format.bytes(at)}${hasTurned ? ", search wrapped around" : ""}`);
        return;
      }
      if (found.next !== null && found.next !== undefined) {
        start = found.next;
        this._say(`searching, ${format.bytes(isForward ? start : found.total - start)}…`);
      } else if (hasTurned) break;
      else {
        hasTurned = true;
        start = isForward ? 0 : null;
      }
    }
    if (turn === this._turn) this._say("not found");
  }

  /** @param {string} words */
  _say(words) {
    setText(this._words, words);
    announce(words);
  }
}
