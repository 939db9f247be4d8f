/** Benchmarks: one row per benchmark with its newest result, its noise, and its change against the one before. */

import { card, pageHead } from "../components/card.js";
import { emptyBox, errorBox } from "../components/feedback.js";
import { PagedTable } from "../components/paged.js";
import { el, fill, svg } from "../core/dom.js";
import * as format from "../core/format.js";

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Benchmarks",
  nav: "benchmarks",
  async mount(context) {
    const { root, source, signal } = context;
    const problems = el("div");
    const body = el("div");
    fill(
      root,
      pageHead("Benchmarks", el("span", { class: "muted" }, "results of joblens bench next to the store")),
      problems,
      body,
    );
    const path = (/** @type {Api.BenchSummary} */ row) => `/benchmarks/${encodeURIComponent(row.name)}`;
    /** @type {PagedTable<Api.BenchSummary>} */
    const list = new PagedTable({
      load: async (after) => {
        /** @type {Api.Benchmarks} */
        const found = await source.get("/benchmarks", { after: after ?? 0 }, { signal });
        fill(problems, found.problems.length ? errorBox(found.problems.join("; ")) : null);
        if (!after && !found.items.length) {
          fill(body, emptyBox("No benchmark yet. Compare two commands: joblens bench -- COMMAND …"));
        } else if (!after) fill(body, card("Results", null, list.node));
        return found;
      },
      table: {
        label: "Benchmarks",
        rowKey: (row) => row.name,
        href: path,
        open: (to) => context.go(to),
        columns: [
          {
            id: "name",
            label: "Benchmark",
            key: (row) => row.name,
            cell: (row) => el("a", { href: context.href(path(row)), tabindex: "-1", title: row.name }, row.name),
          },
          {
            id: "results",
            label: "Results",
            width: 5.7,
            align: "right",
            key: (row) => String(row.results),
            cell: (row) => format.count(row.results),
          },
          {
            id: "median",
            label: "Median",
            width: 6.9,
            align: "right",
            key: (row) => String(row.median_s),
            cell: (row) => format.fineDuration(row.median_s),
          },
          {
            id: "noise",
            label: "Noise",
            width: 6,
            align: "right",
            needs: "wide",
            key: (row) => String(row.noise_percent),
            cell: (row) => (row.noise_percent === null ? format.UNKNOWN : `±${format.percent(row.noise_percent)}`),
          },
          {
            id: "change",
            label: "Change",
            width: 17.9,
            key: (row) => JSON.stringify(row.change),
            cell: (row) => changeWords(row.change),
          },
          {
            id: "history",
            label: "History",
            width: 10.4,
            needs: "wide",
            key: (row) => row.medians_s.join(),
            cell: (row) => history(row.medians_s),
          },
          {
            id: "newest",
            label: "Newest",
            width: 7.9,
            needs: "wide",
            key: (row) => String(row.newest_at_us),
            cell: (row) => el("span", { title: format.time(row.newest_at_us) }, format.ago(row.newest_at_us)),
          },
        ],
      },
    });
    await list.reload();
    if (!body.firstChild) fill(body, list.node);
  },
};

/**
 * '▼ 12% less', 'no difference', with the reason of doubt.
 * @param {Api.BenchRatio | null | undefined} ratio
 */
export function changeWords(ratio) {
  if (!ratio) return el("span", { class: "muted" }, "first result");
  const percent = format.percent(Math.abs(ratio.ratio - 1) * 100);
  if (ratio.differs === null || ratio.differs === undefined) {
    return el("span", { class: "muted" }, `${ratio.ratio < 1 ? "−" : "+"}${percent}, too few runs to judge`);
  }
  if (!ratio.differs) {
    const detectable = ratio.detectable ? ` (${format.percent(100 * ratio.detectable)} would show)` : "";
    return el("span", { class: "muted" }, `no difference${detectable}`);
  }
  return el(
    "strong",
    { class: ratio.ratio < 1 ? "less" : "more" },
    el("span", { "aria-hidden": "true" }, ratio.ratio < 1 ? "▼ " : "▲ "),
    `${percent} ${ratio.ratio < 1 ? "less" : "more"}`,
  );
}

/** @param {readonly (number | null)[]} medians */
function history(medians) {
  const known = medians.filter((value) => value !== null);
  if (known.length < 2) return el("span", { class: "muted" }, "");
  const most = Math.max(...known);
  const step = 110 / (medians.length - 1);
  const points = medians.flatMap((value, index) =>
    value === null ? [] : [`${(4 + index * step).toFixed(1)} ${(20 - (value / most) * 16).toFixed(1)}`],
  );
  return svg(
    "svg",
    {
      class: "bench-history",
      width: 118,
      height: 24,
      role: "img",
      "aria-label": `${medians.length} results, newest last`,
    },
    svg("path", { d: `M${points.join("L")}` }),
    svg("circle", { cx: points.at(-1)?.split(" ")[0] ?? 0, cy: points.at(-1)?.split(" ")[1] ?? 0, r: 2.6 }),
  );
}
