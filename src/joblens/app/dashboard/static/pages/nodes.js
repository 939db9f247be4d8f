/** Nodes: machines and their workers: capacity, use, jobs, last seen, and what is measured there. */

import { pageHead } from "../components/card.js";
import { emptyBox, errorBox } from "../components/feedback.js";
import { meter, showMeter } from "../components/meter.js";
import { wideTable } from "../components/plain-table.js";
import { el, fill, setText } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

const REFRESH_MS = 3000;
const PAGE = 200;

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Nodes",
  nav: "nodes",
  mount(context) {
    const { root, source, signal } = context;
    const count = el("span", { class: "muted", role: "status" });
    const list = el("div", { class: "nodes" });
    const more = el("button", { type: "button", hidden: true }, "Show more machines");
    /** @type {Map<string, NodeCard>} */
    const cards = new Map();
    let pages = 1;
    more.addEventListener("click", () => {
      pages += 1;
      refresh();
    });
    fill(root, pageHead("Nodes", count), list, more);
    async function refresh() {
      /** @type {Api.Node[]} */
      const nodes = [];
      /** @type {string | null} */
      let cursor = null;
      for (let number = 0; number < pages; number++) {
        /** @type {Api.Nodes} */
        const found = await source.get("/nodes", { limit: PAGE, cursor }, { signal });
        nodes.push(...found.items);
        cursor = found.next ?? null;
        if (!cursor) break;
      }
      more.hidden = !cursor;
      setText(count, `${cursor ? "first " : ""}${format.counted(nodes.length, "machine")}`);
      for (const node of nodes) {
        const known = cards.get(node.host);
        if (known) known.show(node);
        else {
          const made = new NodeCard(context, node);
          cards.set(node.host, made);
          list.append(made.node);
        }
      }
      const hosts = new Set(nodes.map((node) => node.host));
      for (const [host, each] of cards) {
        if (hosts.has(host)) continue;
        each.node.remove();
        cards.delete(host);
      }
    }
    poll(refresh, REFRESH_MS, signal, context.setConnection);
  },
};

class NodeCard {
  /**
   * @param {import("../core/page.js").Context} context
   * @param {Api.Node} node
   */
  constructor(context, node) {
    this._context = context;
    this._host = node.host;
    this._facts = el("span", { class: "muted" });
    this._seen = el("span", { class: "muted" });
    this._cpu = meter("cpu", `CPU of ${node.host}`);
    this._memory = meter("memory", `memory of ${node.host}`);
    this._unknown = el("p", { class: "muted", hidden: true }, "Its use is not known: no job runs there now.");
    this._workers = el("div");
    this._jobs = el("a", { href: context.href("/jobs", new URLSearchParams({ host: node.host })) });
    const measured = el("details", { class: "measured" }, el("summary", null, "Measured here"));
    measured.addEventListener("toggle", () => {
      if (measured.open) this._measurements(measured);
    });
    this.node = el(
      "section",
      { class: "card node-card", "aria-label": node.host },
      el(
        "div",
        { class: "card-head" },
        el("h2", null, node.host),
        node.is_server ? el("span", { class: "chip" }, "this server") : null,
        el("span", { class: "grow" }),
        this._seen,
      ),
      el(
        "div",
        { class: "card-body stack" },
        this._facts,
        this._cpu,
        this._memory,
        this._unknown,
        this._jobs,
        this._workers,
        measured,
      ),
    );
    this.show(node);
  }

