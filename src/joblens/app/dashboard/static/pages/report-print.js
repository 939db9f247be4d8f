/** A report on paper: the summary, the job table and the pages of jobs one below the other. */

import { stateBadge } from "../components/state.js";
import { el } from "../core/dom.js";
import * as format from "../core/format.js";
import { match } from "../core/router.js";
import { LONGEST, page as summary } from "./report.js";

const MOST_ROWS = 1000;
const QUIET_MS = 100;
const QUIET_TURNS = 5;
const MOST_PAGES = 20; // of jobs: failed ones first, then the longest

/**
 * @param {readonly import("../core/router.js").Route[]} routes
 * @returns {import("../core/page.js").Page}
 */
export function page(routes) {
  return {
    title: "Report",
    nav: "summary",
    async mount(context) {
      const source = /** @type {import("../report/source.js").ReportSource} */ (context.source);
      const done = holdLoading();
      context.setTitle(source.manifest.title);
      globalThis.IntersectionObserver = /** @type {any} */ (AllInView);
      const places = [
        ...Object.keys(source.manifest.runs)
          .slice(0, MOST_PAGES)
          .map((uuid) => `/runs/${uuid}`),
        ...(await jobsToPrint(source)).map((job) => `/jobs/${job.number}`),
      ];
      await printPage(summary, {}, context);
      // Of a few jobs the summary has the table, and its failures the reasons.
      if (source.manifest.totals.jobs > LONGEST) context.root.append(await jobTable(source));
      for (const place of places) {
        const found = match(routes, place);
        if (found) await printPage(found.route.page, found.params, context);
      }
      await untilQuiet(source);
      done();
    },
  };
}

/** On paper everything is in view once it has a size. */
class AllInView {
  /** @param {(entries: any[], observer: any) => void} callback */
  constructor(callback) {
    this._sized = new ResizeObserver((entries) =>
      callback(
        entries.map(({ target }) => ({ target, isIntersecting: true, intersectionRatio: 1 })),
        this,
      ),
    );
  }

  /** @param {Element} target */
  observe(target) {
    this._sized.observe(target);
  }

  /** @param {Element} target */
  unobserve(target) {
    this._sized.unobserve(target);
  }

  disconnect() {
    this._sized.disconnect();
  }
}

/** Keeps the document loading, so that a program which prints it waits. Returns what ends that. */
function holdLoading() {
  const frame = el("iframe", { title: "printing", hidden: true });
  document.body.append(frame);
  const inner = frame.contentDocument;
  inner?.open();
  return () => {
    inner?.close();
    frame.remove();
  };
}

/**
 * Waits until pages have requested everything and drawn it.
 * @param {import("../report/source.js").ReportSource} source
 */
async function untilQuiet(source) {
  for (let quiet = 0; quiet < QUIET_TURNS; ) {
    await new Promise((resolve) => setTimeout(resolve, QUIET_MS));
    quiet = source.pending ? 0 : quiet + 1;
  }
}

/**
 * @param {import("../core/page.js").Page} page
 * @param {Record<string, string>} params
 * @param {import("../core/page.js").Context} context
 */
async function printPage(page, params, context) {
  const root = el("section", { class: "page printed" });
  context.root.append(root);
  await page.mount({ ...context, root, params, query: new URLSearchParams(), setQuery() {}, setTitle() {} });
}

/** @param {import("../report/source.js").ReportSource} source */
async function jobsToPrint(source) {
  const failed = await source.get("/summaries", {
    status: ["failed", "timeout", "error", "lost"],
    sort: "started",
    limit: MOST_PAGES,
  });
  const longest = await source.get("/summaries", { sort: "duration", limit: MOST_PAGES });
  const found = new Map(
    [...failed.items, ...longest.items].map((/** @type {Api.JobSummary} */ job) => [job.number, job]),
  );
  return [...found.values()].slice(0, MOST_PAGES);
}

/** @param {import("../report/source.js").ReportSource} source */
async function jobTable(source) {
  const { items } = await source.get("/summaries", { sort: "started", limit: MOST_ROWS });
  const { jobs: total, states } = source.manifest.totals; // each attempt is a row
  const [title, unit] = states.retried ? ["Attempts", "attempts"] : ["Jobs", "jobs"];
  const head = ["Job", "Name", "State", "Started", "Duration", "CPU time", "Memory peak", "Why"];
  return el(
    "section",
    { class: "page printed" },
    el("h2", null, total > MOST_ROWS ? `The ${format.count(MOST_ROWS)} newest ${unit}` : title),
    el(
      "table",
      { class: "plain-table report-jobs" },
      el(
        "thead",
        null,
        el(
          "tr",
          null,
          head.map((word) => el("th", { scope: "col" }, word)),
        ),
      ),
      el(
        "tbody",
        null,
        items.map((/** @type {Api.JobSummary} */ job) =>
          el(
            "tr",
            null,
            el("td", null, String(job.number)),
            el("td", null, job.name.trim() || job.command),
            el("td", null, stateBadge(job.status)),
            el("td", null, format.time(job.started_at_us)),
            el("td", { class: "right" }, format.duration(job.duration_s)),
            el("td", { class: "right" }, format.duration(job.cpu_s)),
            el("td", { class: "right" }, format.bytes(job.memory_peak_bytes)),
            el("td", null, job.why ?? ""),
          ),
        ),
      ),
    ),
  );
}
