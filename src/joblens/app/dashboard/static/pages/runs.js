/** Runs of all workflows, and workflows: newest first. */

import { pageHead } from "../components/card.js";
import { PagedTable } from "../components/paged.js";
import { progressOf, runTable } from "../components/run-list.js";
import { stateBadge } from "../components/state.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

const REFRESH_MS = 3000;
const PAGE = 50;
const EMPTY = "No workflow has been run yet. Start one: joblens run FILE";

/** @type {import("../core/page.js").Page} */
export const runs = {
  title: "Runs",
  nav: "runs",
  mount(context) {
    mountList(context, "/runs", runTable(context, { withName: true, empty: EMPTY }), "run", {
      path: "/workflows",
      label: "Workflows",
    });
  },
};

/** @type {import("../core/page.js").Page} */
export const workflows = {
  title: "Workflows",
  nav: "runs",
  mount(context) {
    /** @type {import("../components/table.js").TableOptions<Api.WorkflowRow>} */
    const table = {
      label: "Workflows",
      columns: workflowColumns(context),
      rowKey: (row) => row.workflow.uuid,
      href: (row) => `/workflows/${row.workflow.uuid}`,
      open: (path) => context.go(path),
      empty: EMPTY,
    };
    mountList(context, "/workflows", table, "workflow", { path: "/runs", label: "Runs" });
  },
};

/**
 * @template R
 * @param {import("../core/page.js").Context} context
 * @param {string} path
 * @param {import("../components/table.js").TableOptions<R>} table
 * @param {string} noun
 * @param {{ path: string, label: string }} other  The list beside it.
 */
function mountList(context, path, table, noun, other) {
  const { root, source, signal } = context;
  const count = el("span", { class: "muted", role: "status" });
  /** @type {PagedTable<R>} */
  const list = new PagedTable({
    load: (cursor) => source.get(path, { limit: PAGE, after: cursor }, { signal }),
    table,
    onRows: (rows, hasMore) => setText(count, `${format.counted(rows.length, noun)}${hasMore ? " and more" : ""}`),
  });
  list.table.node.classList.add("page-table");
  fill(
    root,
    pageHead(
      `${noun[0]?.toUpperCase()}${noun.slice(1)}s`,
      count,
      el("span", { class: "grow" }),
      el("a", { class: "button", href: context.href(other.path) }, other.label),
    ),
    list.node,
  );
  let isFirst = true;
  const refresh = async () => {
    await (isFirst ? list.reload() : list.refresh());
    isFirst = false;
  };
  if (source.isLive) poll(refresh, REFRESH_MS, signal, context.setConnection);
  else refresh();
}

/**
 * @param {import("../core/page.js").Context} context
 * @returns {import("../components/table.js").Column<Api.WorkflowRow>[]}
 */
function workflowColumns(context) {
  return [
    {
      id: "id",
      label: "ID",
      width: 5,
      align: "right",
      needs: "wide",
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
    { id: "runs", label: "Runs", width: 4.7, align: "right", cell: (row) => format.count(row.runs) },
    {
      id: "last",
      label: "Last run",
      width: 8.9,
      cell: (row) => (row.last ? stateBadge(row.last.status) : el("span", { class: "muted" }, "never")),
    },
    {
      id: "jobs",
      label: "Jobs",
      width: 14.3,
      needs: "wide",
      cell: (row) => (row.last ? lastProgress(row.last) : format.UNKNOWN),
    },
    {
      id: "started",
      label: "Started",
      width: 10.6,
      needs: "wide",
      cell: (row) => format.shortTime(row.last?.run.started_at_us ?? null),
    },
    {
      id: "source",
      label: "File",
      needs: "wide",
      cell: (row) => el("span", { class: "muted", title: row.workflow.source ?? "" }, row.workflow.source ?? ""),
    },
    {
      id: "user",
      label: "User",
      width: 7.9,
      needs: "wide",
      cell: (row) => el("span", { class: "muted" }, row.workflow.user ?? ""),
    },
  ];
}

/** @param {Api.RunRow} row */
function lastProgress(row) {
  const jobs = row.run.selected ?? row.run.jobs ?? 0;
  return progressOf({ done: row.done, failed: row.failed, left: Math.max(0, jobs - row.done - row.failed) });
}
