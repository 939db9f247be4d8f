/** Queue: status of each queue, jobs that wait with position and reason, jobs that workers hold. */

import { card, pageHead } from "../components/card.js";
import { confirmDialog, emptyBox, errorBox, toast, wordsOf } from "../components/feedback.js";
import { PagedTable } from "../components/paged.js";
import { wideTable } from "../components/plain-table.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

const REFRESH_MS = 2000;

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Queue",
  nav: "queue",
  mount(context) {
    const { root, source, signal } = context;
    const queues = el("div", { class: "card-body" });
    const chosen = { queue: context.query.get("queue") };
    const waiting = waitingTable(context, chosen);
    const leases = leaseTable(context, chosen);
    const filter = el("div", { class: "filters" });
    const choose = (/** @type {string | null} */ route) => {
      chosen.queue = route;
      context.setQuery({ queue: route });
      showFilter();
      waiting.list.reload();
      leases.list.reload();
    };
    const showFilter = () => {
      fill(
        filter,
        chosen.queue ? el("span", { class: "chip" }, `queue ${chosen.queue}`) : null,
        chosen.queue
          ? el("button", { type: "button", class: "plain", onclick: () => choose(null) }, "All queues")
          : null,
      );
      filter.hidden = !chosen.queue;
    };
    showFilter();
    fill(
      root,
      pageHead("Queue"),
      card("Queues", null, queues),
      filter,
      card("Waiting", [waiting.count, el("span", { class: "grow" }), waiting.cancel], waiting.list.node),
      card("On workers", leases.count, leases.list.node),
    );
    poll(
      async () => {
        /** @type {Api.Queues} */
        const found = await source.get("/queue", {}, { signal });
        showQueues(queues, found, choose);
        await Promise.all([waiting.list.refresh(), leases.list.refresh()]);
      },
      REFRESH_MS,
      signal,
      context.setConnection,
    );
  },
};

/**
 * @param {HTMLElement} body
 * @param {Api.Queues} found
 * @param {(route: string) => void} choose
 */
function showQueues(body, found, choose) {
  const key = JSON.stringify(found.items);
  if (body.dataset.key === key || body.contains(document.activeElement)) return;
  body.dataset.key = key;
  if (!found.is_complete) {
    fill(body, emptyBox("Totals of queues are about jobs of all users; below are yours."));
    return;
  }
  if (!found.items.length) {
    fill(body, emptyBox("No job waits and no worker runs. Submit one with joblens submit --queue default -- COMMAND"));
    return;
  }
  fill(
    body,
    wideTable(
      "Queues",
      ["Queue", "Waiting", "On workers", "Oldest waits", "Workers", "Free slots"],
      found.items.map((each) => [
        el(
          "button",
          { type: "button", class: "link", title: "Show only this queue", onclick: () => choose(each.route) },
          each.label ? `${each.queue} · label ${each.label}` : each.queue || "default",
        ),
        format.count(each.waiting),
        format.count(each.held),
        each.waiting ? format.seconds(each.oldest_waiting_us) : "",
        format.count(each.workers),
        each.workers ? `${format.count(each.free_slots)} of ${format.count(each.slots)}` : "0",
      ]),
    ),
    found.items.filter((each) => each.problem).map((each) => errorBox(each.problem)),
  );
}

/**
 * @param {import("../core/page.js").Context} context
 * @param {{ queue: string | null }} chosen
 */
