/** Facts of a job's record: requests, parameters, files; and its other attempts. */

import { card } from "../../components/card.js";
import { plainTable, scrolled } from "../../components/plain-table.js";
import { stateBadge } from "../../components/state.js";
import { el, fill } from "../../core/dom.js";
import * as format from "../../core/format.js";

/** @typedef {[string, import("../../core/dom.js").Children]} Fact */

/**
 * A list of names and values; empty values are omitted.
 * @param {readonly Fact[]} facts
 */
export function factList(facts) {
  const known = facts.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return el(
    "dl",
    { class: "facts" },
    known.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)]),
  );
}

/**
 * A list that is closed at first, with its length in the label.
 * @param {string} label
 * @param {readonly Fact[]} facts
 */
export function moreFacts(label, facts) {
  if (facts.length === 0) return null;
  return el("details", { class: "more" }, el("summary", null, `${label} (${facts.length})`), factList(facts));
}

export class FactsCard {
  /** @param {import("../../core/page.js").Context} context */
  constructor(context) {
    this._context = context;
    this._body = el("div", { class: "card-body stack" });
    this.node = card("Job", null, this._body);
  }

  /** @param {Api.Record} record */
  show(record) {
    const { job, attempt, outcome } = record;
    const asked = job.requirements ?? {};
    const usage = outcome?.usage ?? {};
    /** @type {Fact[]} */
    const params = Object.entries(job.params ?? {}).map(([name, value]) => [name, textOf(value)]);
    const files = [...(job.inputs ?? []), ...(outcome?.outputs ?? [])];
    fill(
      this._body,
      factList([
        ["Name", job.name ? el("bdi", null, job.name) : ""],
        ["UUID", el("span", { class: "mono" }, job.uuid)],
        ["Id", job.external_id ?? ""],
        ["Tool", job.tool ?? ""],
        ["Directory", job.cwd ?? ""],
        ["Requested", requested(asked)],
        ["Measured by", attempt?.accounting ?? ""],
        ["Reason for this method", attempt?.accounting_reason ?? ""],
        ["Samples", samplesOf(outcome)],
        ["Worker", outcome?.worker ?? ""],
        ["Lower bounds", (usage.lower_bounds ?? []).join(", ")],
        ["Estimates", (usage.estimates ?? []).join(", ")],
      ]),
      moreFacts("Parameters", params),
      moreFacts("Environment", Object.entries(job.env ?? {})),
      moreFacts(
        "Files",
        files.map((file) => [file.path, file.size === null || file.size === undefined ? "" : format.bytes(file.size)]),
      ),
      moreFacts("Limits enforced by", Object.entries(attempt?.enforced_by ?? {})),
      moreFacts("Not measured, and why", Object.entries(usage.unknown ?? {})),
      moreFacts("Sources of numbers", Object.entries(usage.sources ?? {})),
    );
  }
}

/** @param {unknown} value */
function textOf(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** '96 every 1.0s'; a short job has no known pause between samples. @param {Api.Record["outcome"]} outcome */
function samplesOf(outcome) {
  if (!outcome?.samples) return "";
  const interval = outcome.sampling_interval_s;
  const count = format.count(outcome.samples);
  return interval === null || interval === undefined ? count : `${count} every ${format.duration(interval)}`;
}

/** @param {Api.Requirements} asked */
function requested(asked) {
  const parts = [];
  if (asked.cpus) parts.push(`${asked.cpus} CPUs`);
  if (asked.memory_bytes) parts.push(`${format.bytes(asked.memory_bytes)} memory`);
  if (asked.gpus) parts.push(`${asked.gpus} GPUs`);
  if (asked.pids) parts.push(`${asked.pids} processes`);
  if (asked.timeout_s) parts.push(format.duration(asked.timeout_s));
  if (asked.nodes) parts.push(`${asked.nodes} nodes`);
  return parts.join(", ");
}

export class AttemptsCard {
  /** @param {import("../../core/page.js").Context} context */
  constructor(context) {
    this._context = context;
    this.node = el("section", { class: "card", "aria-label": "Attempts", hidden: true });
  }

  /**
   * @param {readonly Api.Record[]} attempts
   * @param {Api.Record} current
   */
  show(attempts, current) {
    this.node.hidden = attempts.length < 2;
    fill(
      this.node,
      el("div", { class: "card-head" }, el("h2", null, "Attempts")),
      el(
        "div",
        { class: "card-body" },
        scrolled(
          "Attempts",
          plainTable(
            ["Job", "State", "Started", "Duration"],
            attempts.map((each) => [
              each.job.uuid === current.job.uuid
                ? el("strong", { "aria-current": "page" }, String(each.number))
                : el("a", { href: this._context.href(`/jobs/${each.number}`) }, String(each.number)),
              stateBadge(each.status),
              format.shortTime(each.attempt?.started_at_us),
              format.duration(each.outcome?.duration_s),
            ]),
            { isText: true },
          ),
        ),
      ),
    );
  }
}
