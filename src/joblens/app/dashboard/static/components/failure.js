/** A failed job in a list: what, why, and the line to paste. */

import { el } from "../core/dom.js";
import * as format from "../core/format.js";
import { copyLine } from "./feedback.js";
import { stateBadge } from "./state.js";

/**
 * @param {Api.Failure} failure
 * @param {import("../core/page.js").Context} context
 */
export function failureItem(failure, context) {
  const { advice } = failure;
  return el(
    "li",
    { class: "failure" },
    el(
      "div",
      { class: "failure-what" },
      stateBadge(failure.status),
      el("a", { href: context.href(`/jobs/${failure.number}`) }, `${failure.number} ${failure.name}`),
      el(
        "span",
        { class: "muted", title: format.time(failure.ended_at_us) },
        context.source.isLive ? format.ago(failure.ended_at_us) : format.time(failure.ended_at_us),
      ),
    ),
    el(
      "div",
      { class: "failure-why" },
      el("span", null, failure.reason),
      advice && !advice.includes("joblens ") ? el("span", { class: "muted" }, advice) : null,
    ),
    copyLine(failure.line, `command for job ${failure.number}`),
  );
}