function waitingTable(context, chosen) {
  const { source, signal } = context;
  const count = el("span", { class: "muted" });
  const cancel = el("button", { type: "button", hidden: true });
  /** @type {string[]} */
  let selected = [];
  /** @type {PagedTable<Api.WaitingJob>} */
  const list = new PagedTable({
    load: (cursor) => source.get("/queue/waiting", { limit: 100, cursor, queue: chosen.queue }, { signal }),
    onRows: (rows, hasMore) => setText(count, `${hasMore ? "first " : ""}${format.counted(rows.length, "job")}`),
    table: {
      label: "Waiting jobs",
      rowKey: (job) => String(job.number),
      href: (job) => `/jobs/${job.number}`,
      open: (path) => context.go(path),
      empty: "No job waits.",
      ...(source.may("operator")
        ? {
            onSelect: (/** @type {ReadonlySet<string>} */ keys) => {
              selected = [...keys];
              cancel.hidden = keys.size === 0;
              fill(cancel, `Cancel ${format.counted(keys.size, "job")}`);
            },
          }
        : {}),
      columns: [
        {
          id: "position",
          label: "Position",
          width: 6,
          align: "right",
          key: (job) => String(job.position),
          cell: (job) => format.count(job.position),
        },
        ...jobColumns(context),
        {
          id: "since",
          label: "Waits",
          width: 6.6,
          align: "right",
          cell: (job, cell) => setText(cell, format.duration(Math.max(0, Date.now() / 1000 - job.since_us / 1e6))),
        },
        {
          id: "reason",
          label: "Why it waits",
          key: (job) => job.reason + job.after,
          cell: (job) => [
            el("span", { title: job.reason }, job.reason),
            job.after ? " · " : null,
            job.after ? el("a", { href: context.href(`/jobs/${job.after}`), tabindex: "-1" }, "job before it") : null,
          ],
        },
      ],
    },
  });
  list.table.node.classList.add("queue-table");
  cancel.addEventListener("click", async () => {
    const jobs = format.counted(selected.length, "job");
    const answer = await confirmDialog({
      title: `Cancel ${jobs}?`,
      text: "Removes them from the queue; jobs that depend on them are cancelled too.",
      action: `Cancel ${jobs}`,
      isDangerous: true,
    });
    if (answer === null) return;
    try {
      /** @type {Api.BulkResult} */
      const result = await source.send("POST", "/bulk", { action: "cancel", jobs: selected });
      toast(`Cancelled: ${format.counted(result.changed, "job")}`);
      list.table.clearSelection();
      await list.reload();
    } catch (error) {
      toast(wordsOf(error), "error");
    }
  });
  return { list, count, cancel };
}

/**
 * @param {import("../core/page.js").Context} context
 * @param {{ queue: string | null }} chosen
 */
function leaseTable(context, chosen) {
  const { source, signal } = context;
  const count = el("span", { class: "muted" });
  /** @type {PagedTable<Api.Lease>} */
  const list = new PagedTable({
    load: (cursor) => source.get("/queue/leases", { limit: 100, cursor, queue: chosen.queue }, { signal }),
    onRows: (rows, hasMore) => setText(count, `${hasMore ? "first " : ""}${format.counted(rows.length, "job")}`),
    table: {
      label: "Jobs on workers",
      rowKey: (job) => String(job.number),
      href: (job) => `/jobs/${job.number}`,
      open: (path) => context.go(path),
      empty: "No worker holds a job.",
      columns: [
        ...jobColumns(context),
        {
          id: "worker",
          label: "Worker",
          key: (job) => job.worker,
          cell: (job) => el("span", { title: job.worker }, job.worker),
        },
        {
          id: "host",
          label: "Host",
          width: 9.3,
          needs: "wide",
          key: (job) => job.host,
          cell: (job) => job.host || format.UNKNOWN,
        },
        {
          id: "lease",
          label: "Lease",
          width: 9.4,
          align: "right",
          key: (job) => String(Math.round(job.left_us / 1e6)),
          cell: (job) =>
            job.left_us < 0
              ? el("strong", { class: "near-limit" }, `expired ${format.seconds(-job.left_us)} ago`)
              : `${format.seconds(job.left_us)} left`,
        },
        {
          id: "deliveries",
          label: "Delivery",
          width: 6,
          align: "right",
          needs: "wide",
          key: (job) => String(job.deliveries),
          cell: (job) => format.count(job.deliveries),
        },
      ],
    },
  });
  list.table.node.classList.add("queue-table");
  return { list, count };
}

/**
 * @param {import("../core/page.js").Context} context
 * @returns {import("../components/table.js").Column<any>[]}
 */
function jobColumns(context) {
  return [
    {
      id: "name",
      label: "Job",
      key: (job) => `${job.number} ${job.name}`,
      cell: (job) =>
        el(
          "a",
          { href: context.href(`/jobs/${job.number}`), tabindex: "-1", title: job.name },
          `${job.number} ${job.name}`,
        ),
    },
    {
      id: "queue",
      label: "Queue",
      width: 8.6,
      needs: "wide",
      key: (job) => `${job.queue} ${job.label}`,
      cell: (job) => (job.label ? `${job.queue} · ${job.label}` : job.queue),
    },
    { id: "user", label: "User", width: 6.4, needs: "wide", key: (job) => job.user, cell: (job) => job.user },
  ];
}
