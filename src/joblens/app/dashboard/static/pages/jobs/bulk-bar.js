/** Changes of the selected jobs. */

import { announce, confirmDialog, toast, wordsOf } from "../../components/feedback.js";
import { el, fill } from "../../core/dom.js";
import * as format from "../../core/format.js";

/** @typedef {Api.JobSummary} Job */

export class BulkBar {
  /**
   * @param {import("../../core/page.js").Context} context
   * @param {() => void} onChanged
   * @param {() => void} onClear
   */
  constructor(context, onChanged, onClear) {
    this._context = context;
    this._onChanged = onChanged;
    this._onClear = onClear;
    /** @type {string[]} */
    this._numbers = [];
    this.node = el("div", { class: "bulk card", role: "toolbar", "aria-label": "Selected jobs", hidden: true });
  }

  /**
   * @param {ReadonlySet<string>} keys
   * @param {readonly Job[]} jobs
   */
  show(keys, jobs) {
    this._numbers = [...keys];
    this.node.hidden = keys.size === 0;
    if (!keys.size) return;
    const { source } = this._context;
    const chosen = jobs.filter((job) => keys.has(String(job.number)));
    const isRunning = chosen.some((job) => job.status === "running" || job.status === "queued");
    const isEnded = chosen.some((job) => job.status !== "running" && job.status !== "queued");
    const may = source.may("operator");
    announce(`${keys.size} selected`);
    fill(
      this.node,
      el("strong", null, `${format.count(keys.size)} selected`),
      may ? this._button("Cancel", isRunning, () => this._ask("cancel", "Cancel", true)) : null,
      may ? this._button("Rerun", isEnded, () => this._ask("rerun", "Rerun", false)) : null,
      may ? this._button("Tag…", true, () => this._tag()) : null,
      source.may("admin") ? this._button("Delete", isEnded, () => this._ask("delete", "Delete", true)) : null,
      this._button("Compare", keys.size >= 2 && keys.size <= 50, () => this._compare()),
      el("span", { class: "grow" }),
      el("button", { type: "button", class: "plain", onclick: this._onClear }, "Clear"),
    );
  }

  /**
   * @param {string} label
   * @param {boolean} isEnabled
   * @param {() => void} act
   */
  _button(label, isEnabled, act) {
    return el("button", { type: "button", disabled: !isEnabled, onclick: act }, label);
  }

  _compare() {
    this._context.go("/compare", new URLSearchParams({ ids: this._numbers.join() }));
  }

  /**
   * @param {"cancel" | "rerun" | "delete"} action
   * @param {string} verb
   * @param {boolean} isDangerous
   */
  async _ask(action, verb, isDangerous) {
    const jobs = format.counted(this._numbers.length, "job");
    const effect = {
      cancel: "Sends SIGTERM, then SIGKILL after the grace time. Ended jobs stay unchanged.",
      rerun: "Their commands run again in the background, as new jobs.",
      delete: "Their samples, output and notes are deleted too. This cannot be undone.",
    }[action];
    const answer = await confirmDialog({
      title: `${verb} ${jobs}?`,
      text: effect,
      action: `${verb} ${jobs}`,
      isDangerous,
    });
    if (answer !== null) await this._send(action, verb, {});
  }

  async _tag() {
    const jobs = format.counted(this._numbers.length, "job");
    const answer = await confirmDialog({
      title: `Tag ${jobs}`,
      text: "Tags are separated by spaces; -NAME removes one.",
      action: `Tag ${jobs}`,
      field: { label: "Tags", placeholder: "night model=large -draft" },
    });
    const words = answer?.split(/[\s,]+/).filter(Boolean) ?? [];
    if (!words.length) return;
    const add = words.filter((word) => !word.startsWith("-"));
    const remove = words.filter((word) => word.startsWith("-")).map((word) => word.slice(1));
    await this._send("tag", "Tag", { tags: { add, remove } });
  }

  /**
   * @param {string} action
   * @param {string} verb
   * @param {object} more
   */
  async _send(action, verb, more) {
    try {
      /** @type {Api.BulkResult} */
      const result = await this._context.source.send("POST", "/bulk", { action, jobs: this._numbers, ...more });
      const first = result.refused[0];
      toast(`${verb}: ${format.counted(result.changed, "job")}`);
      if (first) {
        toast(
          `${format.counted(result.refused.length, "job")} unchanged. Job ${first.job}: ${first.detail}. ${first.hint}`,
          "error",
        );
      }
      this._onClear();
      this._onChanged();
    } catch (error) {
      toast(wordsOf(error), "error");
    }
  }
}
