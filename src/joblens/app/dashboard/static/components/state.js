/** State badges: colour, shape and word, so that colour is never the only signal; numbers that still change. */

import { el, hiddenText, svg } from "../core/dom.js";
import { UNKNOWN } from "../core/format.js";

/** @type {Record<string, string>} */
const TONES = {
  queued: "waiting",
  blocked: "waiting",
  waiting: "waiting",
  uninitialized: "waiting",
  not_started: "waiting",
  ready: "waiting",
  pending: "waiting",
  created: "waiting",
  running: "running",
  in_progress: "running",
  success: "good",
  completed: "good",
  checkpointed: "good",
  failed: "bad",
  error: "bad",
  terminated: "late",
  pending_failed: "bad",
  partial: "bad",
  timeout: "late",
  stopped: "late",
  lost: "lost",
  interrupted: "lost",
  killed: "lost",
  cancelled: "off",
  canceled: "off",
  disabled: "off",
  measured: "off",
};

/** One shape per tone, drawn in a box of 10. @type {Record<string, string>} */
const SHAPES = {
  waiting: "M2 5a3 3 0 1 0 6 0a3 3 0 1 0 -6 0M5 3.4V5l1.2 0.9",
  running: "M3 1.8L8.2 5L3 8.2Z",
  good: "M1.8 5.2L4.2 7.6L8.4 2.6",
  bad: "M2.4 2.4L7.6 7.6M7.6 2.4L2.4 7.6",
  late: "M2.2 1.8H7.8L2.2 8.2H7.8Z",
  lost: "M3 3.4A2 2 0 1 1 5.6 5.2L5 6M5 8V8.1",
  off: "M2 5H8",
};

/** Whether nothing more will happen to a job. @param {string} status */
export function isFinal(status) {
  return status !== "queued" && status !== "running";
}

/** @param {string} status */
export function toneOf(status) {
  return TONES[status] ?? "off";
}

/** The shape of a tone, for drawings in a box of 10. @param {string} tone */
export function shapeOf(tone) {
  return SHAPES[tone] ?? "";
}

/**
 * @param {string} status
 * @param {string} [label]  Instead of the status itself.
 */
export function stateBadge(status, label) {
  const tone = toneOf(status);
  const shape = svg(
    "svg",
    { viewBox: "0 0 10 10", class: "shape", "aria-hidden": "true" },
    svg("path", { d: SHAPES[tone] ?? "" }),
  );
  return el("span", { class: `state tone-${tone}` }, shape, el("span", null, label ?? status.replaceAll("_", " ")));
}

/**
 * A number of a job. While the job runs, it says that it is not the last word.
 * @param {string} status
 * @param {string} text
 * @param {string} now  What it is of a running job: "so far", "in use now".
 * @param {string} [title]
 */
export function numberOf(status, text, now, title = "") {
  if (status !== "running" || text === UNKNOWN) return el("span", { title: title || null }, text);
  const words = title ? `${now}, ${title}` : now;
  return el("span", { class: "so-far", title: words }, text, hiddenText(` ${now}`));
}
