/** Findings of a job: what happened, and what to do about it. */

import { el, fill } from "../../core/dom.js";

/** @type {Record<string, { tone: string, word: string }>} */
const SEVERITIES = {
  problem: { tone: "bad", word: "Problem" },
  warning: { tone: "late", word: "Warning" },
  info: { tone: "off", word: "Note" },
};
const ORDER = ["problem", "warning", "info"];

export class FindingsCard {
  constructor() {
    this.node = el("section", { class: "card", "aria-label": "Findings", hidden: true });
  }

  /** @param {Api.Record} record */
  show(record) {
    const findings = [...(record.outcome?.findings ?? [])];
    findings.sort((one, other) => ORDER.indexOf(one.severity) - ORDER.indexOf(other.severity));
    const error = findings.length ? "" : (record.outcome?.error ?? "");
    this.node.hidden = findings.length === 0 && !error;
    fill(
      this.node,
      el("div", { class: "card-head" }, el("h2", null, "Findings")),
      el(
        "ul",
        { class: "findings" },
        error ? finding("problem", error, "", "error") : null,
        findings.map((each) => finding(each.severity, each.text, each.advice ?? "", each.code)),
      ),
    );
  }
}

/**
 * @param {string} severity
 * @param {string} text
 * @param {string} advice
 * @param {string} code
 */
function finding(severity, text, advice, code) {
  const { tone, word } = SEVERITIES[severity] ?? { tone: "off", word: severity };
  return el(
    "li",
    { class: `finding tone-${tone}` },
    el("span", { class: "finding-word" }, word),
    el("div", { class: "finding-what" }, el("p", null, text), advice ? el("p", { class: "muted" }, advice) : null),
    el("code", { class: "muted finding-code" }, code),
  );
}
