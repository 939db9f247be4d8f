/** Compare: 2 to 50 jobs or runs beside the first: numbers, curves, provenance, parameters against measurements. */

import { card, pageHead } from "../components/card.js";
import { Chart } from "../components/chart.js";
import { ChartGroup } from "../components/chart-group.js";
import { factTable, numberTable } from "../components/differences.js";
import { emptyBox, errorBox } from "../components/feedback.js";
import { ParallelCoordinates } from "../components/parallel.js";
import { stateBadge } from "../components/state.js";
import { el, fill } from "../core/dom.js";
import * as format from "../core/format.js";
import { curveNames, overlaid } from "../core/overlay.js";
import { onLeave } from "../core/page.js";

const LONGEST_NAME = 60; // in labels of curves
const MOST = 50;
const COLOURS = 8;
const FIRST_AXES = ["duration_s", "wall_s", "cpu_s", "memory_peak_bytes", "memory_bytes", "io_read_bytes", "energy_j"];
const FEWEST_AXES = 2;

/** @type {Record<string, { title: string, unit: (value: number | null) => string }>} */
const CURVES = {
  cpu: { title: "CPU", unit: format.percent },
  memory: { title: "Memory", unit: format.bytes },
  io_read: { title: "Read from disk", unit: format.rate },
  io_write: { title: "Written to disk", unit: format.rate },
  network_rx: { title: "Received", unit: format.rate },
  network_tx: { title: "Sent", unit: format.rate },
  processes: { title: "Processes", unit: format.count },
  jobs: { title: "Jobs at the same time", unit: format.count },
};

/** @type {import("../core/page.js").Page} */
export const page = {
  title: "Compare",
  nav: "compare",
  async mount(context) {
    const { root, source, query, signal } = context;
    const kind = query.has("runs") ? "run" : "job";
    const ids = wordsOf(query.get(kind === "run" ? "runs" : "ids") ?? "");
    if (ids.length < 2) {
      fill(root, pageHead("Compare"), chooser(context, kind, ids));
      return;
    }
    fill(root, pageHead("Compare"), el("p", { class: "muted", role: "status" }, "Comparing…"));
    try {
      const found = await source.get("/compare", { [kind]: ids }, { signal });
      new ComparePage(context, kind, ids, found).show();
    } catch (error) {
      if (!signal.aborted) fill(root, pageHead("Compare"), errorBox(error), chooser(context, kind, ids));
    }
  },
};

/** @param {string} text */
function wordsOf(text) {
  return [...new Set(text.split(/[\s,]+/).filter(Boolean))].slice(0, MOST);
}

/**
 * Asks which ones to compare.
 * @param {import("../core/page.js").Context} context
 * @param {"job" | "run"} kind
 * @param {string[]} ids
 */
function chooser(context, kind, ids) {
  const which = el(
    "select",
    { "aria-label": "Jobs or runs" },
    el("option", { value: "job", selected: kind === "job" }, "jobs"),
    el("option", { value: "run", selected: kind === "run" }, "runs"),
  );
  const field = el("input", {
    type: "text",
    class: "search",
    value: ids.join(" "),
    placeholder: "12 15 18",
    "aria-label": "IDs",
    required: true,
  });
  const form = el(
    "form",
    { class: "filters" },
    el("span", null, "Compare"),
    which,
    field,
    el("button", { class: "primary" }, "Compare"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = wordsOf(field.value).join();
    context.go("/compare", new URLSearchParams(which.value === "run" ? { runs: words } : { ids: words }));
  });
  return el(
    "section",
    { class: "card card-body stack", "aria-label": "Choose jobs or runs" },
    el(
      "p",
      null,
      `Compare 2 to ${MOST} jobs or runs; the first is the baseline. Or select rows on `,
      el("a", { href: context.href("/jobs") }, "Jobs"),
      " and press Compare.",
    ),
    form,
  );
}

