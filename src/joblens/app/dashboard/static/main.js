/** Starts the page: reads what the server put into the document, draws the frame, and mounts the page of the address. */

import { errorBox, mountFeedback } from "./components/feedback.js";
import { Frame } from "./components/frame.js";
import { el, fill } from "./core/dom.js";
import { changed } from "./core/page.js";
import { Router } from "./core/router.js";
import { Problem, RestSource } from "./core/source.js";
import { page as audit } from "./pages/audit.js";
import { page as benchmark } from "./pages/benchmark.js";
import { page as benchmarks } from "./pages/benchmarks.js";
import { page as compare } from "./pages/compare.js";
import { page as job } from "./pages/job.js";
import { page as jobs } from "./pages/jobs.js";
import { page as nodes } from "./pages/nodes.js";
import { page as overview } from "./pages/overview.js";
import { page as queue } from "./pages/queue.js";
import { page as recipe } from "./pages/recipe.js";
import { page as run } from "./pages/run.js";
import { runs, workflows } from "./pages/runs.js";
import { page as settings } from "./pages/settings.js";
import { page as tokens } from "./pages/tokens.js";
import { page as workflow } from "./pages/workflow.js";

/** Every page of the dashboard. @type {readonly import("./core/router.js").Route[]} */
export const ROUTES = [
  { path: "/", page: overview },
  { path: "/jobs", page: jobs },
  { path: "/compare", page: compare },
  { path: "/queue", page: queue },
  { path: "/nodes", page: nodes },
  { path: "/benchmarks", page: benchmarks },
  { path: "/benchmarks/:name", page: benchmark },
  { path: "/settings", page: settings },
  { path: "/tokens", page: tokens },
  { path: "/audit", page: audit },
  { path: "/jobs/:job", page: job },
  { path: "/runs", page: runs },
  { path: "/runs/:run", page: run },
  { path: "/workflows", page: workflows },
  { path: "/workflows/:workflow", page: workflow },
  { path: "/recipes/:job", page: recipe },
];

/**
 * @typedef {object} Boot
 * @property {string} base
 * @property {import("./core/source.js").Session} session
 */

/**
 * Mounts pages as the address changes. A report calls it with its own source and routes.
 * @param {readonly import("./core/router.js").Route[]} routes
 * @param {import("./core/source.js").DataSource} source
 * @param {{ base: string, isFile: boolean }} where
 * @param {{ entries?: import("./components/frame.js").Entry[], foot?: string,
 *     has?: (path: string) => boolean }} [own]  Of a report: its navigation, what it is, which pages it has.
 */
export function start(routes, source, where, own = {}) {
  mountFeedback();
  let leaving = new AbortController();
  const router = new Router(routes, where, (match, place) => {
    leaving.abort();
    leaving = new AbortController();
    const root = frame.newRoot(match?.route.page.nav ?? "", place.path);
    if (!match) {
      frame.setTitle("Not found");
      fill(
        root,
        el("h1", null, "There is no such page"),
        el("p", null, el("a", { href: router.href("/") }, "Overview")),
      );
      return;
    }
    const { page } = match.route;
    frame.setTitle(page.title);
    let query = place.query;
    /** @type {import("./core/page.js").Context} */
    const context = {
      root,
      source,
      params: match.params,
      query: new URLSearchParams(query),
      signal: leaving.signal,
      setQuery(changes) {
        query = changed(query, changes);
        router.replaceQuery(query);
      },
      go: (path, next) => router.go(path, next),
      href: (path, next) => (own.has?.(path) === false ? "" : router.href(path, next)),
      setTitle: (text) => frame.setTitle(text),
      setConnection: (state, detail) => frame.setConnection(state, detail ?? ""),
    };
    const { signal } = leaving;
    Promise.resolve()
      .then(() => page.mount(context))
      .catch((error) => {
        if (!signal.aborted)
          fill(
            root,
            el("h1", null, page.title),
            errorBox(error, isLasting(error) ? undefined : () => location.reload()),
            isLasting(error) ? el("p", null, el("a", { href: router.href("/") }, "Overview")) : null,
          );
      });
  });
  const frame = new Frame(source, (path) => router.href(path), own);
  document.body.prepend(frame.node);
  router.start();
}

/** Whether asking again would have the same answer: no such job, for example. @param {unknown} error */
function isLasting(error) {
  return error instanceof Problem && [400, 403, 404].includes(error.status);
}

/** Starts the dashboard in a page of the server. */
function startServed() {
  const boot = document.getElementById("joblens-boot");
  if (!boot) return; // the sign-in page, or a report that starts itself
  /** @type {Boot} */
  const found = JSON.parse(boot.textContent ?? "{}");
  const source = new RestSource(found.base, found.session, () => {
    const page = location.pathname.slice(found.base.length) + location.search;
    location.assign(`${found.base}/sign-in?next=${encodeURIComponent(page)}`);
  });
  start(ROUTES, source, { base: found.base, isFile: false });
}

startServed();
