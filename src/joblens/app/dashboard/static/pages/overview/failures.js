/** Failures of the last days: why, and the line to paste. */

import { copyLine } from "../../components/feedback.js";
import { stateBadge } from "../../components/state.js";
import { el, fill } from "../../core/dom.js";
import * as format from "../../core/format.js";

/**
 * @param {HTMLElement} card
 * @param {readonly Api.Failure[]} failures
 * @param {import("../../core/page.js").Context} context
 */
export function showFailures(card, failures, context) {
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
      failures.map((failure) =>
        el(
          "li",
          { class: "failure" },
          el(
            "div",
            { class: "failure-what" },
            stateBadge(failure.status),
            el("a", { href: context.href(`/jobs/${failure.number}`) }, `${failure.number} ${failure.name}`),
            el("span", { class: "muted", title: format.time(failure.ended_at_us) }, format.ago(failure.ended_at_us)),
          ),
          el(
            "div",
            { class: "failure-why" },
            el("span", null, failure.reason),
            failure.advice && !failure.advice.includes("joblens ")
              ? el("span", { class: "muted" }, failure.advice)
              : null,
          ),
          copyLine(failure.line, `command for job ${failure.number}`),
        ),
      ),
    ),
  );
}