class ComparePage {
  /**
   * @param {import("../core/page.js").Context} context
   * @param {"job" | "run"} kind
   * @param {string[]} ids
   * @param {Api.Comparison} found
   */
  constructor(context, kind, ids, found) {
    this._context = context;
    this._kind = kind;
    this._ids = ids;
    this._found = found;
    this._isOnlyDifferent = context.query.get("only") === "1";
    /** Subjects outside the brushes. @type {ReadonlySet<number>} */
    this._faint = new Set();
    /** @type {{ chart: Chart, name: string }[]} */
    this._charts = [];
    this._numbers = el("div");
    this._facts = el("div");
  }

  show() {
    const { _context: context, _found: found } = this;
    const title = `Compare ${format.counted(found.subjects.length, this._kind)}`;
    context.setTitle(title);
    const only = el("input", { type: "checkbox", checked: this._isOnlyDifferent });
    only.addEventListener("change", () => {
      this._isOnlyDifferent = only.checked;
      context.setQuery({ only: only.checked ? "1" : null });
      this._showTables();
    });
    fill(
      context.root,
      pageHead(title, el("span", { class: "muted" }, `Changes are against ${nameOf(found.subjects[0])}.`)),
      this._subjects(),
      this._parallel(),
      card("Numbers", el("label", { class: "check-label" }, only, "only significant differences"), this._numbers),
      this._curves(),
      card("Provenance", el("span", { class: "muted" }, "facts that are not the same everywhere"), this._facts),
    );
    this._showTables();
  }

  _showTables() {
    const heads = () => this._found.subjects.map((subject, index) => this._head(subject, index));
    fill(
      this._numbers,
      numberTable(heads(), this._found.numbers, { isOnlyDifferent: this._isOnlyDifferent, faint: this._faint }),
      el(
        "p",
        { class: "card-body muted small" },
        "▲ ▼ mark differences larger than the noise: the usual difference of earlier jobs of the same name or, if too few " +
          "are known, than 10% and a least amount.",
      ),
    );
    const { facts, same, unknown } = this._found;
    fill(
      this._facts,
      facts.length ? factTable(heads(), facts, this._faint) : el("p", { class: "card-body" }, "No known fact differs."),
      same.length ? el("p", { class: "card-body muted small" }, `The same everywhere: ${same.join(", ")}.`) : null,
      unknown.length
        ? el("p", { class: "card-body muted small" }, `Not known of at least one: ${unknown.join(", ")}.`)
        : null,
    );
  }

  /**
   * @param {Api.Subject} subject
   * @param {number} index
   */
  _head(subject, index) {
    const path = subject.kind === "run" ? `/runs/${subject.ident}` : `/jobs/${subject.label}`;
    return el(
      "span",
      { class: "subject-head" },
      swatch(index),
      el("a", { href: this._context.href(path), title: nameOf(subject) }, nameOf(subject)),
    );
  }

  /** Who is compared, with buttons to choose another baseline or leave one out. */
  _subjects() {
    const items = this._found.subjects.map((subject, index) =>
      el(
        "li",
        { class: "subject" },
        this._head(subject, index),
        stateBadge(subject.status),
        el(
          "span",
          { class: "muted", title: format.time(subject.started_at_us) },
          format.shortTime(subject.started_at_us),
        ),
        index === 0 ? el("span", { class: "chip" }, "baseline") : null,
        index > 0
          ? el(
              "button",
              {
                type: "button",
                class: "plain small",
                "aria-label": `Make ${nameOf(subject)} the baseline`,
                onclick: () => this._go([index, ...[...this._ids.keys()].filter((each) => each !== index)]),
              },
              "Baseline",
            )
          : null,
        this._ids.length > 2
          ? el(
              "button",
              {
                type: "button",
                class: "plain small",
                "aria-label": `Remove ${nameOf(subject)}`,
                onclick: () => this._go([...this._ids.keys()].filter((each) => each !== index)),
              },
              "×",
            )
          : null,
      ),
    );
    return el("ul", { class: "subjects", "aria-label": "Compared" }, items);
  }

  /** @param {number[]} order  Of indexes. */
  _go(order) {
    const words = order.map((index) => this._ids[index]).join();
    this._context.go("/compare", new URLSearchParams(this._kind === "run" ? { runs: words } : { ids: words }));
  }

