/** Starts a report: pages of the dashboard that need no server, with the data in this file. */

import * as format from "./core/format.js";
import { match } from "./core/router.js";
import { ROUTES, start } from "./main.js";
import { page as summary } from "./pages/report.js";
import { page as printed } from "./pages/report-print.js";
import { ReportSource } from "./report/source.js";

/** Pages whose data a report has. */
const PAGES = ["/jobs", "/jobs/:job", "/runs/:run", "/recipes/:job", "/compare"];

function startReport() {
  const node = document.getElementById("joblens-report");
  if (!node) return;
  /** @type {import("./report/source.js").Manifest} */
  const manifest = JSON.parse(node.textContent ?? "{}");
  const source = new ReportSource(manifest);
  const [only, ...others] = manifest.numbers;
  if (!location.hash && only !== undefined && !others.length && manifest.totals.jobs === 1) {
    location.replace(`#/jobs/${only}`); // one job: the summary says less than its page
  }
  const runs = Object.entries(manifest.runs).slice(0, 3);
  const routes = ROUTES.filter((route) => PAGES.includes(route.path));
  start(
    [{ path: "/", page: summary }, { path: "/print", page: printed(routes) }, ...routes],
    source,
    { base: "", isFile: true },
    {
      entries: [
        { path: "/", label: "Summary", nav: "summary" },
        { path: "/jobs", label: "Jobs", nav: "jobs" },
        ...comparisonOf(manifest),
        ...runs.map(([uuid, run]) => ({ path: `/runs/${uuid}`, label: `Run ${run.label}`, nav: `/runs/${uuid}` })),
      ],
      has: (path) => path === "/" || (routes.some((route) => match([route], path)) && source.has(path)),
      foot: `Report of ${format.time(manifest.created_at_us)} · ${manifest.title}`,
    },
  );
}

/**
 * Leads to the comparison of everything; there the reader deselects jobs.
 * @param {import("./report/source.js").Manifest} manifest
 */
function comparisonOf({ comparisons, numbers, runs }) {
  const labels = Object.values(runs).map((run) => run.label);
  const all =
    comparisons.jobs !== null ? { ids: numbers.join() } : comparisons.runs !== null ? { runs: labels.join() } : null;
  return all ? [{ path: `/compare?${new URLSearchParams(all)}`, label: "Compare", nav: "compare" }] : [];
}

startReport();