  /** @param {Api.Node} node */
  show(node) {
    const parts = [
      node.cpu_count ? `${format.count(node.cpu_count)} CPUs` : "",
      node.memory_total_bytes ? format.bytes(node.memory_total_bytes) : "",
      node.gpus ? format.counted(node.gpus, "GPU") : "",
      node.load1 === null || node.load1 === undefined ? "" : `load ${node.load1.toFixed(1)}`,
    ];
    setText(this._facts, parts.filter(Boolean).join(" · ") || "its capacity is not known");
    setText(this._seen, `seen ${format.ago(node.seen_at_us)}`);
    this._seen.title = format.time(node.seen_at_us);
    const isKnown = node.memory_used_bytes !== null && node.memory_used_bytes !== undefined;
    this._cpu.hidden = this._memory.hidden = !isKnown;
    this._unknown.hidden = isKnown;
    showMeter(this._cpu, node.cpu_percent ?? null, 100, `CPU ${format.percent(node.cpu_percent)}`);
    const total = node.memory_total_bytes ?? null;
    showMeter(
      this._memory,
      node.memory_used_bytes ?? null,
      total,
      `memory ${format.bytes(node.memory_used_bytes)} of ${format.bytes(total)}`,
    );
    setText(
      this._jobs,
      `${format.counted(node.jobs, "job")} running, ${format.counted(node.jobs_of_week, "job")} started in 7 days`,
    );
    const key = JSON.stringify(node.workers);
    if (this._workers.dataset.key === key) return;
    this._workers.dataset.key = key;
    fill(this._workers, node.workers.length ? workerTable(node.workers) : el("p", { class: "muted" }, "No worker."));
  }

  /** @param {HTMLDetailsElement} place */
  async _measurements(place) {
    const { source, signal } = this._context;
    const summary = el("summary", null, "Measured here");
    try {
      /** @type {Api.NodeMeasurements} */
      const found = await source.get("/nodes/measurements", { host: this._host }, { signal });
      fill(place, summary, measurementList(found, this._context));
    } catch (error) {
      if (!signal.aborted) fill(place, summary, errorBox(error));
    }
  }
}

/** @param {readonly Api.NodeWorker[]} workers */
function workerTable(workers) {
  return wideTable(
    "Workers",
    ["Worker", "Jobs", "Seen", "CPUs", "Memory", "GPUs", "Queues"],
    workers.map((each) => [
      el("span", { title: `joblens ${each.version}, user ${each.user}` }, each.name),
      `${each.running} of ${each.concurrency}`,
      each.is_silent
        ? el("strong", { class: "near-limit" }, `silent, ${format.ago(each.seen_at_us)}`)
        : format.ago(each.seen_at_us),
      format.count(each.cpus),
      format.bytes(each.memory_bytes),
      format.count(each.gpus),
      [...each.queues, ...each.labels.map((label) => `label ${label}`)].join(", "),
    ]),
    [6],
  );
}

/**
 * @param {Api.NodeMeasurements} found
 * @param {import("../core/page.js").Context} context
 */
function measurementList(found, context) {
  if (found.job === null || found.job === undefined) {
    return emptyBox("No job has ended here yet. joblens doctor shows what this machine can measure.");
  }
  const known = found.items.filter((each) => each.source);
  /** @type {Map<string, string[]>} */
  const gaps = new Map();
  for (const each of found.items) {
    if (!each.source) gaps.set(each.reason ?? "", [...(gaps.get(each.reason ?? "") ?? []), each.name]);
  }
  return el(
    "div",
    { class: "stack" },
    el(
      "p",
      { class: "muted" },
      "From ",
      el("a", { href: context.href(`/jobs/${found.job}`) }, `job ${found.job}`),
      `, which ended ${format.ago(found.ended_at_us)}; accounting by ${found.accounting || "nothing"}, Linux ${found.kernel}.`,
    ),
    found.accounting_reason ? el("p", { class: "muted" }, found.accounting_reason) : null,
    wideTable(
      "Measured",
      ["Number", "Read from"],
      known.map((each) => [words(each.name), each.source ?? ""]),
      [1],
    ),
    gaps.size
      ? wideTable(
          "Not measured",
          ["Not measured", "Why"],
          [...gaps].map(([reason, names]) => [names.map(words).join(", "), reason]),
          [1],
        )
      : null,
  );
}

/** @param {string} name */
function words(name) {
  return name.replaceAll("_", " ");
}
