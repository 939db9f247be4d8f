/** Workflow: its runs over time, and right-sizing advice as a change of its file. */

import { copyLine, emptyBox, errorBox } from "../components/feedback.js";
import { runTable } from "../components/run-list.js";
import { shapeOf, toneOf } from "../components/state.js";
import { Table } from "../components/table.js";
import { el, fill, setText, svg } from "../core/dom.js";
import * as format from "../core/format.js";
import { poll } from "../core/stream.js";

const REFRESH_MS = 3000;
const BARS = 60;
const TALL = 110;

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Workflow",
  nav: "runs",
  async mount(context) {
    const { root, source, signal } = context;
    const path = `/workflows/${encodeURIComponent(context.params.workflow ?? "")}`;
    const table = new Table(runTable(context, { withName: false, empty: "It has not been run." }));
    table.node.classList.add("run-table");
    const count = el("span", { class: "muted" });
    const chart = el("div", { class: "card-body" });
    const advice = el("div", { class: "card-body" }, el("p", { class: "muted" }, "Reading measurements…"));
    const take = (/** @type {Api.WorkflowPage} */ answer) => {
      setText(count, format.counted(answer.total, "run"));
      table.setRows(answer.runs, answer.total);
      showBars(chart, answer.runs, context);
    };
    /** @type {Api.WorkflowPage} */
    const first = await source.get(`${path}/page`, {}, { signal });
    const { workflow } = first;
    context.setTitle(`Workflow ${workflow.name}`);
    const facts = [
      workflow.number ? `workflow ${workflow.number}` : "",
      workflow.source ?? "",
      workflow.user ?? "",
      workflow.description ?? "",
    ];
    fill(
      root,
      el(
        "div",
        { class: "page-head" },
        el("h1", null, workflow.name),
        count,
        el("span", { class: "grow" }),
        el("a", { class: "button", href: context.href("/workflows") }, "All workflows"),
      ),
      el("p", { class: "run-facts muted" }, facts.filter(Boolean).join(" · ")),
      el(
        "section",
        { class: "card", "aria-label": "Runs over time" },
        el(
          "div",
          { class: "card-head" },
          el("h2", null, "Runs over time"),
          el("span", { class: "muted" }, "duration of each, oldest left"),
        ),
        chart,
      ),
      el(
        "section",
        { class: "card", "aria-label": "Runs" },
        el("div", { class: "card-head" }, el("h2", null, "Runs")),
        table.node,
      ),
      el(
        "section",
        { class: "card", "aria-label": "Right-sizing" },
        el(
          "div",
          { class: "card-head" },
          el("h2", null, "Right-sizing"),
          el("span", { class: "muted" }, "requests that fit what jobs used"),
        ),
        advice,
      ),
    );
    take(first);
    loadAdvice(advice, context, path);
    if (source.isLive) {
      let isFirst = true;
      poll(
        async () => {
          if (!isFirst) take(await source.get(`${path}/page`, {}, { signal }));
          isFirst = false;
        },
        REFRESH_MS,
        signal,
        context.setConnection,
      );
    }
  },
};

/**
 * One bar per run: as high as it took, with the tone and the shape of its state.
 * @param {HTMLElement} body
 * @param {readonly Api.RunLine[]} runs
 * @param {import("../core/page.js").Context} context
 */
function showBars(body, runs, context) {
  const shown = runs.slice(0, BARS).toReversed();
  const key = shown.map((run) => `${run.uuid} ${run.status} ${run.took_s}`).join();
  if (body.dataset.key === key) return;
  body.dataset.key = key;
  if (!shown.length) {
    fill(body, emptyBox("It has not been run."));
    return;
  }
  const most = shown.reduce((top, run) => Math.max(top, run.took_s ?? 0), 0) || 1;
  fill(
    body,
    el("div", { class: "run-bars-scale muted number" }, format.duration(most)),
    el(
      "ol",
      { class: "run-bars", "aria-label": "Runs, oldest first" },
      shown.map((run) => {
        const tone = toneOf(run.status);
        const height = Math.max(4, ((run.took_s ?? 0) / most) * TALL);
        const words = `Run ${run.label}, ${run.status}, ${format.duration(run.took_s)}, ${format.time(run.started_at_us ?? run.created_at_us)}`;
        return el(
          "li",
          null,
          el(
            "a",
            {
              class: `run-bar tone-${tone}`,
              href: context.href(`/runs/${run.label}`),
              "aria-label": words,
              title: words,
            },
            svg(
              "svg",
              { viewBox: "0 0 10 10", class: "shape", "aria-hidden": "true" },
              svg("path", { d: shapeOf(tone) }),
            ),
            el("span", { class: "run-bar-fill", style: { height: `${height.toFixed(0)}px` } }),
            el("span", { class: "run-bar-label number", "aria-hidden": "true" }, run.label.split(".").at(-1)),
          ),
        );
      }),
    ),
  );
}

/**
 * @param {HTMLElement} body
 * @param {import("../core/page.js").Context} context
 * @param {string} path
 */
async function loadAdvice(body, context, path) {
  const { source, signal } = context;
  try {
    showAdvice(body, await source.get(`${path}/advice`, {}, { signal }));
  } catch (error) {
    if (!signal.aborted)
      fill(
        body,
        errorBox(error, () => loadAdvice(body, context, path)),
      );
  }
}

/**
 * @param {HTMLElement} body
 * @param {Api.WorkflowAdvice} found
 */
function showAdvice(body, found) {
  const { advice = [], diff = [], thin = [] } = found;
  const changes = advice.filter((each) => each.is_change);
  fill(
    body,
    found.reason ? el("p", null, `No advice: ${found.reason}.`) : null,
    !found.reason && !diff.length
      ? el("p", null, `The requests fit what jobs used in ${format.counted(found.runs, "run")}: nothing to change.`)
      : null,
    diff.length
      ? [
          el(
            "p",
            { class: "muted" },
            `From ${format.counted(found.runs, "run")}. The file as it was in run ${found.run}:`,
          ),
          diffOf(diff),
        ]
      : null,
    diff.length || found.reason ? el("p", { class: "advice-line" }, copyLine(found.command, "command")) : null,
    thin.length
      ? el("p", { class: "muted" }, `Too few measurements to lower: ${thin.join(", ")}. Add --force to lower them too.`)
      : null,
    changes.length ? adviceTable(changes) : null,
  );
}

/** @param {readonly string[]} lines */
function diffOf(lines) {
  const kind = (/** @type {string} */ line) => {
    if (/^(---|\+\+\+|@@)/.test(line)) return "diff-head";
    return line.startsWith("+") ? "diff-add" : line.startsWith("-") ? "diff-remove" : "";
  };
  return el(
    "div",
    { class: "diff", tabindex: "0", role: "group", "aria-label": "Changes of the file" },
    el(
      "pre",
      null,
      lines.map((line) => el("span", { class: kind(line) }, `${line}\n`)),
    ),
  );
}

/** @param {readonly Api.AdviceLine[]} advice */
function adviceTable(advice) {
  const head = ["Jobs", "Resource", "Now", "Suggested", "Confidence", "Why"];
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "group", "aria-label": "Reasons" },
    el(
      "table",
      { class: "plain-table advice-table" },
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
        advice.map((each) =>
          el(
            "tr",
            null,
            el("th", { scope: "row" }, each.group),
            el("td", null, each.resource),
            el("td", null, each.current || format.UNKNOWN),
            el("td", null, each.recommended),
            el("td", null, `${each.confidence}, ${format.counted(each.jobs, "job")}`),
            el("td", { class: "muted" }, each.reason),
          ),
        ),
      ),
    ),
  );
}
