/** Right-size advice: what to request the next time, as a line to paste. */

import { card } from "../../components/card.js";
import { copyLine } from "../../components/feedback.js";
import { plainTable, scrolled } from "../../components/plain-table.js";
import { el, fill } from "../../core/dom.js";
import { counted } from "../../core/format.js";

export class AdviceCard {
  constructor() {
    this._body = el("div", { class: "card-body stack" }, el("p", { class: "muted" }, "Loading…"));
    this.node = card("Right-size", null, this._body);
  }

  /** @param {Api.OneJobAdvice} found */
  show(found) {
    if (found.advice.length === 0) {
      this.fail(found.jobs ? "Nothing to change." : "Advice needs a job of this name that has ended.");
      return;
    }
    const isFile = found.line_for === "workflow";
    fill(
      this._body,
      el("p", { class: "muted" }, `From ${counted(found.jobs, "job")} of this name; confidence: ${found.confidence}.`),
      scrolled(
        "Advice",
        plainTable(
          ["Resource", "Requested", "Advised", "Why"],
          found.advice.map((each) => [
            each.resource,
            each.current || "no limit",
            each.is_change ? each.recommended : "stays",
            el("span", { class: "muted" }, each.reason),
          ]),
          { isText: true, rowClass: (index) => (found.advice[index]?.is_change ? "is-change" : "") },
        ),
      ),
      found.line
        ? el(
            "div",
            { class: "stack" },
            el("p", null, isFile ? "Keys for the workflow file:" : "Options for the next start:"),
            copyLine(found.line, "advised requests"),
          )
        : el("p", null, "Nothing to change."),
    );
  }

  /** @param {string} words */
  fail(words) {
    fill(this._body, el("p", { class: "muted" }, words));
  }
}
