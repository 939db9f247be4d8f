/** First page of a report: what it covers, totals, failures with their reasons, the longest jobs, runs. */

import { failureItem } from "../components/failure.js";
import { stateBadge } from "../components/state.js";
import { el, fill } from "../core/dom.js";
import * as format from "../core/format.js";

export const LONGEST = 10; // jobs that the first page lists
const FAILED = "status=failed&status=timeout&status=error&status=lost";

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Report",
  nav: "summary",
  async mount(context) {
    const source = /** @type {import("../report/source.js").ReportSource} */ (context.source);
    const { manifest } = source;
    const { totals } = manifest;
    context.setTitle(manifest.title);
    const longest = el("section", { class: "card" });
    fill(
      context.root,
      el("div", { class: "page-head" }, el("h1", null, manifest.title)),
      el("p", { class: "muted report-about" }, aboutOf(manifest)),
      el("div", { class: "tiles" }, tilesOf(totals, context)),
      manifest.failures.length ? failuresOf(manifest, context) : null,
      runsOf(manifest, context),
      longest,
      el("p", { class: "muted report-about" }, contentOf(manifest)),
    );
    const found = await source.get("/summaries", { sort: "duration", limit: LONGEST });
    fillLongest(longest, found.items, totals, context);
  },
};

/** @param {import("../report/source.js").Manifest} manifest */
function aboutOf(manifest) {
  const { first_us, last_us } = manifest.totals;
  const span = first_us === null ? "" : ` · jobs from ${format.time(first_us)} to ${format.time(last_us)}`;
  const zone = `times in ${format.timeZone()}`;
  return `Written ${format.time(manifest.created_at_us)} by joblens ${manifest.version}${span} · ${zone}`;
}

/**
 * @param {import("../report/source.js").Manifest["totals"]} totals
 * @param {import("../core/page.js").Context} context
 */
function tilesOf(totals, context) {
  const retried = totals.states.retried ?? 0;
  const states = Object.entries(totals.states).map(([status, count]) =>
    status === "retried" ? `${format.counted(count, "attempt")} retried` : `${format.count(count)} ${status}`,
  );
  const failed = tile(
    "Failed",
    format.count(totals.failed),
    retried ? `and ${format.counted(retried, "attempt")} that ${retried === 1 ? "was" : "were"} retried` : "",
    totals.failed ? context.href("/jobs", new URLSearchParams(FAILED)) : null,
  );
  failed.classList.toggle("has-failures", totals.failed > 0);
  return [
    tile("Jobs", format.count(totals.jobs - retried), states.join(" · "), context.href("/jobs")),
    failed,
    tile("CPU time", format.duration(totals.cpu_s), "of all jobs", null),
    tile("Run time", format.duration(totals.duration_s), "of all jobs", null),
    tile("Memory", format.bytes(totals.memory_peak_bytes), "largest peak of a job", null),
  ];
}

/**
 * @param {string} label
 * @param {string} value
 * @param {string} more
 * @param {string | null} href
 */
function tile(label, value, more, href) {
  const parts = [
    el("span", { class: "tile-label" }, label),
    el("span", { class: "tile-value" }, value),
    el("span", { class: "tile-more" }, more),
  ];
  return href ? el("a", { class: "tile", href }, parts) : el("div", { class: "tile" }, parts);
}

/**
 * @param {import("../report/source.js").Manifest} manifest
 * @param {import("../core/page.js").Context} context
 */
function failuresOf(manifest, context) {
  const { failures, totals } = manifest;
  const isAll = failures.length === totals.failed;
  return el(
    "section",
    { class: "card" },
    el(
      "div",
      { class: "card-head" },
      el("h2", null, "Failures"),
      el("span", { class: "muted" }, isAll ? "" : `${failures.length} of ${format.count(totals.failed)}`),
      el("span", { class: "grow" }),
      el("a", { href: context.href("/jobs", new URLSearchParams(FAILED)) }, "All failures"),
    ),
    el(
      "ul",
      { class: "failures", tabindex: "0", "aria-label": "Failed jobs" },
      failures.map((failure) => failureItem(failure, context)),
    ),
  );
}

/**
 * @param {import("../report/source.js").Manifest} manifest
 * @param {import("../core/page.js").Context} context
 */
function runsOf(manifest, context) {
  const runs = Object.entries(manifest.runs);
  if (!runs.length) return null;
  return el(
    "section",
    { class: "card" },
    el("div", { class: "card-head" }, el("h2", null, "Runs")),
    el(
      "ul",
      { class: "report-runs" },
      runs.map(([uuid, run]) =>
        el(
          "li",
          null,
          stateBadge(run.status),
          el("a", { href: context.href(`/runs/${uuid}`) }, `Run ${run.label} of ${run.workflow}`),
        ),
      ),
    ),
  );
}

/**
 * @param {HTMLElement} card
 * @param {Api.JobSummary[]} jobs
 * @param {import("../report/source.js").Manifest["totals"]} totals
 * @param {import("../core/page.js").Context} context
 */
function fillLongest(card, jobs, totals, context) {
  const total = totals.jobs; // each attempt is a row
  const unit = totals.states.retried ? "attempt" : "job";
  const head = ["Job", "State", "Started", "Duration", "CPU time", "Memory peak"];
  const rows = jobs.map((job) =>
    el(
      "tr",
      null,
      el(
        "td",
        null,
        el(
          "a",
          { href: context.href(`/jobs/${job.number}`), title: job.command ?? "" },
          `${job.number} ${job.name.trim() || job.command}`,
        ),
      ),
      el("td", null, stateBadge(job.status)),
      el("td", null, format.time(job.started_at_us)),
      el("td", { class: "right" }, format.duration(job.duration_s)),
      el("td", { class: "right" }, format.duration(job.cpu_s)),
      el("td", { class: "right" }, format.bytes(job.memory_peak_bytes)),
    ),
  );
  fill(
    card,
    el(
      "div",
      { class: "card-head" },
      el("h2", null, total > jobs.length ? `Longest ${unit}s` : unit === "job" ? "Jobs" : "Attempts"),
      total > 1 && total === jobs.length ? el("span", { class: "muted" }, "longest first") : null,
      el("span", { class: "grow" }),
      el("a", { href: context.href("/jobs") }, total === 1 ? "Job table" : `All ${format.counted(total, unit)}`),
    ),
    el(
      "div",
      { class: "scroll-x", tabindex: "0", role: "group", "aria-label": "Jobs, scrolls" },
      el(
        "table",
        { class: "plain-table report-jobs" },
        el(
          "thead",
          null,
          el(
            "tr",
            null,
            head.map((word, index) => el("th", { scope: "col", class: index > 2 ? "right" : "" }, word)),
          ),
        ),
        el("tbody", null, rows),
      ),
    ),
  );
}

/** @param {import("../report/source.js").Manifest} manifest */
function contentOf(manifest) {
  const { points, log_lines } = manifest.amount;
  const parts = [
    `Curves have about ${format.counted(points, "point")}; every peak is among them.`,
    log_lines ? `Of each output, the last ${format.counted(log_lines, "line")} are here.` : "",
    "Secrets are redacted.",
    manifest.hides_paths ? "Directories of paths are hidden." : "",
    manifest.comparisons.jobs === null ? "" : "Select jobs in the job table to compare them.",
  ];
  return parts.filter(Boolean).join(" ");
}
