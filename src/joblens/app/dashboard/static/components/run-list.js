/** Rows of runs, as the lists of runs and workflows show them. */

import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { stateBadge } from "./state.js";

/**
 * @param {import("../core/page.js").Context} context
 * @param {{ withName: boolean, empty: string }} options
 * @returns {import("./table.js").TableOptions<Api.RunLine>}
 */
export function runTable(context, { withName, empty }) {
  /** @type {import("./table.js").Column<Api.RunLine>[]} */
  const columns = [
    {
      id: "run",
      label: "Run",
      width: 6,
      key: (run) => run.label,
      cell: (run) => el("a", { href: context.href(`/runs/${run.label}`), tabindex: "-1" }, run.label),
    },
    {
      id: "name",
      label: "Workflow",
      key: (run) => run.name,
      cell: (run) =>
        el("a", { href: context.href(`/workflows/${run.workflow}`), tabindex: "-1", title: run.name }, run.name),
    },
    {
      id: "status",
      label: "State",
      width: 8.9,
      narrow: 4.6,
      key: (run) => run.status,
      cell: (run) => stateBadge(run.status),
    },
    {
      id: "progress",
      label: "Jobs",
      width: 14.3,
      needs: "wide",
      key: (run) => `${run.done} ${run.failed} ${run.jobs}`,
      cell: (run) => progressOf(run),
    },
    {
      id: "started",
      label: "Started",
      width: 10.6,
      key: (run) => String(run.started_at_us ?? run.created_at_us),
      cell: (run) => {
        const at = run.started_at_us ?? run.created_at_us;
        return el("span", { title: format.time(at) }, format.shortTime(at));
      },
    },
    {
      id: "took",
      label: "Duration",
      width: 7.1,
      align: "right",
      cell: (run, cell) => setText(cell, format.duration(durationOf(context, run))),
    },
    {
      id: "user",
      label: "User",
      width: 7.9,
      needs: "wide",
      key: (run) => run.user,
      cell: (run) => el("span", { class: "muted" }, run.user),
    },
    {
      id: "host",
      label: "Host",
      width: 9.3,
      needs: "wide",
      key: (run) => run.host,
      cell: (run) => el("span", { class: "muted" }, run.host),
    },
  ];
  return {
    label: "Runs",
    columns: withName ? columns : columns.filter((column) => column.id !== "name"),
    rowKey: (run) => run.uuid,
    href: (run) => `/runs/${run.label}`,
    open: (path) => context.go(path),
    empty,
  };
}

/** Time it was driven; of a running one until now. @param {import("../core/page.js").Context} context @param {Api.RunLine} run */
function durationOf(context, run) {
  const isRunning = run.status === "running" && context.source.isLive && run.started_at_us;
  return isRunning ? Math.max(0, Date.now() / 1000 - (run.started_at_us ?? 0) / 1e6) : run.took_s;
}

/** @param {{ done: number, failed: number, left: number }} run */
export function progressOf(run) {
  const part = (/** @type {number} */ count, /** @type {string} */ tone) =>
    count ? el("span", { class: `tone-${tone}`, style: { flex: String(count) } }) : null;
  const words = `${format.count(run.done)} of ${format.count(run.done + run.failed + run.left)}`;
  const failed = run.failed ? `, ${format.count(run.failed)} failed` : "";
  const node = el("span", { class: "run-progress" });
  fill(
    node,
    el(
      "span",
      { class: "state-bar", "aria-hidden": "true" },
      part(run.failed, "bad"),
      part(run.done, "good"),
      part(run.left, "waiting"),
    ),
    el("span", { class: run.failed ? "has-failed" : "" }, words + failed),
  );
  return node;
}
