/** Failures of the last days: why, and the line to paste. */

import { failureItem } from "../../components/failure.js";
import { el, fill } from "../../core/dom.js";

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
      failures.map((failure) => failureItem(failure, context)),
    ),
  );
}
