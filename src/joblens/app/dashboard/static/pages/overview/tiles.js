/** Numbers at the top: now, and today against the week before. */

import { el, setText } from "../../core/dom.js";
import * as format from "../../core/format.js";

export class Tiles {
  /** @param {import("../../core/page.js").Context} context */
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
export function midnight() {
  const at = new Date();
  at.setHours(0, 0, 0, 0);
  return at.getTime() * 1000;
}