  _parallel() {
    const { axes, subjects } = this._found;
    const parameters = axes.filter((axis) => axis.kind === "parameter");
    if (axes.length < FEWEST_AXES) return null;
    const asked = (this._context.query.get("axes") ?? "").split(",").filter(Boolean);
    const usual = new Set([...parameters.map((axis) => axis.key), ...FIRST_AXES]);
    const chosen = new Set(asked.length ? asked : axes.filter((axis) => usual.has(axis.key)).map((axis) => axis.key));
    const shown = () => axes.filter((axis) => chosen.has(axis.key));
    const plot = new ParallelCoordinates({
      axes: shown(),
      labels: subjects.map(nameOf),
      noun: this._kind,
      onSelect: (selected) => this._select(selected),
    });
    onLeave(this._context, () => plot.destroy());
    const boxes = axes.map((axis) => {
      const box = el("input", { type: "checkbox", checked: chosen.has(axis.key) });
      box.addEventListener("change", () => {
        if (box.checked) chosen.add(axis.key);
        else chosen.delete(axis.key);
        this._context.setQuery({ axes: [...chosen].join() });
        plot.setAxes(shown());
      });
      return el("label", null, box, axis.title);
    });
    const menu = el(
      "details",
      { class: "menu" },
      el("summary", null, "Axes"),
      el("div", { class: "menu-body axes-menu" }, boxes),
    );
    return card(
      parameters.length ? "Parameters against measurements" : "Measurements",
      [el("span", { class: "grow" }), menu],
      plot.node,
    );
  }

  /** @param {ReadonlySet<number> | null} selected */
  _select(selected) {
    const all = [...this._found.subjects.keys()];
    this._faint = new Set(selected ? all.filter((index) => !selected.has(index)) : []);
    this._showTables();
    for (const { chart, name } of this._charts) chart.setData(this._chartData(name));
  }

  _curves() {
    const all = curveNames(this._found.curves).filter((name) => name in CURVES);
    const names = all.filter((name) => this._found.curves.some((each) => each.curves[name]?.some(Boolean)));
    const zero = all.filter((name) => !names.includes(name)).map((name) => CURVES[name]?.title.toLowerCase());
    if (!names.length) return emptyBox("None of them has curves: they ended before their first sample.");
    const group = new ChartGroup();
    const nodes = names.map((name) => {
      const { title, unit } = CURVES[name] ?? { title: name, unit: format.count };
      const chart = new Chart({ title, unit, group, time: (us) => format.duration(us / 1e6) });
      chart.setData(this._chartData(name));
      this._charts.push({ chart, name });
      return chart.node;
    });
    onLeave(this._context, () => {
      for (const { chart } of this._charts) chart.destroy();
    });
    return el(
      "section",
      { class: "stack", "aria-label": "Curves" },
      el("h2", null, "Curves", el("span", { class: "muted beside" }, "since the start of each")),
      el("div", { class: "curves" }, nodes),
      zero.length ? el("p", { class: "muted small" }, `Zero everywhere: ${zero.join(", ")}.`) : null,
    );
  }

  /** @param {string} name */
  _chartData(name) {
    const { at_us, values } = overlaid(this._found.curves, name);
    return {
      at_us,
      series: this._found.subjects.map((subject, index) => ({
        label: nameOf(subject),
        values: values[index] ?? [],
        colour: `--series-${index % COLOURS}`,
        isFaint: this._faint.has(index),
        isDashed: index >= COLOURS,
      })),
    };
  }
}

/** @param {Api.Subject | undefined} subject */
function nameOf(subject) {
  if (!subject) return format.UNKNOWN;
  const { label, name } = subject;
  const shown = name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME)}…` : name;
  return name && name !== label ? `${label} ${shown}` : label;
}

/** @param {number} index */
function swatch(index) {
  return el("span", {
    class: `swatch ${index >= COLOURS ? "dashed" : ""}`,
    "aria-hidden": "true",
    style: { "--swatch": `var(--series-${index % COLOURS})` },
  });
}
