/** The job table of a report: filters and orders of the server's lists, on rows that are in the file. */

import { Problem } from "../core/source.js";

/** @typedef {Api.JobSummary & { id?: string }} Row */
/** @typedef {Record<string, any>} Query */

/** @type {Record<string, (row: Row) => number | string | null | undefined>} */
const ORDERS = {
  started: (row) => row.started_at_us ?? row.created_at_us,
  ended: (row) => row.ended_at_us,
  duration: (row) => row.duration_s,
  cpu: (row) => row.cpu_s,
  memory: (row) => row.memory_peak_bytes,
  name: (row) => row.name,
};
const UNITS = /** @type {Record<string, number>} */ ({ s: 1, m: 60, h: 3600, d: 86400, w: 604800 });

/**
 * Rows from columns: `{ count, columns: { name: [...] } }`; null values are not there.
 * @param {{ count: number, columns: Record<string, any[]> }[]} parts
 * @returns {Row[]}
 */
export function rowsOf(parts) {
  const rows = [];
  for (const { count, columns } of parts) {
    const names = Object.keys(columns);
    for (let index = 0; index < count; index++) {
      /** @type {any} */
      const row = {};
      for (const name of names) {
        const value = columns[name]?.[index];
        if (value !== null) row[name] = value;
      }
      rows.push(row);
    }
  }
  return rows;
}

/**
 * @param {readonly Row[]} rows
 * @param {Query} query
 * @param {number} nowUs  Ages such as '2h' count from here: when the report was written.
 * @param {(ident: string) => string} runUuid
 */
export function filtered(rows, query, nowUs, runUuid) {
  const tests = testsOf(query, nowUs, runUuid);
  return tests.length ? rows.filter((row) => tests.every((test) => test(row))) : rows;
}

/**
 * @param {readonly Row[]} rows
 * @param {Query} query
 */
export function sorted(rows, query) {
  const order = ORDERS[query.sort ?? "started"] ?? ORDERS.started;
  const sign = String(query.ascending) === "true" ? 1 : -1;
  return [...rows].sort((one, other) => {
    const a = order?.(one);
    const b = order?.(other);
    if (a === b) return sign * (one.number - other.number);
    if (a === null || a === undefined) return 1; // unknown comes last
    if (b === null || b === undefined) return -1;
    return a < b ? -sign : sign;
  });
}

/**
 * @param {Query} query
 * @param {number} nowUs
 * @param {(ident: string) => string} runUuid
 * @returns {((row: Row) => boolean)[]}
 */
function testsOf(query, nowUs, runUuid) {
  /** @type {((row: Row) => boolean)[]} */
  const tests = [];
  const any = (/** @type {string} */ name, /** @type {(row: Row) => string | undefined} */ field) => {
    const wanted = new Set(listOf(query[name]));
    if (wanted.size) tests.push((row) => wanted.has(field(row) ?? ""));
  };
  any("status", (row) => row.status);
  any("tool", (row) => row.tool);
  any("host", (row) => row.host);
  any("user", (row) => row.user);
  any("id", (row) => row.id);
  const patterns = listOf(query.name).map(patternOf);
  if (patterns.length) tests.push((row) => patterns.some((pattern) => pattern.test(row.name)));
  const part = String(query.name_contains ?? "");
  if (part) tests.push((row) => row.name.includes(part));
  for (const tag of listOf(query.tag)) tests.push((row) => (row.tags ?? []).includes(tag));
  const codes = listOf(query.finding);
  if (codes.length) tests.push((row) => (row.findings ?? []).some((code) => codes.includes(code)));
  const [run] = listOf(query.run);
  if (run) {
    const uuid = runUuid(run);
    tests.push((row) => row.run === uuid);
  }
  const since = instantOf(query.since, nowUs);
  if (since !== null) tests.push((row) => (row.started_at_us ?? row.created_at_us) >= since);
  const until = instantOf(query.until, nowUs);
  if (until !== null) tests.push((row) => (row.started_at_us ?? row.created_at_us) < until);
  return tests;
}

/**
 * @param {any} value
 * @returns {string[]}
 */
function listOf(value) {
  if (value === null || value === undefined || value === "") return [];
  return (Array.isArray(value) ? value : [value]).map(String);
}

/**
 * '*' and '?' match; everything else is itself.
 * @param {string} text
 */
function patternOf(text) {
  const escaped = text
    .replace(/[.+^${}()|[\]\\]/g, "\\$&")
    .replaceAll("*", ".*")
    .replaceAll("?", ".");
  return new RegExp(`^${escaped}$`, "s");
}

/**
 * '2h' before the report was written, or a date.
 * @param {any} value
 * @param {number} nowUs
 */
function instantOf(value, nowUs) {
  const text = String(value ?? "").trim();
  if (!text) return null;
  const age = /^(\d+(?:\.\d+)?)\s*([smhdw])$/.exec(text);
  if (age) return nowUs - Number(age[1]) * (UNITS[age[2] ?? "s"] ?? 1) * 1e6;
  // Without an offset a time is UTC, as everywhere in joblens.
  const isNaive = /\d[T ]\d/.test(text) && !/(Z|[+-]\d{2}:?\d{2})$/i.test(text);
  const at = Date.parse(isNaive ? `${text.replace(" ", "T")}Z` : text);
  if (Number.isNaN(at)) throw new Problem(`'${text}' is not a time`, "write 2026-11-15, or an age such as 2h or 7d");
  return at * 1000;
}
