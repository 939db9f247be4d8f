/** Some of the jobs that a report compares, beside the first of them. */

import { Problem } from "../core/source.js";

/**
 * @typedef {Api.Comparison & { baselines: { verdicts: string[], percents: (number | null)[] }[][] }} Whole
 */

/**
 * @param {Whole} whole
 * @param {number[]} chosen  Indexes of the jobs; the first is the baseline.
 * @returns {Api.Comparison}
 */
export function comparisonOf(whole, chosen) {
  if (chosen.length < 2) throw new Problem("compare needs 2 to 50 different jobs", "select them in the job table");
  const pick = (/** @type {readonly any[]} */ values) => chosen.map((place) => values[place]);
  const differs = (/** @type {readonly any[]} */ values) => new Set(values).size > 1;
  const against = whole.baselines[chosen[0] ?? 0] ?? [];
  const numbers = whole.numbers.map((row, index) => ({
    ...row,
    values: pick(row.values),
    percents: pick(against[index]?.percents ?? []),
    verdicts: pick(against[index]?.verdicts ?? []),
  }));
  const facts = whole.facts.map((row) => ({ ...row, values: pick(row.values) }));
  const unlike = facts.filter((row) => differs(row.values));
  const same = facts.map((row) => row.group).filter((group) => !unlike.some((row) => row.group === group));
  return {
    subjects: pick(whole.subjects),
    numbers: numbers.filter((row) => row.values.some((value) => value !== null)),
    facts: unlike,
    same: [...new Set([...whole.same, ...same])],
    unknown: whole.unknown,
    axes: whole.axes.map((axis) => ({ ...axis, values: pick(axis.values) })).filter((axis) => differs(axis.values)),
    curves: pick(whole.curves),
  };
}
