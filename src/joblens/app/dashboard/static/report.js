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
        ...(manifest.comparisons.jobs === null ? [] : [{ path: "/compare", label: "Compare", nav: "compare" }]),
        ...runs.map(([uuid, run]) => ({ path: `/runs/${uuid}`, label: `Run ${run.label}`, nav: `run-${uuid}` })),
      ],
      has: (path) => path === "/" || (routes.some((route) => match([route], path)) && source.has(path)),
      foot: `Report of ${format.time(manifest.created_at_us)} · ${manifest.title}`,
    },
  );
}

startReport();
