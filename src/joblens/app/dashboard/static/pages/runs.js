/** Runs of all workflows, and workflows: newest first. */

import { errorBox, toast, wordsOf } from "../components/feedback.js";
import { progressOf, runTable } from "../components/run_list.js";
import { stateBadge } from "../components/state.js";
import { Table } from "../components/table.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

const REFRESH_MS = 3000;
const PAGE = 50;

/** @type {import("../core/page.js").Page} */
export const runs = {
  title: "Runs",
  nav: "runs",
  async mount(context) {
    const { root, source, signal } = context;
    /** @type {Map<string, Api.RunLine>} */
    const known = new Map();
    /** @type {number | null} */
    let next = 0;
    let isLoading = false;
    const count = el("span", { class: "muted", role: "status" });
    const table = runTable(context, {
      withName: true,
      onNearEnd: () => more(),
      empty: "No workflow has been run yet. Start one: joblens run FILE",
    });
    table.node.classList.add("page-table");
    const show = (/** @type {number} */ total) => {
      const rows = [...known.values()].sort((one, other) => other.created_at_us - one.created_at_us);
      setText(count, format.counted(total, "run"));
      table.setRows(rows, total);
    };
    const take = (/** @type {Api.RunLines} */ answer) => {
      for (const run of answer.items) known.set(run.uuid, run);
      show(answer.total);
    };
    const more = async () => {
      if (next === null || next === 0 || isLoading) return;
      isLoading = true;
      try {
        const answer = await source.get("/runs", { limit: PAGE, after: next }, { signal });
        next = answer.next ?? null;
        take(answer);
      } catch (error) {
        if (!signal.aborted) toast(wordsOf(error), "error");
      } finally {
        isLoading = false;
      }
    };
    fill(
      root,
      el(
        "div",
        { class: "page-head" },
        el("h1", null, "Runs"),
        count,
        el("span", { class: "grow" }),
        el("a", { class: "button", href: context.href("/workflows") }, "Workflows"),
      ),
      table.node,
    );
    const refresh = async () => {
      const answer = await source.get("/runs", { limit: PAGE }, { signal });
      if (next === 0) next = answer.next ?? null;
      take(answer);
    };
    if (source.isLive) poll(refresh, REFRESH_MS, signal, context.setConnection);
    else await refresh();
  },
};

/** @type {import("../core/page.js").Page} */
export const workflows = {
  title: "Workflows",
  nav: "runs",
  async mount(context) {
    const { root, source, signal } = context;
    /** @type {Api.WorkflowRow[]} */
    let rows = [];
    /** @type {number | null} */
    let next = null;
    let isLoading = false;
    const count = el("span", { class: "muted", role: "status" });
    const problem = el("div");
    const table = new Table({
      label: "Workflows",
      columns: workflowColumns(context),
      rowKey: (row) => row.workflow.uuid,
      href: (row) => `/workflows/${row.workflow.uuid}`,
      open: (path) => context.go(path),
      onNearEnd: () => load(true),
      empty: "No workflow has been run yet. Start one: joblens run FILE",
    });
    table.node.classList.add("page-table");
    const load = async (/** @type {boolean} */ isMore) => {
      if (isLoading || (isMore && next === null)) return;
      isLoading = true;
      try {
        const query = { limit: PAGE, after: isMore ? next : null };
        const answer = await source.get("/workflows", query, { signal });
        rows = isMore ? [...rows, ...answer.items] : answer.items;
        next = answer.next ?? null;
        setText(count, `${format.counted(rows.length, "workflow")}${next === null ? "" : " and more"}`);
        table.setRows(rows, next === null ? rows.length : rows.length + 1);
        fill(problem);
      } catch (error) {
        if (!signal.aborted)
          fill(
            problem,
            errorBox(error, () => load(isMore)),
          );
      } finally {
        isLoading = false;
      }
    };
    fill(
      root,
      el(
        "div",
        { class: "page-head" },
        el("h1", null, "Workflows"),
        count,
        el("span", { class: "grow" }),
        el("a", { class: "button", href: context.href("/runs") }, "Runs"),
      ),
      problem,
      table.node,
    );
    await load(false);
  },
};

/**
 * @param {import("../core/page.js").Context} context
 * @returns {import("../components/table.js").Column<Api.WorkflowRow>[]}
 */
function workflowColumns(context) {
  return [
    {
      id: "id",
      label: "ID",
      width: "70px",
      align: "right",
      cell: (row) => String(row.workflow.number ?? format.UNKNOWN),
    },
    {
      id: "name",
      label: "Name",
      cell: (row) =>
        el(
          "a",
          {
            href: context.href(`/workflows/${row.workflow.uuid}`),
            tabindex: "-1",
            title: row.workflow.description ?? "",
          },
          row.workflow.name,
        ),
    },
    { id: "runs", label: "Runs", width: "74px", align: "right", cell: (row) => format.count(row.runs) },
    {
      id: "last",
      label: "Last run",
      width: "124px",
      cell: (row) => (row.last ? stateBadge(row.last.status) : el("span", { class: "muted" }, "never")),
    },
    {
      id: "jobs",
      label: "Jobs",
      width: "200px",
      isWide: true,
      cell: (row) => (row.last ? lastProgress(row.last) : format.UNKNOWN),
    },
    {
      id: "started",
      label: "Started",
      width: "142px",
      cell: (row) => format.shortTime(row.last?.run.started_at_us ?? null),
    },
    {
      id: "source",
      label: "File",
      isWide: true,
      cell: (row) => el("span", { class: "muted", title: row.workflow.source ?? "" }, row.workflow.source ?? ""),
    },
    {
      id: "user",
      label: "User",
      width: "110px",
      isWide: true,
      cell: (row) => el("span", { class: "muted" }, row.workflow.user ?? ""),
    },
  ];
}

/** @param {Api.RunRow} row */
function lastProgress(row) {
  const jobs = row.run.selected ?? row.run.jobs ?? 0;
  const left = Math.max(0, jobs - row.done - row.failed);
  return progressOf(/** @type {Api.RunLine} */ ({ done: row.done, failed: row.failed, left }));
}
