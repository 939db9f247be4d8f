/** Buttons that change a run, for readers who may: cancel, resume, rerun the failed jobs. Each asks first. */

import { el } from "../core/dom.js";
import * as format from "../core/format.js";
import { confirmDialog, toast, wordsOf } from "./feedback.js";

const FAILED = ["failed", "terminated", "pending_failed"];

/**
 * @param {import("../core/page.js").Context} context
 * @param {Api.RunHead} head
 * @param {(run: { uuid: string }) => void} onDone  With the run that changed or was started.
 */
export function runActions(context, head, onDone) {
  const { source } = context;
  if (!source.isLive || !source.may("operator")) return [];
  const path = `/runs/${head.uuid}`;
  const failed = FAILED.reduce((sum, state) => sum + (head.counts[state] ?? 0), 0);
  const running = head.counts.running ?? 0;
  return [
    head.can_cancel
      ? action("Cancel", "danger", {
          title: `Cancel run ${head.label}?`,
          text: `${format.counted(running, "running job")} will be cancelled, and no other job starts. The run can be resumed.`,
          action: "Cancel run",
          isDangerous: true,
          send: () => source.send("POST", `${path}/cancel`),
          done: `Cancelling run ${head.label}`,
        })
      : null,
    head.can_resume
      ? action("Resume", "primary", {
          title: `Resume run ${head.label}?`,
          text: "Runs the jobs that have not succeeded; the others keep their results.",
          action: "Resume run",
          send: () => source.send("POST", `${path}/resume`),
          done: `Run ${head.label} continues`,
        })
      : null,
    head.can_rerun_failed
      ? action("Rerun failed", "primary", {
          title: `Rerun ${format.counted(failed, "failed job")}?`,
          text: "Starts a new run of these jobs and their dependents; the others keep their results.",
          action: "Rerun failed jobs",
          send: () => source.send("POST", `${path}/rerun`, { failed: true }),
          done: "A new run has started",
        })
      : null,
  ];

  /**
   * @param {string} label
   * @param {string} tone
   * @param {{ title: string, text: string, action: string, isDangerous?: boolean, send: () => Promise<any>, done: string }} asked
   */
  function action(label, tone, asked) {
    const button = el("button", { type: "button", class: tone }, label);
    button.addEventListener("click", async () => {
      if ((await confirmDialog(asked)) === null) return;
      button.disabled = true;
      try {
        const run = await asked.send();
        toast(asked.done);
        onDone(run);
      } catch (error) {
        toast(wordsOf(error), "error");
      } finally {
        button.disabled = false;
      }
    });
    return button;
  }
}
