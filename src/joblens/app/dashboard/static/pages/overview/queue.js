/** Queues and the workers that serve them. */

import { emptyBox } from "../../components/feedback.js";
import { wideTable } from "../../components/plain-table.js";
import { el, fill } from "../../core/dom.js";
import * as format from "../../core/format.js";

/**
 * @param {HTMLElement} card
 * @param {Api.Overview} found
 */
export function showQueue(card, found) {
  card.hidden = found.workers.length === 0 && found.backlog.length === 0;
  if (card.hidden) return;
  fill(
    card,
    el("div", { class: "card-head" }, el("h2", null, "Queue and workers")),
    el(
      "div",
      { class: "card-body" },
      found.backlog.length
        ? wideTable(
            "Queues",
            ["Queue", "Waiting", "On workers", "Oldest waits"],
            found.backlog.map((each) => [
              each.queue || "default",
              format.count(each.waiting),
              format.count(each.held),
              each.waiting ? format.seconds(each.oldest_waiting_us) : "",
            ]),
          )
        : emptyBox("No job waits for a worker."),
      found.workers.length
        ? wideTable(
            "Workers",
            ["Worker", "Jobs", "Seen"],
            found.workers.map((each) => [
              each.name,
              `${each.running} of ${each.concurrency}`,
              format.ago(each.seen_at_us),
            ]),
          )
        : el("p", { class: "notice notice-bad" }, "No worker serves the queues: start one with `joblens worker`."),
    ),
  );
}
