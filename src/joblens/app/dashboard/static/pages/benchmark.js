/** One benchmark: its results over time with their noise, variants of each, and what changed between them. */

import { card, pageHead } from "../components/card.js";
import { dotPlot } from "../components/dots.js";
import { errorBox } from "../components/feedback.js";
import { wideTable } from "../components/plain-table.js";
import { el, fill } from "../core/dom.js";
import * as format from "../core/format.js";
import { changeWords } from "./benchmarks.js";

const MOST_COLUMNS = 60;

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Benchmark",
  nav: "benchmarks",
  async mount(context) {
    const { root, source, params, signal } = context;
    const name = params.name ?? "";
    const back = el("a", { href: context.href("/benchmarks") }, "All benchmarks");
    context.setTitle(name);
    fill(root, pageHead(name, back));
    try {
      /** @type {Api.BenchHistory} */
      const found = await source.get("/benchmarks/results", { name }, { signal });
      const newest = [...found.results].reverse();
      fill(
        root,
        pageHead(name, el("span", { class: "muted" }, format.counted(found.results.length, "result")), back),
        card(
          "Wall time",
          el("span", { class: "muted" }, "dots are runs, lines medians, boxes the confidence interval of the median"),
          el("div", { class: "card-body" }, variantLegend(found), plot(found)),
        ),
        card("Results", null, el("div", { class: "card-body" }, resultTable(newest, context))),
        newest.map((result, index) => detail(result, index === 0)),
      );
    } catch (error) {
      if (!signal.aborted) fill(root, pageHead(name, back), errorBox(error));
    }
  },
};

/** @param {Api.BenchHistory} found */
function plot(found) {
  const columns = found.results.slice(-MOST_COLUMNS).map((result) => ({
    label: format.shortTime(result.created_at_us),
    words: `${format.time(result.created_at_us)}: ${result.variants
      .map((each) => `${each.name} ${format.fineDuration(each.median_s)}`)
      .join(", ")}`,
    groups: result.variants.map((each) => ({
      name: each.name,
      values: each.durations_s,
      median: each.median_s ?? null,
      low: each.low_s ?? null,
      high: each.high_s ?? null,
    })),
  }));
  return dotPlot(`Wall time of ${format.counted(columns.length, "result")}`, columns, format.duration);
}

/** @param {Api.BenchHistory} found */
function variantLegend(found) {
  const names = found.results.at(-1)?.variants.map((each) => each.name) ?? [];
  if (names.length < 2) return null;
  return el(
    "ul",
    { class: "legend", "aria-label": "Variants" },
    names.map((name, index) =>
      el(
        "li",
        null,
        el("span", { class: "swatch", "aria-hidden": "true", style: { "--swatch": `var(--series-${index % 8})` } }),
        name,
      ),
    ),
  );
}

/**
 * @param {Api.BenchResult[]} results  Newest first.
 * @param {import("../core/page.js").Context} _context
 */
function resultTable(results, _context) {
  return wideTable(
    "Results",
    ["When", "Variant", "Runs", "Median", "Interval", "CPU time", "Memory", "Change", "Machine"],
    results.flatMap((result) =>
      result.variants.map((each, index) => [
        index ? "" : el("span", { title: result.id }, format.time(result.created_at_us)),
        each.name,
        each.runs === each.successful ? format.count(each.runs) : `${each.successful} of ${each.runs}`,
        format.fineDuration(each.median_s),
        each.low_s === null
          ? format.UNKNOWN
          : `${format.fineDuration(each.low_s)} – ${format.fineDuration(each.high_s)}`,
        format.fineDuration(each.cpu_s),
        format.bytes(each.memory_bytes),
        index === result.variants.length - 1 ? changeWords(timeOf(result.before)) : "",
        index ? "" : result.host,
      ]),
    ),
    [1, 7, 8],
  );
}

/** @param {Api.BenchComparison | null | undefined} comparison */
function timeOf(comparison) {
  return comparison?.ratios.find((each) => each.number === "duration_seconds") ?? null;
}

/**
 * @param {Api.BenchResult} result
 * @param {boolean} isOpen
 */
function detail(result, isOpen) {
  const notes = [
    ...result.changes.map((each) => `changed: ${each}`),
    ...(result.failure ? [`failed: ${result.failure}`] : []),
    ...result.variants.flatMap((each) =>
      each.outliers.length
        ? [`${each.name}: ${format.counted(each.outliers.length, "outlier")} (run ${each.outliers.join(", ")})`]
        : [],
    ),
    ...result.disturbances,
  ];
  const comparisons = [...result.comparisons, ...(result.before ? [result.before] : [])];
  return el(
    "details",
    { class: "card bench-detail", open: isOpen },
    el("summary", null, `Result of ${format.time(result.created_at_us)}`),
    el(
      "div",
      { class: "card-body stack" },
      el(
        "dl",
        { class: "facts" },
        result.variants.flatMap((each) => [el("dt", null, each.name), el("dd", { class: "mono" }, each.command)]),
        el("dt", null, "joblens"),
        el("dd", null, result.version),
      ),
      comparisons.map((each) => comparison(each)),
      notes.length
        ? el(
            "ul",
            { class: "notes" },
            notes.map((note) => el("li", null, note)),
          )
        : null,
    ),
  );
}

/** @param {Api.BenchComparison} found */
function comparison(found) {
  return wideTable(
    `${found.variant} against ${found.baseline}`,
    [`${found.variant} against ${found.baseline}`, "Ratio", "Confidence interval", "Verdict"],
    found.ratios.map((each) => [
      each.title,
      `${each.ratio.toFixed(3)}×`,
      each.low === null || each.low === undefined
        ? format.UNKNOWN
        : `${each.low.toFixed(3)} – ${each.high?.toFixed(3)}`,
      changeWords(each),
    ]),
    [3],
  );
}
