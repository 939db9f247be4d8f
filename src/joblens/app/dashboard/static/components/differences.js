/** Tables that compare subjects column by column: numbers with significant changes, and facts that differ. */

import { el } from "../core/dom.js";
import * as format from "../core/format.js";

/**
 * @param {string} unit  As the server names it.
 * @returns {(value: number | null) => string}
 */
export function unitOf(unit) {
  if (unit === "s") return format.duration;
  if (unit === "bytes") return format.bytes;
  if (unit === "%") return format.percent;
  if (unit === "J") return (value) => (value === null ? format.UNKNOWN : `${rounded(value)} J`);
  return (value) => (value === null ? format.UNKNOWN : rounded(value));
}

/** @param {number} value */
function rounded(value) {
  return value.toLocaleString("en-US", { maximumSignificantDigits: 4 });
}

/**
 * @param {readonly HTMLElement[]} heads  One per subject.
 * @param {readonly Api.NumberRow[]} rows
 * @param {{ isOnlyDifferent: boolean, faint: ReadonlySet<number> }} shown  `faint`: subjects that are not selected.
 */
export function numberTable(heads, rows, { isOnlyDifferent, faint }) {
  const isZero = (/** @type {Api.NumberRow} */ row) => row.values.every((value) => value === 0);
  const chosen = rows.filter((row) => !isZero(row) && (!isOnlyDifferent || isDifferent(row)));
  const zero = rows.filter(isZero).map((row) => row.title);
  const body = chosen.map((row) => {
    const unit = unitOf(row.unit);
    return el(
      "tr",
      { class: isDifferent(row) ? "differs" : "" },
      el("th", { scope: "row" }, row.title, el("span", { class: "usual" }, usual(row))),
      row.values.map((value, index) =>
        el(
          "td",
          { class: `right ${faint.has(index) ? "faint" : ""} ${verdictClass(row.verdicts[index])}` },
          el("span", { class: "value" }, unit(value)),
          change(row, index),
        ),
      ),
    );
  });
  if (!chosen.length) return el("p", { class: "card-body muted" }, "No number differs by more than its noise.");
  return [
    wide("Numbers", heads, body, faint),
    zero.length ? el("p", { class: "card-body muted small" }, `Zero everywhere: ${zero.join(", ")}.`) : null,
  ];
}

/** @param {Api.NumberRow} row */
function isDifferent(row) {
  return row.verdicts.some((verdict) => verdict === "up" || verdict === "down");
}

/** @param {Api.NumberRow} row */
function usual(row) {
  if (row.usual_percent === null || row.usual_percent === undefined) return "";
  return `usually ±${format.percent(row.usual_percent)} in ${format.counted(row.earlier_runs ?? 0, "run")}`;
}

/** @param {string | undefined} verdict */
function verdictClass(verdict) {
  return verdict === "up" || verdict === "down" ? `verdict-${verdict}` : "";
}

/** '+12%', '−3.0%', and '×453' where percents would be hard to read. @param {number} percent */
function changeOf(percent) {
  if (percent >= 1000) return `×${format.count(Math.round(percent / 100 + 1))}`;
  return `${percent > 0 ? "+" : percent < 0 ? "−" : ""}${format.percent(Math.abs(percent))}`;
}

/**
 * @param {Api.NumberRow} row
 * @param {number} index
 */
function change(row, index) {
  const verdict = row.verdicts[index];
  const percent = row.percents[index];
  if (verdict === "baseline") return el("span", { class: "change" }, "baseline");
  const isSignificant = verdict === "up" || verdict === "down";
  const text = percent === null || percent === undefined ? "" : changeOf(percent);
  if (!isSignificant) return el("span", { class: "change" }, text);
  return el(
    "span",
    { class: "change significant" },
    el("span", { "aria-hidden": "true" }, verdict === "up" ? "▲ " : "▼ "),
    el("span", { class: "visually-hidden" }, verdict === "up" ? "significantly more: " : "significantly less: "),
    text || "new",
  );
}

/**
 * @param {readonly HTMLElement[]} heads
 * @param {readonly Api.FactRow[]} rows
 * @param {ReadonlySet<number>} faint
 */
export function factTable(heads, rows, faint) {
  /** @type {HTMLElement[]} */
  const body = [];
  let group = "";
  for (const row of rows) {
    if (row.group !== group) {
      group = row.group;
      body.push(
        el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: String(heads.length + 1) }, group)),
      );
    }
    body.push(
      el(
        "tr",
        null,
        el("th", { scope: "row", title: row.name }, row.name),
        row.values.map((value, index) => {
          const differs = index > 0 && value !== row.values[0];
          return el(
            "td",
            { class: `${faint.has(index) ? "faint" : ""} ${differs ? "differs-fact" : ""}`, title: value ?? "" },
            differs ? el("span", { class: "visually-hidden" }, "differs: ") : null,
            el("span", { class: "fact" }, value ?? format.UNKNOWN),
          );
        }),
      ),
    );
  }
  const found = wide("Provenance", heads, body, faint);
  found.classList.add("facts-table");
  return found;
}

/**
 * @param {string} label
 * @param {readonly HTMLElement[]} heads
 * @param {HTMLElement[]} body
 * @param {ReadonlySet<number>} faint
 */
function wide(label, heads, body, faint) {
  return el(
    "div",
    { class: "compare-table", tabindex: "0", role: "group", "aria-label": `${label}, scrolls` },
    el(
      "table",
      { "aria-label": label },
      el(
        "thead",
        null,
        el(
          "tr",
          null,
          el("td", null),
          heads.map((head, index) => el("th", { scope: "col", class: faint.has(index) ? "faint" : "" }, head)),
        ),
      ),
      el("tbody", null, body),
    ),
  );
}
